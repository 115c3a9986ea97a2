# Everything runs from a bare clone: `make test`. Only python >= 3.11 and make are needed beforehand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Every pip call obeys constraints.txt; without it torch may resolve to a build of several gigabytes.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DOCTESTED := livi README.md docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lint format types unit doctest test clean-install demo bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install livi with its development tools

# The stamp is touched last, so that an interrupted or failed installation is tried again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(None if sys.version_info >= (3, 11) else \
	  "livi needs python >= 3.11, but $(PYTHON) is " + v + "; try: make setup PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e ".[dev]"
	$(PIP_INSTALL) --no-deps laplace-torch asdfghjkl curvlinops-for-pytorch backpack-for-pytorch
	@touch $@

lint: setup ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## ruff: fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## mypy, strict, over the package
	$(BIN)/mypy

unit: setup ## the tests, in parallel
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto tests

doctest: setup ## the examples in docstrings, README and docs
	@rm -f sine.livi run.livi
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --doctest-modules --doctest-glob='*.md' $(DOCTESTED)

test: lint types unit doctest ## lint, types, tests and doctests: what continuous integration runs

# Needs the network, or wheels that pip knows of: torch is installed once more.
clean-install: ## build the wheel, install it without extras into an empty environment, and fit there
	PYTHON="$(PYTHON)" scripts/clean_install.sh

demo: setup ## four posteriors side by side, on one page: livi-demo/index.html
	$(BIN)/livi demo --out livi-demo

bench: setup ## time the building blocks
	$(BIN)/python -m benchmarks

clean: ## remove the environment, caches and build outputs
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
