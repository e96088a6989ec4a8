"""What a run tells: a line for each task, and the final table."""

from typing import Any

from rich.table import Table


def task_told(line: dict[str, Any], num_tasks: int) -> str:
    """A finished task, and what there is to note of it."""
    told = f"task {line['k']} of {num_tasks}: accuracy on {len(line['classes'])} classes {line['accuracy']:.2%}, "
    return "\n  note: ".join([told + f"{line['seconds']:.1f} s", *line["notes"]])


def results_table(lines: list[dict[str, Any]]) -> Table:
    """Task, classes, A_k, forgetting, mu_sat, switched?, trained/total parameters, seconds."""
    table = Table(box=None, header_style="bold")
    for name in ("task", "classes", "accuracy", "forgetting", "mu_sat", "switched", "trained / total", "seconds"):
        table.add_column(name, justify="left" if name in ("classes", "switched") else "right")
    seen = 0
    for line in lines:
        new, seen = line["classes"][seen:], len(line["classes"])
        table.add_row(
            str(line["k"]),
            ", ".join(new) if len(", ".join(new)) <= 12 else f"{len(new)} new",
            f"{line['accuracy']:.2%}",
            _or_dash(line["forgetting"], "{:.2%}"),
            _or_dash(line["saturation"], "{:+.2f}"),
            {True: "yes", False: "no", None: "-"}[line["switched"]],
            f"{_short(line['parameters_trained'])} / {_short(line['parameters'])}",
            f"{line['seconds']:.1f}",
        )
    return table


def _short(n: int) -> str:
    """A count in at most five characters, so that the table fits in 80 columns.

    >>> _short(950), _short(53602), _short(72_260_000)
    ('950', '53.6k', '72.3M')
    """
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
