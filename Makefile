# make train · make test: each sets up .venv first, once.
.DEFAULT_GOAL := help
.PHONY: help train test test-slow native-test venv checks format format-check lint types clean

VENV := .venv
BIN := $(VENV)/bin
# Two at a time: most tests wait for a process of the zoo that uses one core.
PYTEST = $(BIN)/python -m pytest -n 2
BUILD_INPUTS := pyproject.toml CMakeLists.txt scripts/setup.sh $(wildcard startup/*) \
	$(shell find native -type f \( -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt \))

help:
	@echo "make train         train a muscle-driven arm for about a minute, show it before and after"
	@echo "make test          run the tests"
	@echo "make venv          only set up $(VENV)"
	@echo "make checks        formatting, lint, types, tests"
	@echo "make format        format the code"
	@echo "make test-slow     the learning tests"
	@echo "make native-test   the C++ tests: plain, and under address, undefined-behaviour and thread sanitizers"
	@echo "make clean         remove the build and the caches ($(VENV) and logs stay)"

train: venv
	$(BIN)/sb3-hrl quickstart

test: $(VENV)/.tests
	$(PYTEST) $(PYTEST_ARGS)

test-slow: $(VENV)/.tests
	$(PYTEST) -m slow $(PYTEST_ARGS)

native-test: $(VENV)/.tests
	$(PYTEST) tests/unit/test_native_cpp.py $(PYTEST_ARGS)

venv: $(VENV)/.package

$(VENV)/.package: $(BUILD_INPUTS)
	@VENV=$(VENV) PYTHON=$(PYTHON) scripts/setup.sh
	@touch $@

# The tests' tools come on top of the package, so that `make train` does without them.
$(VENV)/.tests: $(BUILD_INPUTS)
	@VENV=$(VENV) PYTHON=$(PYTHON) scripts/setup.sh tests
	@touch $@ $(VENV)/.package

checks: format-check lint types test

format: $(VENV)/.tests
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --select I .

format-check: $(VENV)/.tests
	$(BIN)/ruff format --check .

lint: $(VENV)/.tests
	$(BIN)/ruff check .

types: $(VENV)/.tests
	$(BIN)/mypy

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
