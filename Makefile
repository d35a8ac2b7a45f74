# `make demo` and `make test` need Python 3.10 or newer with venv; everything else is installed into .venv.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test lint unit faults bench bench-diagnose clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    train a small model with a hidden fault, say what is found (FAULT=slow-code for another)"
	@echo "make test    ruff, mypy --strict and all tests"
	@echo "make faults  the fault bench: every program of faults/, scored; writes docs/faults.md"
	@echo "make bench   what observation costs; writes docs/overhead.md"
	@echo "make bench-diagnose   how fast files of other tools are read, beside HolisticTraceAnalysis"

# The markers keep the order: the package first, torch only where the user has none.
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing rankscope and $(TORCH) into $(VENV) (once; minutes on a slow network)"
	@$(PIP) install -c constraints.txt -e .
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) install -c constraints.txt "$(TORCH)" numpy
	@touch $@

$(VENV)/ready-for-tests: $(VENV)/ready
	@echo "installing what the tests need"
	@$(PIP) install -c constraints.txt -e ".[test]"
	@touch $@

demo: $(VENV)/ready
	@$(BIN)/rankscope demo $(FAULT)

test: lint unit

lint: $(VENV)/ready-for-tests
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(VENV)/ready-for-tests
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

faults: $(VENV)/ready-for-tests
	$(BIN)/python faults/bench.py --whatif --out docs/faults.md

bench: $(VENV)/ready-for-tests
	$(BIN)/python bench/overhead.py

bench-diagnose: $(VENV)/ready-for-tests
	$(BIN)/python bench/diagnose.py --hta
	$(BIN)/python bench/optable.py
	$(BIN)/python bench/snapshot.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
