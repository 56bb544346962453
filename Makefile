# `make demo` and `make test` do all the set-up they need; the second time set-up is instant.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
SITE_STAMP := $(VENV)-docs/.installed
# Files of tests run side by side, each in one thread; tests/conftest.py says in which order.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests start many processes; without compiled files each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo serve annif test fast soak check lint-files site wheel-test format clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## a virtual environment in .venv with everything pinned

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,serve]'
	@touch $(DEMO_STAMP)

# The tools of the site are kept apart: nothing else needs them.
$(SITE_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		mkdocs-material mkdocstrings-python
	@touch $(SITE_STAMP)

# The demo and its server need only a part of what the tests need.
DEMO_SETUP := $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))

demo: $(DEMO_SETUP)  ## train, evaluate, tag and explain on the built-in data set
	$(BIN)/glocal demo

serve: $(DEMO_SETUP) demo-model/glocal.toml  ## serve the demo model with its web page
	$(BIN)/glocal serve demo-model --feedback demo-feedback

demo-model/glocal.toml: | $(DEMO_SETUP)
	$(BIN)/glocal demo

annif: $(STAMP)  ## a real Annif with an ensemble of two glocal models
	.ci/annif $(BIN)/python

test: $(STAMP)  ## every test
	$(PYTEST)

fast: $(STAMP)  ## the quick tests
	$(PYTEST) -m "not slow and not dist and not gpu"

soak: $(STAMP)  ## long runs: 10,000 fuzzed inputs, mutants, 300 kills, load, a million labels, faithfulness
	$(BIN)/python -m tests.fuzz 10000
	$(BIN)/python benchmarks/mutants.py losses heads
	$(MAKE) demo-model/glocal.toml
	$(BIN)/python -m tests.serve.kills demo-model 100
	$(BIN)/python benchmarks/kills.py 200
	$(BIN)/python benchmarks/serve_load.py minilm --texts icd10cm:test
	$(BIN)/python benchmarks/serve_load.py minilm --texts icd10cm:test --saturate
	$(BIN)/glocal train icd10cm:train --recipe fast --out soak-model --overwrite
	$(BIN)/python benchmarks/serve_load.py soak-model --texts icd10cm:test --memory
	$(BIN)/python benchmarks/batcher_speed.py
	$(BIN)/python benchmarks/million_labels.py
	$(BIN)/glocal analyze faithfulness demo-model icd10cm:test

check: $(STAMP)  ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lint-files:  ## shell scripts and the container file; needs shellcheck and hadolint (both are on PyPI)
	shellcheck .ci/* tests/browser/install.sh
	hadolint Containerfile

site: $(SITE_STAMP)  ## build the documentation into site/, with every link checked
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet

wheel-test: $(STAMP)  ## build the wheel and use it in an environment without torch
	PYTHON=$(BIN)/python .ci/wheel

format: $(STAMP)  ## fix what the formatter and the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-docs site .pytest_cache .ruff_cache .mypy_cache .hypothesis
