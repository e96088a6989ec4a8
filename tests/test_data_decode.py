"""The decode rules: every mode has a written result; hostile and damaged files are refused in time and in memory."""

import hashlib
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from randpath.data.decode import MAX_PIXELS, PictureError, check_images, decode, sniff
from randpath.errors import DataError
from randpath.keyed import rng
from tests.pictures import encoded, pixels

RGB = pixels("rgb", 6, 5)
GREY = pixels("grey", 6, 5, 1)
ALPHA = np.array([[0, 255], [128, 255]], np.uint8)


def png_of(array: np.ndarray, mode: str) -> bytes:
    return encoded(Image.fromarray(array, mode) if mode in ("L", "RGB", "RGBA", "LA") else Image.fromarray(array))


def png16(array: np.ndarray) -> bytes:
    """A 16-bit grey PNG, written by hand."""
    h, w = array.shape
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    return _png(w, h, 16, 0, raw)


def _png(w: int, h: int, depth: int, colour: int, raw: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def grey(values: object) -> np.ndarray:
    return np.repeat(np.asarray(values, np.uint8)[..., None], 3, axis=-1)


class TestEveryModeHasARule:
    def test_rgb_keeps_its_pixels(self) -> None:
        for kind in ("png", "bmp", "ppm"):
            np.testing.assert_array_equal(decode(encoded(RGB, kind)), RGB)
        np.testing.assert_array_equal(decode(encoded(RGB, "webp", lossless=True)), RGB)

    def test_grey_fills_three_channels(self) -> None:
        np.testing.assert_array_equal(decode(encoded(GREY)), np.repeat(GREY, 3, axis=2))
        np.testing.assert_array_equal(decode(encoded(GREY, "ppm")), np.repeat(GREY, 3, axis=2))

    def test_one_channel_is_luma(self) -> None:
        np.testing.assert_array_equal(decode(encoded(GREY), (6, 5, 1)), GREY)
        luma = np.asarray(Image.fromarray(RGB).convert("L"))[..., None]
        np.testing.assert_array_equal(decode(encoded(RGB), (6, 5, 1)), luma)

    def test_one_bit_is_black_and_white(self) -> None:
        bits = np.array([[True, False], [False, True]])
        np.testing.assert_array_equal(decode(encoded(Image.fromarray(bits))), grey([[255, 0], [0, 255]]))

    def test_transparency_lies_on_white(self) -> None:
        black = np.dstack([np.zeros((2, 2, 3), np.uint8), ALPHA])
        np.testing.assert_array_equal(decode(encoded(Image.fromarray(black))), grey([[255, 0], [127, 0]]))
        la = Image.merge("LA", [Image.new("L", (2, 2), 0), Image.fromarray(ALPHA)])
        np.testing.assert_array_equal(decode(encoded(la)), grey([[255, 0], [127, 0]]))

    def test_palette_is_looked_up(self) -> None:
        image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8))
        image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
        want = np.array([[[10, 20, 30], [40, 50, 60]], [[70, 80, 90], [40, 50, 60]]], np.uint8)
        np.testing.assert_array_equal(decode(encoded(image)), want)

    @pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])])
    def test_palette_with_a_transparent_colour(self, transparency: object) -> None:
        image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8))
        image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
        got = decode(encoded(image, transparency=transparency))
        assert got[0, 1].tolist() == [255, 255, 255]
        assert got[0, 0].tolist() == [10, 20, 30]

    def test_rgb_with_a_transparent_colour(self) -> None:
        image = Image.new("RGB", (1, 1), (1, 2, 3))
        assert decode(encoded(image, transparency=(1, 2, 3))).tolist() == [[[255, 255, 255]]]

    def test_sixteen_bits_give_their_high_byte(self) -> None:
        values = np.array([[0, 255, 256], [32768, 65280, 65535]])
        want = grey([[0, 0, 1], [128, 255, 255]])
        np.testing.assert_array_equal(decode(png16(values)), want)
        pgm = b"P5\n3 2\n65535\n" + values.astype(">u2").tobytes()
        np.testing.assert_array_equal(decode(pgm), want)
        rgb16 = _png(1, 1, 16, 2, b"\0" + np.array([258, 65535, 511], ">u2").tobytes())
        assert decode(rgb16).tolist() == [[[1, 255, 1]]]

    def test_cmyk_as_pillow_converts(self) -> None:
        image = Image.new("CMYK", (8, 8), (0, 255, 0, 0))
        assert decode(encoded(image, "jpeg", quality=100))[4, 4].tolist() == [255, 0, 0 + 255]

    def test_golden_hashes(self) -> None:
        """A change of any of these is a change of everybody's training data: it needs a word in the changelog."""
        big = pixels("golden", 40, 50)
        cases = {
            "same size": decode(encoded(big), (40, 50, 3)),
            "down": decode(encoded(big), (16, 16, 3)),
            "up": decode(encoded(RGB), (16, 16, 3)),
            "grey": decode(encoded(big), (16, 16, 1)),
        }
        got = {name: hashlib.sha256(array.tobytes()).hexdigest()[:8] for name, array in cases.items()}
        assert got == {"same size": "f4cb9440", "down": "5d41d9f8", "up": "750aa05e", "grey": "3bd8923b"}

    @pytest.mark.parametrize("kind", ["ico"])
    def test_other_formats_are_refused(self, kind: str) -> None:
        with pytest.raises(PictureError, match="allowed: JPEG, PNG, WEBP, BMP, PPM"):
            decode(encoded(Image.new("RGB", (16, 16)), kind), name="x")

    @pytest.mark.parametrize("kind", ["png", "webp"])
    def test_animations_are_refused(self, kind: str) -> None:
        frames = [Image.fromarray(pixels(i)) for i in range(3)]
        with pytest.raises(PictureError, match="animation") as error:
            decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:]), name="moving.png")
        assert error.value.kind == "animated"
        assert "moving.png" in str(error.value)

    def test_of_a_camera_s_double_picture_the_first_counts(self) -> None:
        first, second = (Image.new("RGB", (16, 16), colour) for colour in ("white", "black"))
        data = encoded(first, "mpo", save_all=True, append_images=[second])
        assert decode(data).min() > 250


class TestOrientation:
    @pytest.mark.parametrize("turn", range(1, 9))
    @pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
    def test_exif_is_honoured(self, turn: int, kind: str) -> None:
        from PIL import ImageOps

        image = Image.new("RGB", (32, 16), "white")
        image.paste("black", (0, 0, 16, 8))
        exif = Image.Exif()
        exif[274] = turn
        data = encoded(image, kind, exif=exif, **({"lossless": True} if kind == "webp" else {}))
        want = np.asarray(ImageOps.exif_transpose(Image.open(__import__("io").BytesIO(data))).convert("RGB"))
        np.testing.assert_array_equal(decode(data), want)
        assert decode(data).shape == ((32, 16, 3) if turn > 4 else (16, 32, 3))

    def test_damaged_exif_counts_as_none(self) -> None:
        image = Image.fromarray(pixels("exif", 16, 16))
        for exif in (b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\x7f", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"):
            np.testing.assert_array_equal(decode(encoded(image, "png", exif=exif)), pixels("exif", 16, 16))


class TestSize:
    def test_it_covers_and_cuts_the_middle(self) -> None:
        image = np.zeros((10, 30, 3), np.uint8)
        image[:, 10:20] = 200
        assert (decode(encoded(image), (10, 10, 3)) == 200).all()

    @pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1, 1), (33, 31)])
    def test_any_shape_comes_out_as_declared(self, size: tuple[int, int]) -> None:
        assert decode(encoded(Image.new("RGB", size)), (32, 32, 3)).shape == (32, 32, 3)

    def test_a_large_jpeg_is_decoded_small(self) -> None:
        """The scaled decoding must show the same picture as the whole one."""
        y, x = np.mgrid[:600, :800]
        smooth = np.dstack([x * 255 / 800, y * 255 / 600, (x + y) * 255 / 1400]).astype(np.uint8)
        data = encoded(smooth, "jpeg", quality=95)
        small = decode(data, (32, 32, 3)).astype(int)
        whole = np.asarray(Image.fromarray(decode(data)[:, 100:700]).resize((32, 32), Image.Resampling.BILINEAR), int)
        assert np.abs(small - whole).max() <= 3


class TestDamage:
    @pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp"])
    def test_a_cut_file_is_truncated(self, kind: str) -> None:
        data = encoded(pixels("cut", 64, 64), kind)
        with pytest.raises(PictureError) as error:
            decode(data[: len(data) // 2], name=f"cut.{kind}")
        assert error.value.kind == "truncated"
        assert f"cut.{kind}" in str(error.value)

    def test_an_empty_file(self) -> None:
        with pytest.raises(PictureError) as error:
            decode(b"")
        assert error.value.kind == "zero-byte"

    def test_a_flipped_byte_of_a_png_is_found_by_its_checksum(self) -> None:
        data = bytearray(encoded(pixels("flip", 32, 32)))
        data[len(data) // 2] ^= 1
        with pytest.raises(PictureError) as error:
            decode(bytes(data), strict=True)
        assert error.value.kind == "corrupt"


def mutated(number: int) -> bytes:
    """A picture file with bytes flipped, cut out, doubled, or its header forged."""
    draw = rng("mutation", number)
    kind = ("png", "jpeg", "webp", "bmp", "ppm")[number % 5]
    mode = ("RGB", "L", "RGBA", "P", "1", "CMYK")[int(draw.integers(6))]
    if (kind, mode) in (("png", "CMYK"), ("webp", "CMYK"), ("bmp", "CMYK"), ("ppm", "CMYK"), ("ppm", "P")):
        mode = "RGB"
    if kind == "jpeg" and mode in ("RGBA", "P", "1"):
        mode = "L"
    data = bytearray(encoded(Image.fromarray(pixels(number % 50, 24, 24)).convert(mode), kind))
    for _ in range(int(draw.integers(1, 6))):
        at = int(draw.integers(len(data))) if draw.random() < 0.5 else int(draw.integers(min(64, len(data))))
        match int(draw.integers(5)):
            case 0:
                data[at] ^= 1 << int(draw.integers(8))
            case 1:
                data[at : at + 4] = draw.bytes(4)
            case 2:
                del data[at : at + int(draw.integers(1, 40))]
            case 3:
                data[at:at] = data[at : at + 30]
            case 4:
                data[at : at + 4] = b"\xff\xff\xff\xff"
        data = data or bytearray(b"x")
    return bytes(data)


def survives(numbers: range) -> int:
    refused = 0
    for number in numbers:
        start = time.perf_counter()
        try:
            assert decode(mutated(number), (32, 32, 3), strict=number % 2 == 0).shape == (32, 32, 3)
        except PictureError:
            refused += 1
        assert time.perf_counter() - start < 5, number
    return refused


def test_mutated_files_meet_our_own_errors_only() -> None:
    assert survives(range(500)) > 200


@pytest.mark.faults
def test_ten_thousand_mutated_files() -> None:
    """In a process of its own, so that its memory can be read off at the end."""
    code = """
        import resource, warnings
        from tests.test_data_decode import survives
        warnings.simplefilter("ignore")
        survives(range(10))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(survives(range(10_000)), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    refused, grown = map(int, run(code).split())
    assert refused > 4000
    assert grown < 256  # MB


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bombs() -> dict[str, bytes]:
    """Small files that claim, or unfold to, far too much."""
    side = 65_000
    webp = encoded(pixels("bomb"), "webp", lossless=True)
    forged = bytearray(webp)
    forged[21:25] = ((16_383 - 1) | (16_383 - 1) << 14).to_bytes(4, "little")
    jpeg = bytearray(encoded(pixels("bomb"), "jpeg"))
    at = jpeg.find(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", side, side)
    bmp = bytearray(encoded(pixels("bomb"), "bmp"))
    bmp[18:26] = struct.pack("<ii", side, side)
    extended = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + (2**24 - 1).to_bytes(3, "little") * 2
    frames = [Image.new("L", (500, 500), i) for i in range(100)]
    text = b"tEXt" + b"k\0" + b"x" * 10_000_000
    ztxt = b"k\0\0" + zlib.compress(bytes(200_000_000), 9)
    note = struct.pack(">I", len(ztxt)) + b"zTXt" + ztxt + struct.pack(">I", zlib.crc32(b"zTXt" + ztxt))
    small = _png(4, 4, 8, 0, bytes(20))
    return {
        "png of 65k x 65k": _png(side, side, 8, 2, bytes(1000)),
        "png of 2^31": _png(2**31 - 1, 2**31 - 1, 1, 0, b""),
        "png just over the cap": _png(10_000, MAX_PIXELS // 10_000 + 1, 8, 0, bytes(1000)),
        "webp lossless": bytes(forged),
        "webp extended": b"RIFF" + struct.pack("<I", len(extended) + 4) + b"WEBP" + extended,
        "jpeg": bytes(jpeg),
        "bmp": bytes(bmp),
        "ppm": b"P6 65000 65000 255\n" + bytes(100),
        "plain ppm": b"P3 65000 65000 255\n1 2 3",
        "gif of many frames": encoded(frames[0], "gif", save_all=True, append_images=frames[1:]),
        "png of many frames": encoded(frames[0], "png", save_all=True, append_images=frames[1:]),
        "webp of many frames": encoded(frames[0], "webp", save_all=True, append_images=frames[1:], lossless=True),
        "png with a text bomb": small[:33] + note + small[33:],
        "png whose pixels unfold too far": _png(4, 4, 8, 0, bytes(200_000_000)),
        "bytes after the text": small[:33] + struct.pack(">I", 2**31 - 1) + text[:100],
    }


def test_bombs_are_refused_in_time_and_memory(tmp_path: Path) -> None:
    """In a process that did not make them, so that its memory tells the truth."""
    for name, data in bombs().items():
        (tmp_path / name).write_bytes(data)
    code = f"""
        import pathlib, resource, time
        from randpath.data.decode import PictureError, decode, read
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):
            start = time.perf_counter()
            try:
                verdict = decode(read(path), (32, 32, 3)).shape
            except PictureError as error:
                verdict = error.kind
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
            print(path.name, verdict, round(time.perf_counter() - start, 2), grown, sep="|")
    """
    lines = [line.split("|") for line in run(code).splitlines()]
    assert len(lines) == 15
    for name, verdict, seconds, grown in lines:
        # Pillow stops unfolding when the picture is full; of a GIF the first frame is meant.
        if name not in ("png whose pixels unfold too far", "gif of many frames"):
            assert verdict in ("too large", "animated", "not a picture", "corrupt", "truncated"), name
        assert float(seconds) < 1, name
        assert int(grown) < 256, name


class TestArraysFromOutside:
    def test_bytes_are_taken(self) -> None:
        x = np.stack([pixels(i) for i in range(3)])
        assert check_images(x) is x
        assert check_images(x[..., 0]).shape == (3, 8, 8, 1)

    @pytest.mark.parametrize(
        ("x", "why"),
        [
            (np.full((2, 4, 4, 3), 200.0), r"they look like 0..255: np.round\(X\).astype\(np.uint8\)"),
            (np.full((2, 4, 4), 0.5, np.float32), r"got float32; convert them: np.round\(X \* 255\)"),
            (np.array([[[0.1]], [[np.nan]]]), "image 1 holds NaN"),
            (np.array([[[0.1]], [[np.inf]]]), "image 1 holds NaN or infinity"),
            (np.array([[[0.1]], [[-0.5]]]), "image 1 has values below 0"),
            (np.zeros((2, 3, 32, 32), np.uint8), "channels come last"),
            (np.zeros((2, 32, 32, 4), np.uint8), "1 or 3 channels"),
            (np.zeros((2, 32, 32, 3), np.int64), "got int64"),
            (np.zeros((2, 32), np.uint8), r"got \(2, 32\)"),
        ],
    )
    def test_guesses_are_refused(self, x: np.ndarray, why: str) -> None:
        with pytest.raises(DataError, match=why):
            check_images(x)


def test_sniffing() -> None:
    for kind in ("png", "jpeg", "webp", "bmp", "ppm"):
        assert sniff(encoded(RGB, kind)) == kind.upper()


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK"])
@pytest.mark.parametrize("size", [(8, 8), (20, 31), (70, 40), (300, 200)])
@pytest.mark.parametrize("shape", [(8, 8, 3), (16, 12, 1)])
def test_both_at_once_are_the_same_as_one_by_one(mode, size, shape):
    from randpath.data.decode import decode_both

    image = Image.fromarray(pixels("both", *size)).convert(mode)
    data = encoded(image, "jpeg" if mode in ("RGB", "L", "CMYK") else "png")
    whole, small = decode_both(data, shape)
    np.testing.assert_array_equal(whole, decode(data, strict=True))
    np.testing.assert_array_equal(small, decode(data, shape))


def test_what_telephones_write_is_read_where_the_plugin_is():
    pillow_heif = pytest.importorskip("pillow_heif", reason="pip install pillow-heif")
    pillow_heif.register_heif_opener()
    grey = np.full((16, 24, 3), 128, np.uint8)
    found = decode(encoded(grey, "heif", quality=90), (16, 16, 3))
    assert found.shape == (16, 16, 3)
    assert abs(found.astype(int) - 128).max() <= 4
