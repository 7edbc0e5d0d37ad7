# serve: run the service.  test: every test.  check: format, lint, types.  packages: train the bundled models.
# bench, bench-engine: how fast, side by side, over HTTP and of the engine.  load: users of every task against a running service.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS ?= runs
TRAIN = $(BIN)/python -m model train --data $(DATA)

.PHONY: serve test check packages bench bench-engine load

serve: $(VENV)/.serve
	$(BIN)/python -m service

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Resumes what was interrupted: make packages DATA=folder/of/the/data/sets
packages: package-sentiment package-stories package-translate

package-sentiment: $(VENV)/.dev
	$(TRAIN) sentiment --out $(RUNS)/sentiment
	$(BIN)/python -m model export sentiment --run $(RUNS)/sentiment --out model/packages/sentiment
	$(BIN)/python -m model evaluate model/packages/sentiment --data $(DATA)

package-stories: $(VENV)/.dev
	$(TRAIN) stories --out $(RUNS)/stories
	$(TRAIN) stories-simple --start-from $(RUNS)/stories --out $(RUNS)/stories-simple
	$(BIN)/python -m model export stories-simple --run $(RUNS)/stories-simple --out model/packages/stories
	$(BIN)/python -m model export stories-simple --run $(RUNS)/stories-simple --out $(RUNS)/stories-float32 --precision float32
	$(BIN)/python -m model evaluate model/packages/stories --reference $(RUNS)/stories-float32 --data $(DATA)

package-translate: $(VENV)/.dev
	$(TRAIN) translate --out $(RUNS)/translate
	$(TRAIN) translate-names --start-from $(RUNS)/translate --out $(RUNS)/translate-names
	$(TRAIN) translate-swedish --start-from $(RUNS)/translate-names --out $(RUNS)/translate-swedish
	$(BIN)/python -m model export translate-swedish --run $(RUNS)/translate-swedish --out model/packages/translate
	$(BIN)/python -m model evaluate model/packages/translate --data $(DATA)

bench: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_http

bench-engine: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_engine

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
