"""The commands on a folder of PNG files made from CIFAR-100: learn 10 classes, then 5, then 1; ask; undo; export.

randpath data cifar100
python examples/commands.py --images 20                                     a minute
python examples/commands.py --record docs/results/examples/commands.json             all pictures
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from randpath.bench.provenance import commit, environment
from randpath.data import named


def randpath(*arguments: object) -> dict[str, object]:
    """Run a command, show it, and return its JSON."""
    print("$ randpath", *(Path(str(a)).name if "/" in str(a) else a for a in arguments), flush=True)
    command = [sys.executable, "-m", "randpath", *map(str, arguments), "--json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert isinstance(answer, dict)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=500, help="training pictures of each class")
    parser.add_argument("--record", type=Path, default=None, help="write what happened to this JSON file")
    options = parser.parse_args()
    source = named.load("cifar100")
    steps = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)

        def folder(name: str, classes: range, split: str, count: int | None = None) -> Path:
            part = source.train if split == "train" else source.test
            for c in classes:
                (place / name / source.class_names[c]).mkdir(parents=True)
                for i in np.flatnonzero(part.labels == c)[:count]:
                    Image.fromarray(part.items[i]).save(place / name / source.class_names[c] / f"{i}.png")
            return place / name

        model, known = place / "model", 0
        for number in (10, 5, 1):
            classes, known = range(known, known + number), known + number
            began = time.monotonic()
            learned = randpath("learn", model, folder(f"learn-{known}", classes, "train", options.images))
            seconds = round(time.monotonic() - began, 1)
            tested = randpath("evaluate", model, folder(f"test-{known}", range(known), "test"))
            tested.pop("confusion")
            steps.append({"learn": learned, "evaluate": tested, "seconds": seconds})
            print(f"  {known} classes: {tested['accuracy']:.1%} of the test pictures, {seconds} s", flush=True)
        picture = next((place / "test-16").rglob("*.png"))
        steps.append({"predict": randpath("predict", model, picture)["predictions"][0]["label"]})  # type: ignore[index]
        steps.append({"export": randpath("export", model, place / "model.onnx")["megabytes"]})
        steps.append({"rollback": randpath("rollback", model)})
    print(json.dumps(steps[-3:]))
    if options.record:
        command = f"python examples/commands.py --images {options.images}"
        record = {"command": command, "seed": 0, "class_order": list(source.class_names[:16]), "steps": steps}
        record |= {"versions": environment(), "commit": commit()}
        options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
