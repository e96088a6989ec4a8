"""Type a command as the state machine typed it: a tiny network, and an end at a file operation or step.

python tests/faults/typed.py --pictures FOLDER          the pictures that it learns from
python tests/faults/typed.py --flip FILE BYTE           one bit of a file
python tests/faults/typed.py learn FOLDER/model FOLDER/ab --epochs 2
python tests/faults/typed.py --killed-at 9 rollback FOLDER/model
python tests/faults/typed.py --stopped-at 5 learn FOLDER/model FOLDER/ab --epochs 2
"""

import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import pytest  # noqa: E402
import torch  # noqa: E402
from states import in_this_process  # noqa: E402
from tests.commands import interrupt  # noqa: E402
from tests.school import pictures, tiny  # noqa: E402

FOLDERS = {"ab": 4, "c": 4, "de": 6, "ca": 4}  # of one-letter classes; of five pictures or more one is held out


def make_pictures(place: Path) -> None:
    for name, count in FOLDERS.items():
        pictures(place / name, *name, count=count)


def flip(file: Path, byte: int) -> None:
    data = bytearray(file.read_bytes())
    data[byte % len(data)] ^= 4
    file.write_bytes(data)


def main(typed: list[str]) -> int:
    if typed[0] == "--pictures":
        make_pictures(Path(typed[1]))
        return 0
    if typed[0] == "--flip":
        flip(Path(typed[1]), int(typed[2]))
        return 0
    torch.set_num_threads(1)
    killed_at = 0
    with tiny(), pytest.MonkeyPatch.context() as patch:
        if typed[0] == "--killed-at":
            killed_at, typed = int(typed[1]), typed[2:]
        elif typed[0] == "--stopped-at":
            interrupt(patch, int(typed[1]), signal.SIGINT)
            typed = typed[2:]
        code, out, err = in_this_process(*typed, killed_at=killed_at)
    print(out, end="")
    print(err, end="", file=sys.stderr)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
