"""Run directories made without training, for the tests of pages: any number of tasks, classes and names."""

from pathlib import Path
from typing import Any

import numpy as np

from randpath.bench.experiment import Experiment
from randpath.storage import checkpoint


def made_run(
    directory: Path,
    tasks: int = 3,
    names: list[str] | None = None,
    learned: int | None = None,
    seed: int = 0,
    epochs: int = 3,
    layers: int = 4,
    **changes: Any,
) -> Path:
    """As `bench` leaves it after `learned` tasks; `changes` go into experiment.json or into its experiment."""
    names = names or [f"class {c}" for c in range(2 * tasks)]
    each, rng = len(names) // tasks, np.random.default_rng(seed)
    experiment = Experiment("digits", tasks, recipe="made", seed=seed, options={"N": 4}).to_json()
    document = {
        "experiment": {**experiment, **{k: v for k, v in changes.items() if k in experiment}},
        "environment": {"machine": "a machine", "torch": "2"},
        "data_fingerprint": "0" * 64,
        "class_order": list(range(len(names))),
        "class_names": names,
        "command": "randpath bench made",
        "commits": ["abc"],
        **{k: v for k, v in changes.items() if k not in experiment},
    }
    checkpoint.write_document(directory / "experiment.json", document)
    rows: dict[str, list[dict[str, Any]]] = {"metrics": [], "epochs": [], "times": []}
    path = None
    for k in range(1, (tasks if learned is None else learned) + 1):
        if path is None or rows["metrics"][-1]["switched"]:
            chosen = rng.integers(8, size=layers)
            path = [[int(m == c) for m in range(8)] for c in chosen]
        C, by_task = each * k, rng.uniform(0.5, 1, k).tolist()
        rows["metrics"].append(
            {
                "k": k, "classes": names[:C], "accuracy": float(np.mean(by_task)), "accuracy_by_task": by_task,
                "forgetting": None if k == 1 else 0.1, "saturation": float(rng.normal()), "switched": k % 2 == 0,
                "path": path, "parameters_trained": 1000, "parameters": 1000 * k, "megabytes": 1.5, "flops": 10**6 * k,
            }
        )  # fmt: skip
        for candidate in range(4 if k % 2 else 1):
            for epoch in range(1, epochs + 1):
                validation = float(rng.uniform(0.5, 1))
                rows["epochs"].append(
                    {
                        "k": k, "candidate": candidate, "epoch": epoch, "lr": 1e-3, "loss_ce": 1 / epoch, "visits": 9,
                        "loss_dist": None if k == 1 else 0.1, "phi": None if k == 1 else 2.5, "validation": validation,
                    }
                )  # fmt: skip
        rows["times"].append({"k": k, "seconds": 2.0, "whole": True, "cpu_seconds": 1.5, "visits": 99})
        labels = np.repeat(np.arange(C), 20)
        predicted = np.where(rng.random(len(labels)) < 0.7, labels, rng.integers(C, size=len(labels)))
        confidence = np.ones(len(labels), np.float32)
        tensors = {"label": labels, "predicted": predicted, "confidence": confidence}
        checkpoint.write_tensors(directory / "predictions" / f"{k}.safetensors", tensors)
    for name, lines in rows.items():
        checkpoint.write_lines(directory / f"{name}.jsonl", lines)
    if rows["metrics"]:
        C = len(rows["metrics"][-1]["classes"])
        items = rng.integers(0, 255, (C * 10, 32, 32, 3)).astype(np.uint8)
        memory = {"items": items, "labels": np.repeat(np.arange(C), 10)}
        checkpoint.save(directory / "checkpoints", "0001", {"memory_train": memory}, {"state": {}})
    return directory
