# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Threads wait asleep, not spinning: tests and tools run side by side (docs/reliability.md).
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-faults test-states tables bench-speed lint

setup: .venv/ready
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx,serve]'
	touch $@

demo: setup
	rm -rf runs/demo
	$(BIN)/randpath bench digits_5 --out runs/demo
	$(BIN)/randpath report runs/demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 -m "not faults and not states"

test-faults: setup
	$(BIN)/python -m pytest -n 2 -m faults tests

test-states: setup
	$(BIN)/python -m pytest -n 2 -m states tests

tables: setup
	$(BIN)/python -m randpath.report.renew
	$(BIN)/python -m randpath.paper.show

bench-speed: setup
	for name in augment check checkpoint files fisher learn threads; do $(BIN)/python benchmarks/$$name.py || exit 1; done
