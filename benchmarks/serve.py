"""What `serve` answers with eight clients, against a loop of `predict` calls: the ratio of pictures per second.

    python benchmarks/serve.py [--questions 200] [--predicts 3]

The model knows two classes of small pictures; a `predict` call loads Python, torch and the model, `serve` has them.
Where others use the machine, the clock says little: the ratio of CPU seconds per picture is told too (Linux).
"""

import argparse
import concurrent.futures
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image

CLIENTS = 8
RANDPATH = (sys.executable, "-m", "randpath")


def pictures(folder: Path) -> list[Path]:
    draw = np.random.default_rng(0)
    for c in range(2):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(10):
            pixels = draw.integers(100 * c, 100 * c + 100, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class{c}" / f"{i}.png")
    return sorted(folder.rglob("*.png"))


def served(model: Path, files: list[Path], questions: int) -> tuple[float, float]:
    """Seconds and CPU seconds per picture, the first eight not counted."""
    process = subprocess.Popen([*RANDPATH, "serve", str(model), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None

        def ask(i: int) -> None:
            request = urllib.request.Request(f"{address[0]}predict", files[i % len(files)].read_bytes())
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(ask, range(CLIENTS)))
            began, used = time.monotonic(), cpu(process.pid)
            list(pool.map(ask, range(questions)))
        return (time.monotonic() - began) / questions, (cpu(process.pid) - used) / questions
    finally:
        process.terminate()
        process.wait()


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def typed(model: Path, files: list[Path], predicts: int) -> tuple[float, float]:
    """Seconds and CPU seconds per call."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for i in range(predicts):
        subprocess.run([*RANDPATH, "predict", str(model), str(files[i])], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (time.monotonic() - began) / predicts, used / predicts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--predicts", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files, model = pictures(Path(folder) / "pictures"), Path(folder) / "model"
        learn = [*RANDPATH, "learn", str(model), str(Path(folder) / "pictures"), "--epochs", "1", "--start", "none"]
        subprocess.run(learn, check=True, stdout=subprocess.DEVNULL)
        fast, slow = served(model, files, options.questions), typed(model, files, options.predicts)
    for what, one, other in zip(("seconds", "CPU seconds"), fast, slow):
        print(
            f"{what} per picture: serve with {CLIENTS} clients {one:.4f}, predict {other:.2f}: {other / one:.0f} times"
        )


if __name__ == "__main__":
    main()
