# make train · make test: each sets up .venv first, once.
.DEFAULT_GOAL := help
.PHONY: help train test test-slow native-test venv checks format format-check lint types clean \
	train-timed train-parallel train-impala train-impala-parallel evaluate evaluate-ppo evaluate-impala compare tensorboard doctor

VENV := .venv
BIN := $(VENV)/bin
# Two at a time: most tests wait for a process of the zoo that uses one core.
PYTEST = $(BIN)/python -m pytest -n 2
BUILD_INPUTS := pyproject.toml CMakeLists.txt scripts/setup.sh $(wildcard startup/*) \
	$(shell find native -type f \( -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt \))

# The experiments below: make train-timed ENV=CartPole-v1 DURATION=5m ARGS="--seed 1". HPPO without muscles is PPO, bit for bit, and
# the one that has actors.
PPO := hppo
ENV := procgen-coinrun-v0
ACTORS := 4
EPISODES := 100
LOGS := logs
TRAIN = $(BIN)/sb3-hrl train --env $(ENV) -f $(LOGS) $(ARGS)
EVALUATE = $(BIN)/sb3-hrl evaluate -f $(LOGS) --n-episodes $(EPISODES) --deterministic $(ARGS)

help:
	@echo "make train         train a muscle-driven arm for about a minute, show it before and after"
	@echo "make test          run the tests"
	@echo "make train-timed   PPO on $(ENV) for an hour (DURATION=30m, ENV=..., ARGS=\"--seed 1\")"
	@echo "make train-parallel         the same with $(ACTORS) actors (ACTORS=N)"
	@echo "make train-impala           IMPALA, for the steps of its file (or DURATION=30m)"
	@echo "make train-impala-parallel  the same with $(ACTORS) actors"
	@echo "make evaluate      $(EPISODES) episodes with the latest run's model; evaluate-ppo, evaluate-impala: with that of the latest such run"
	@echo "make compare       the latest runs side by side: table, pictures, a page in comparison/"
	@echo "make tensorboard   TensorBoard on $(LOGS)"
	@echo "make doctor        what works on this machine, and what to do about the rest"
	@echo "make venv          only set up $(VENV)"
	@echo "make checks        formatting, lint, types, tests"
	@echo "make format        format the code"
	@echo "make test-slow     the learning tests"
	@echo "make native-test   the C++ tests: plain, and under address, undefined-behaviour and thread sanitizers"
	@echo "make clean         remove the build and the caches ($(VENV) and logs stay)"

train: venv
	$(BIN)/sb3-hrl quickstart

train-timed: $(VENV)/.experiments
	$(TRAIN) --algo $(PPO) --duration $(or $(DURATION),1.0)

train-parallel: $(VENV)/.experiments
	$(TRAIN) --algo $(PPO) --duration $(or $(DURATION),1.0) -params n_actors:$(ACTORS)

train-impala: $(VENV)/.experiments
	$(TRAIN) --algo impala $(if $(DURATION),--duration $(DURATION))

train-impala-parallel: $(VENV)/.experiments
	$(TRAIN) --algo impala $(if $(DURATION),--duration $(DURATION)) -params n_actors:$(ACTORS)

evaluate: $(VENV)/.experiments
	$(EVALUATE)

evaluate-ppo: $(VENV)/.experiments
	$(EVALUATE) --algo $(PPO)

evaluate-impala: $(VENV)/.experiments
	$(EVALUATE) --algo impala

compare: $(VENV)/.experiments
	$(BIN)/sb3-hrl compare -f $(LOGS) $(ARGS)

tensorboard: venv
	$(BIN)/tensorboard --logdir $(LOGS) $(ARGS)

doctor: venv
	$(BIN)/sb3-hrl doctor $(ARGS)

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

# Procgen, and what draws comparisons.
$(VENV)/.experiments: $(BUILD_INPUTS)
	@VENV=$(VENV) PYTHON=$(PYTHON) scripts/setup.sh procgen,plots
	@touch $@ $(VENV)/.package

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
