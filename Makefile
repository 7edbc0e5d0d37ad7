# serve: run the service.  test: every test.  check: format, lint, types.  packages: train the bundled models.
# bench, bench-engine: how fast, side by side, over HTTP and of the engine.  load: users of every task against a running service.
# manifests: what is made for deploy/, and its checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS ?= runs

.PHONY: serve test check packages encoder bench bench-engine load manifests

serve: $(VENV)/.serve
	$(BIN)/python -m service

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict docker-compose.yml deploy service/models.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

# Trains all bundled packages from nothing and resumes what was interrupted: make packages DATA=folder/of/the/data/sets
PACKAGES := sentiment spam topics embed stories translate fashion
packages: $(PACKAGES:%=package-%)
DATA ?= $(error say where the data sets are: make packages DATA=folder)

# $(call train,RECIPE,RECIPE TO BEGIN WITH)
train = $(BIN)/python -m model train $(1) --data $(DATA) --out $(RUNS)/$(1) $(if $(2),--start-from $(RUNS)/$(2))
# $(call package,NAME,RECIPE)
define package
$(BIN)/python -m model export $(2) --run $(RUNS)/$(2) --out model/packages/$(1)
$(BIN)/python -m model export $(2) --run $(RUNS)/$(2) --out $(RUNS)/$(1)-float32 --precision float32
$(BIN)/python -m model evaluate model/packages/$(1) --reference $(RUNS)/$(1)-float32 --data $(DATA)
endef

encoder: $(VENV)/.dev
	$(call train,pretrain-encoder)
	$(call train,pretrain-encoder-longer,pretrain-encoder)

package-sentiment: encoder
	$(call train,pretrain-encoder-reviews,pretrain-encoder-longer)
	$(call train,finetune-classify-sentiment,pretrain-encoder-reviews)
	$(call package,sentiment,finetune-classify-sentiment)

package-spam package-topics: package-%: encoder
	$(call train,finetune-classify-$*,pretrain-encoder-longer)
	$(call package,$*,finetune-classify-$*)

package-embed: encoder
	$(call train,contrastive-embed,pretrain-encoder-longer)
	$(call package,embed,contrastive-embed)

package-stories: $(VENV)/.dev
	$(call train,pretrain-decoder)
	$(call train,pretrain-decoder-stories,pretrain-decoder)
	$(call train,sft-decoder,pretrain-decoder-stories)
	$(call train,sft-decoder-longer,sft-decoder)
	$(call package,stories,sft-decoder-longer)
	$(BIN)/python -m service.samples model/packages/stories

package-translate: $(VENV)/.dev
	$(call train,translate)
	$(call train,translate-names,translate)
	$(call train,translate-german,translate-names)
	$(call train,translate-swedish,translate-german)
	$(call package,translate,translate-swedish)

package-fashion: $(VENV)/.dev
	$(call train,classify-image)
	$(call package,fashion,classify-image)

bench: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_http

bench-engine: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_engine

# A mix of users for two minutes: make load USERS=300 ARRIVALS=open LOAD=spike; reports go to the folder load/
HOST ?= http://127.0.0.1:8000
USERS ?= 60
ARRIVALS ?= closed
LOAD ?= constant
load: $(VENV)/.dev
	mkdir -p load
	$(BIN)/locust -f loadtests/locustfile.py --headless --only-summary --host $(HOST) --users $(USERS) --spawn-rate 100 \
	    --run-time 2m --arrivals $(ARRIVALS) --load $(LOAD) --html load/report.html --csv load/report

# Writes what is made from one source: Serve's configurations, the PrometheusRule, the dashboards; then checks the overlays.
manifests: $(VENV)/.dev
	$(BIN)/python -m deploy.generate
	$(BIN)/python -m deploy.checks

$(VENV)/.serve: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.serve
