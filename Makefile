# serve: run the service.  test: the tests.  test-clients: with a client that needs an environment of its own.
# test-oldest: a few, with the oldest packages that pyproject.toml allows.
# parity: more tests, families of checkpoints against transformers.  fuzz: thousands of bodies made from /openapi.json.
# sanitize: the operators in C++ under AddressSanitizer and UndefinedBehaviorSanitizer.  check: format, lint, types.  packages: train the bundled models.
# bench, bench-engine: how fast, side by side, over HTTP and of the engine.  load: users who classify, embed, generate and translate, against a running service.
# sweep: which rate of requests a running service bears.
# hostile: polite users of all tasks beside hostile clients, on a service of its own.
# chaos: a cluster of its own, whose nodes come, go and die under load; as root, on Linux, with iproute2 and redis-server.
# manifests: what is made for deploy/, and its checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS ?= runs

.PHONY: serve test test-clients test-oldest parity fuzz sanitize check packages bench bench-engine load sweep hostile chaos manifests

serve: $(VENV)/.serve
	$(BIN)/python -m service

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

test-clients: $(VENV)/.dev .venv-clients/.lm-eval
	$(BIN)/python -m pytest -m own_environment tests/integration/service/clients

# Settings, the models file, routes, stores, commands. Versions are found by uv, and installed by pip from its indexes. What
# others have come to call deprecated is no fault of ours.
OLDEST := .venv-oldest
OLDEST_TESTS := $(addprefix tests/service/,test_settings.py test_models_file.py test_tracing.py api/test_routes.py) \
    $(addprefix tests/model/,storage commands/test_serving.py commands/test_fetching.py commands/test_examining.py)
test-oldest: $(OLDEST)/.made
	$(OLDEST)/bin/python -m pytest -o filterwarnings=default $(OLDEST_TESTS)

parity: $(VENV)/.dev
	$(BIN)/python -m pytest -m parity tests/model/checkpoints

fuzz: $(VENV)/.dev
	$(BIN)/python -m pytest -m fuzz -s tests/service/api/test_any_body.py

# Leaks are not looked for: Python and its packages have some of their own.
sanitize: $(VENV)/.dev
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so) $$(c++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -p no:xdist -p tests.sanitizers tests/service/engine/native tests/service/engine/test_drawing.py

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict docker-compose.yml .github deploy service/models.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --offline --quiet .github

# Trains all bundled packages from nothing and resumes what was interrupted: make packages DATA=folder/of/the/data/sets
DATA ?= $(error say where the data sets are: make packages DATA=folder)
packages: $(VENV)/.dev
	$(BIN)/python -m model packages --data $(DATA) --runs $(RUNS)
	$(BIN)/python -m service.samples model/packages/stories

bench: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_http

bench-engine: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_engine

# A mix of users for two minutes: make load USERS=300 ARRIVALS=open LOAD=spike; reports go to the folder load/
HOST ?= http://127.0.0.1:8000
USERS ?= 60
ARRIVALS ?= closed
LOAD ?= constant
load: $(VENV)/.load
	mkdir -p load
	$(BIN)/locust -f loadtests/locustfile.py --headless --only-summary --host $(HOST) --users $(USERS) --spawn-rate 100 \
	    --run-time 2m --arrivals $(ARRIVALS) --load $(LOAD) --html load/report.html --csv load/report

sweep: $(VENV)/.load
	$(BIN)/python -m loadtests.sweep --host $(HOST)

hostile: $(VENV)/.dev
	$(BIN)/python -m loadtests.hostile

chaos: $(VENV)/.dev
	$(BIN)/python -m loadtests.chaos

# Writes what is made from one source: Serve's configurations, the PrometheusRule, the dashboards, install-*.yaml, the Helm
# chart's files; then checks them. It needs kubectl or kustomize, and neither torch nor a cluster.
manifests: $(VENV)/.manifests
	$(BIN)/python -m deploy.generate $(if $(RUNBOOKS),--runbooks $(RUNBOOKS))
	$(BIN)/python -m deploy.checks

# Half an environment, as without Debian's python3-venv, has no pip, and is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Trifold needs Python 3.11 or newer; name one: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.manifests: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[manifests]'
	touch $@ $(VENV)/.serve

$(VENV)/.load: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[load]'
	touch $@ $(VENV)/.serve

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.serve $(VENV)/.manifests $(VENV)/.load

$(OLDEST)/.made: pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet uv
	$(OLDEST)/bin/uv pip compile --quiet --upgrade --resolution lowest-direct --extra train --extra otel --extra stores \
	    pyproject.toml --python $(OLDEST)/bin/python --output-file $(OLDEST)/versions.txt
	$(OLDEST)/bin/pip install --quiet --constraint $(OLDEST)/versions.txt --editable '.[train,otel,stores]' \
	    hypothesis httpx pytest pytest-asyncio pytest-xdist
	touch $@

.venv-clients/.lm-eval:
	test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	.venv-clients/bin/pip install --quiet 'lm-eval[api]>=0.4.13' transformers
	touch $@
