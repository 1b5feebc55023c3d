# Every target sets itself up from nothing: python3 (3.11 or newer) and make are all a machine needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What the laboratory needs, and what tests, checks and docs need beside it: `make reproduce` installs the first only.
LAB    := $(VENV)/.lab
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
SCALE  ?= quick
# Two workers compile in parallel; more only compete for the two cores CI has.
WORKERS ?= 2
# Tests to run instead of all of them: make test TESTS=tests/penalty
TESTS ?=

.DEFAULT_GOAL := help
.PHONY: help setup check test torture reproduce docs bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY)  ## virtual environment in .venv with the versions of constraints.txt

$(LAB): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "igr needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": call make with PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "could not make a virtual environment with $(PYTHON): install its venv module (Debian: python3-venv) or name another one with PYTHON="; exit 2; }
	@echo "installing igr into $(VENV) (a minute or two the first time)"
	@$(PIP) '.[lab]'
	@touch $@

$(READY): $(LAB)
	@echo "installing the tools for tests and docs into $(VENV)"
	@$(PIP) '.[dev]'
	@touch $@

check: $(READY)  ## formatter, linter and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python $$($(BIN)/python tests/typed.py)

test: check  ## check, then tests, doctests and the README's code
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(TESTS)

torture: $(READY)  ## kill, fill, flip and forge what the laboratory stores; a quarter of an hour or more, fixed seed
	PYTHONPATH=.:tests:tests/lab/data $(BIN)/python -m torture
	PYTHONPATH=.:tests $(BIN)/python tests/torture/cluster.py

reproduce: $(LAB)  ## run the laboratory at quick scale (or SCALE=paper) and say where the report is
	$(BIN)/igr reproduce --scale $(SCALE)

docs: $(READY)  ## build the documentation site into site/, without a network; runs the tutorials the first time
	@$(BIN)/python -m sphinx -W --keep-going -q -j 2 docs site
	@echo "site/index.html"

bench: $(READY)  ## cost of the penalty and of the modified equation, as ratios
	$(BIN)/python benchmarks/penalty.py
	$(BIN)/python benchmarks/orders.py

clean:  ## remove what the targets made
	rm -rf $(VENV) site dist .cache/docs .pytest_cache .ruff_cache
