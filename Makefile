# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Threads wait asleep, not spinning: tests and tools run side by side (docs/reliability.md).
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo quick test test-faults test-states tables bench-speed lint

setup: .venv/ready
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx,serve,start]'
	touch $@

demo: setup
	rm -rf runs/demo runs/demo-finetune
	$(BIN)/randpath bench digits_5 --out runs/demo
	$(BIN)/randpath bench digits_5 --method finetune --out runs/demo-finetune > /dev/null
	$(BIN)/randpath curves runs/demo runs/demo-finetune
	$(BIN)/randpath report runs/demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What takes under a minute together: for every save. `make test` before every commit.
QUICK := tests/test_equations.py tests/test_commands_app.py tests/test_data_stream.py tests/test_data_augment.py \
  tests/test_house.py tests/test_learning_memory.py tests/test_recipes.py tests/test_report_tables.py \
  tests/test_storage_checkpoint.py
quick: lint
	$(BIN)/python -m pytest -q $(QUICK)

test: lint
	$(BIN)/python -m pytest -n 2 -m "not faults and not states"

test-faults: setup
	$(BIN)/python -m pytest -n 2 -m faults tests

test-states: setup
	$(BIN)/python -m pytest -n 2 -m states tests

tables: setup
	$(BIN)/python -m randpath.paper.renew

bench-speed: setup
	for name in augment check checkpoint files fisher learn mixed threads; do $(BIN)/python benchmarks/$$name.py || exit 1; done
