# serve: run the service.  test: every test.  check: format, lint, types.  packages: train the bundled models.
# bench: how fast, side by side.  load: users of every task against a running service.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RECIPES := translate sentiment stories
RUNS ?= runs

.PHONY: serve test check packages bench load

serve: $(VENV)/.serve
	$(BIN)/python -m service

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Resumes what was interrupted: make packages DATA=folder/of/the/data/sets
packages: $(RECIPES:%=package-%)

package-%: $(VENV)/.dev
	$(BIN)/python -m model train $* --data $(DATA) --out $(RUNS)/$*
	$(BIN)/python -m model export $* --run $(RUNS)/$* --out model/packages/$*
	$(BIN)/python -m model evaluate model/packages/$* --data $(DATA)

bench: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_http

load: $(VENV)/.dev
	$(BIN)/locust -f loadtests/locustfile.py --headless --users 12 --spawn-rate 4 --run-time 1m --host http://127.0.0.1:8000

$(VENV)/.serve: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.serve
