"""How long `randpath check` takes for 50,000 small pictures (made here, in a temporary folder): a minute at most.

python benchmarks/check.py [--number 50000] [--folder FOLDER]      exit 1 if it took longer
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.data.check import check
from randpath.keyed import rng


def make(root: Path, number: int) -> None:
    """PNG files of 32 x 32 in a hundred classes; smooth, so that they are as long as photographs of that size."""
    coarse = rng("benchmark", "check").integers(0, 256, (number, 8, 8, 3), np.uint8)
    for i, pixels in enumerate(coarse):
        folder = root / f"class {i % 100:02}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).resize((32, 32), Image.Resampling.BICUBIC).save(folder / f"{i}.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, help="an existing folder instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if given.folder is None:
            make(folder, given.number)
        counted = [0]

        def tick(done: int, total: int) -> None:
            counted[0] = total

        start = time.perf_counter()
        faults = check(folder, tick)
        seconds = time.perf_counter() - start
    number = counted[0]
    print(
        f"{number:,} pictures, {len(faults)} faults and cautions, {seconds:.1f} s, {seconds / number * 1e6:.0f} us each"
    )
    return 0 if seconds <= 60 * number / 50_000 else 1


if __name__ == "__main__":
    sys.exit(main())
