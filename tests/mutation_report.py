"""What `python -m tests.mutate` has found, as docs/results/examples/mutations.json, from which a page is made.

    python -m tests.mutation_report ~/randpath-runs/mutations.jsonl COMMIT

A mutation that survived is listed with its reason, written below by hand; without one the report is refused. A later
line of the same mutation (with more tests) counts instead of an earlier one; how many survived at first is told too.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.listed_mutations import LISTED

FILE = Path(__file__).parents[1] / "docs" / "results" / "examples" / "mutations.json"
SURVIVED = ("survived", "untested")
COMMAND = "python -m tests.mutate --number {} --seed {}"

# file:line before -> after, as at the commit that was mutated; why no test can or need notice
PARTS = "into how many parts a sum is cut"
REASONS = {
    "learning/anchor.py:94 1 -> 2": PARTS,
    "learning/memory.py:80 sum(min(n, level + 1) for n in available) <= budget -> "
    "sum((min(n, level + 1) for n in available)) < budget": "the same: one level lower, and what is left, one each, "
    "makes up for it",
    "learning/method.py:44 0 -> 1": "every caller names the seed",
    "learning/projection.py:52 1e-300 -> 1.0": "the same minimum, in more steps; where it takes very "
    "many, a test with small numbers notices",
    "learning/train.py:210 64 -> 65": "how often the numbers of a GPU are looked at; no result depends on it",
    "learning/whitening.py:31 1 -> 2": PARTS,
    "learning/whitening.py:31 2 -> 3": PARTS,
    "learning/memory.py:86 0 -> 1": "the same: of no classes there are no shares, whatever the level",
    "learning/whitening.py:31 17 -> 18": PARTS,
    "learning/saturation.py:45 -n -> n": "the same: the first and the last n of all tensors are those of both sets; "
    "what lies between is computed for nothing",
    "methods/der.py:109 task.k > 1 -> task.k >= 1": "the same: before task 2 the memory is empty (the condition was "
    "dead code and is gone)",
    "methods/ranpac.py:42 0.0 -> 1.0": "the same: without held-out items all ridges score alike, and the first "
    "is taken",
    "learning/importance.py:41 128 -> 129": PARTS,
    "methods/logistic.py:73 2 -> 3": "the same: 3 // 2 = 3 // 3, of three decays",
    "network/path.py:13 True -> False": "`slots` saves memory alone",
    "network/stem.py:33 2 -> 3": "the same: 3 // 2 = 3 // 3",
}


def report(lines: list[dict[str, Any]], commit: str) -> dict[str, Any]:
    """Counts and survivors of one sample."""
    last = {(line["seed"], line["index"]): line for line in lines}
    first = {(line["seed"], line["index"]): line for line in reversed(lines)}
    (seed,) = {seed for seed, _ in last}
    (of,) = {line["of"] for line in last.values()}
    survivors = []
    for line in sorted(last.values(), key=lambda line: (line["file"], line["line"])):
        if line["result"] in SURVIVED:
            place = f"{line['file'].removeprefix('src/randpath/')}:{line['line']}"
            change = f"{line['before']} -> {line['after'][1:-1]}"
            survivors.append({"place": place, "change": change, "reason": REASONS[f"{place} {change}"]})
    tried = len(last)
    found = {
        "command": COMMAND.format(tried, seed), "commit": commit, "seed": seed, "places": of, "tried": tried,
        "at_first": sum(line["result"] in SURVIVED for line in first.values()),
        "noticed": tried - len(survivors), "survivors": survivors, "listed": len(LISTED), "listed_survived": 0,
    }  # fmt: skip
    return {**found, "tables": tables(found)}


def tables(found: dict[str, Any]) -> list[dict[str, Any]]:
    left = len(found["survivors"])
    counts = [
        ["`python -m tests.listed_mutations`: slips that the tests once let pass", str(found["listed"]),
         str(found["listed"]), str(found["listed_survived"])],
        [f"`{found['command']}`, of {found['places']:,} places at commit {found['commit']}", str(found["tried"]),
         f"{found['at_first']} ({100 * found['at_first'] / found['tried']:.1f} %)",
         f"{left} ({100 * left / found['tried']:.1f} %)"],
    ]  # fmt: skip
    rows = [[f"`{s['place']}`", f"`{s['change']}`".replace("|", "\\|"), s["reason"]] for s in found["survivors"]]
    return [
        {"header": ["mutations", "tried", "survived at first", "survive"], "rows": counts},
        {"header": ["survived at", "change", "why no test notices"], "rows": rows},
    ]


def main() -> None:
    place, commit = Path(sys.argv[1]).expanduser(), sys.argv[2]
    found = report([json.loads(line) for line in place.read_text().splitlines()], commit)
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['tried']} tried, {len(found['survivors'])} survived: {FILE}")


if __name__ == "__main__":
    main()
