"""Decode rules: how a picture file becomes a uint8 array of a declared shape. docs/data.md says the same in prose."""

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from PIL import TiffImagePlugin as TiffImagePlugin  # by name: Pillow would import all forty plugins to find them
from PIL import WebPImagePlugin as WebPImagePlugin

from randpath.errors import DataError as DataError

MAX_PIXELS = 50_000_000
MAX_BYTES = 160_000_000  # 50 megapixels uncompressed, and some
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF", "GIF")  # and HEIF, where pillow-heif is installed
FIRST_FRAME = ("MPO", "TIFF", "GIF", "HEIF")  # of several pictures in one file the first is meant
EXTENSIONS = {
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "JPEG"),
    **dict.fromkeys((".ppm", ".pgm", ".pbm", ".pnm"), "PPM"),
    ".png": "PNG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    ".gif": "GIF",
    **dict.fromkeys((".heic", ".heif"), "HEIF"),
}
_MAGIC = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"BM": "BMP",
    **{b"P%d" % i: "PPM" for i in range(1, 7)},
    b"GIF8": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"%PDF": "PDF",
    b"<svg": "SVG",
    b"<?xml": "SVG",
}
_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class PictureError(DataError):
    """A picture that cannot be decoded by the rules; `kind` is a word of the data check."""

    def __init__(self, kind: str, what: str, *, where: str = ""):
        super().__init__(f"{where}: {what}" if where else what, where=where)
        self.kind, self.fault = kind, what


def sniff(data: bytes) -> str | None:
    """The format that the first bytes tell, whatever the file is called.

    >>> sniff(b"BM...."), sniff(b"hello")
    ('BMP', None)
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        return "HEIF" if data[8:12] in (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1") else "AVIF or a film"
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)


def read(path: Path) -> bytes:
    """The bytes of a picture file, if it may be read and is not too long."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PictureError("unreadable", error.strerror or str(error), where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise PictureError("too large", f"more than {MAX_BYTES:,} bytes", where=str(path))
    return data


def decode(data: bytes, shape: tuple[int, ...] | None = None, *, name: str = "", strict: bool = False) -> np.ndarray:
    """The picture as uint8 (h, w, c), c = 1 or 3, scaled to cover `shape` and cut about its middle; None: as is, RGB.

    `strict` also checks the checksums that a PNG carries, which plain decoding passes over.

    >>> file = BytesIO()
    >>> Image.new("1", (4, 2), 1).save(file, "png")
    >>> decode(file.getvalue()).shape, decode(file.getvalue(), (2, 2, 1)).ravel().tolist()
    ((2, 4, 3), [255, 255, 255, 255])
    """
    image = _open(data, name)
    with _fault_named(data, name):
        plain = _upright(image, data, shape, name, strict)
        return _pixels(plain if shape is None else cover(plain, shape[0], shape[1]))


def decode_both(data: bytes, shape: tuple[int, ...], *, name: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The whole picture, strictly checked, and the same at `shape`, as `decode` gives each; decoded once if it can."""
    image = _open(data, name)
    by_scale = image.format in ("JPEG", "MPO") and min(image.size) // (2 * max(shape[:2])) >= 2  # see _upright
    with _fault_named(data, name):
        plain = _upright(image, data, None, name, strict=True)
        small = _pixels(cover(plain, shape[0], shape[1])) if shape[2] == 3 and not by_scale else None
    return _pixels(plain), decode(data, shape, name=name) if small is None else small


def _upright(image: Image.Image, data: bytes, shape: tuple[int, ...] | None, name: str, strict: bool) -> Image.Image:
    """The picture, decoded, as RGB or L by rule and the right way up."""
    if strict and image.format == "PNG":
        Image.OPEN["PNG"][0](BytesIO(data), name).verify()
    if shape is not None:  # a JPEG is decoded at the smallest scale that is still twice what is asked for
        image.draft(None, (2 * max(shape[:2]), 2 * max(shape[:2])))
    image.load()
    turn = _TURN.get(_orientation(image.info.get("exif", b"")))
    plain = _plain(image, "L" if shape is not None and shape[2] == 1 else "RGB")
    return plain if turn is None else plain.transpose(turn)


def _pixels(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


@contextmanager
def _fault_named(data: bytes, name: str) -> Iterator[None]:
    try:
        yield
    except PictureError as error:
        raise PictureError(error.kind, error.fault, where=name) from error
    except Exception as error:  # Pillow's plugins raise a dozen kinds, from struct.error to SyntaxError
        raise PictureError(_how_broken(data, error), f"cannot be decoded ({error})", where=name) from error


def _open(data: bytes, name: str) -> Image.Image:
    """The picture's header, once its format and size are allowed; nothing is decoded yet."""
    if not data:
        raise PictureError("zero-byte", "the file is empty (0 bytes)", where=name)
    kind = sniff(data)
    if kind not in FORMATS and not (kind == "HEIF" and _has_heif()):
        allowed = f"allowed: {', '.join(FORMATS)}" if kind != "HEIF" else "to read them: pip install pillow-heif"
        raise PictureError("not a picture", f"{kind or 'unknown'} contents; {allowed}", where=name)
    if kind == "WEBP":
        _cap(*webp_size(data), name)  # its plugin allocates the canvas before it tells the size
    Image.preinit()
    try:
        # As Image.open does, without its warning at 89 megapixels: ours is a refusal at 50.
        image: Image.Image = Image.OPEN[kind][0](BytesIO(data), name)
    except Exception as error:
        raise PictureError(_how_broken(data, error), f"its header cannot be read ({error})", where=name) from error
    _cap(image.width, image.height, name)
    if image.format not in FIRST_FRAME and getattr(image, "is_animated", False):
        raise PictureError("animated", "an animation, not one picture", where=name)
    return image


@functools.cache
def _has_heif() -> bool:
    """Whether Pillow can be taught to read what telephones write."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def _cap(width: int, height: int, name: str) -> None:
    if width * height > MAX_PIXELS:
        raise PictureError("too large", f"{width} x {height} is over 50 megapixels", where=name)


def webp_size(data: bytes) -> tuple[int, int]:
    kind, head = data[12:16], data[20:30].ljust(10, b"\0")
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """RGB or L by rule: transparency lies on white, 16 bits give their high byte, all else as Pillow converts."""
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if "transparency" in image.info or values.min() < 0 or values.max() > 65535:
            raise PictureError("odd mode", f"{image.mode} with transparency or beyond 16 bits")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    elif image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(image, mask=image.getchannel("A"))
        image = paper
    elif image.mode not in ("1", "L", "P", "RGB", "CMYK"):
        raise PictureError("odd mode", f"there is no rule for pictures of mode {image.mode}")
    return image.convert(mode)


def _orientation(exif: bytes) -> int:
    """EXIF tag 274 of the first directory; 1 where it is missing or unreadable, as browsers do.

    >>> _orientation(b"II*\\0" + struct.pack("<IHHHIHH", 8, 1, 274, 3, 1, 6, 0))
    6
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, start)
        for i in range(count):
            tag, kind, number, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * i)
            if (tag, kind, number) == (274, 3, 1):
                return int(value)
    except struct.error:
        pass
    return 1


def cover(image: Image.Image, h: int, w: int) -> Image.Image:
    """Scaled until it just covers h x w, then cut about the middle; a picture of that size keeps its pixels."""
    if image.size == (w, h):
        return image
    scale = min(image.width / w, image.height / h)
    left, top = max(0.0, (image.width - w * scale) / 2), max(0.0, (image.height - h * scale) / 2)
    box = (left, top, min(image.width, left + w * scale), min(image.height, top + h * scale))
    return image.resize((w, h), Image.Resampling.BILINEAR, box, reducing_gap=2.0)


def _how_broken(data: bytes, error: Exception) -> str:
    """ "truncated" if the end is missing, else "corrupt"."""
    kind = sniff(data)
    ended = {
        "PNG": b"IEND" in data[-64:],
        "JPEG": b"\xff\xd9" in data[-64:],
        "WEBP": len(data) >= int.from_bytes(data[4:8], "little") + 8,
        "BMP": len(data) >= int.from_bytes(data[2:6], "little"),
    }.get(kind or "", "truncated" not in str(error).lower())
    return "corrupt" if ended else "truncated"


def check_images(x: np.ndarray) -> np.ndarray:
    """Images handed over as an array, as uint8 (n, h, w, c); floats are refused, never rescaled by guess.

    >>> check_images(np.zeros((5, 8, 8), np.uint8)).shape
    (5, 8, 8, 1)
    """
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4:
        raise DataError(f"images must be (n, h, w) or (n, h, w, c), got {x.shape}")
    if x.shape[3] not in (1, 3):
        hint = "; channels come last: X.transpose(0, 2, 3, 1)" if x.shape[1] in (1, 3) else ""
        raise DataError(f"images must have 1 or 3 channels, got {x.shape}{hint}")
    if x.dtype == np.uint8:
        return x
    how = "np.round(X).astype(np.uint8)"
    if np.issubdtype(x.dtype, np.floating) and x.size:
        if (odd := ~np.isfinite(x).all(axis=(1, 2, 3))).any():
            raise DataError(f"image {int(np.flatnonzero(odd)[0])} holds NaN or infinity")
        if x.min() < 0:
            raise DataError(f"image {int(np.argmin(x.min(axis=(1, 2, 3))))} has values below 0; undo its normalisation")
        how = f"they look like 0..255: {how}" if x.max() > 1.5 else "np.round(X * 255).astype(np.uint8)"
    raise DataError(f"images must be uint8, got {x.dtype}; convert them: {how}")
