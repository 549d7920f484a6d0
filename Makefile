# The same checks as .ci/run and the pre-commit hooks make. PYTHON=... names another interpreter.
PYTHON ?= python
export OMP_NUM_THREADS ?= 1

.PHONY: help install check lint types test records slow mutants kills fuzz format ci

help:            ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*\#\# (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

install:         ## the packages here, editable, with everything for development; git hooks
	$(PYTHON) -m pip install -c constraints.txt -e ".[dev]"
	$(PYTHON) -m pre_commit install

check: lint types test ## everything below but the slow tests

lint:            ## ruff: rules and format
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:           ## mypy on the packages
	$(PYTHON) -m mypy

test:            ## the default tests, warnings as errors
	$(PYTHON) -m pytest

records:         ## checks of published records and of long signals, which CI runs
	$(PYTHON) -m pytest -m "records and not slow"

slow:            ## the long studies that the default tests leave out
	$(PYTHON) -m pytest -m slow -n 0

mutants:         ## do the tests notice a wrong factor? 200 small changes to attention, an hour
	$(PYTHON) -m tests.mutation attention --sample 200

kills:           ## is a job that is killed and resumed the same, bit for bit? 100 kills, half an hour
	$(PYTHON) -m tests.trials.kills --kills 100 --out $$(mktemp -d)/kills

fuzz:            ## do malformed files bring a traceback, a hang or 2 GB? 500 inputs, ten minutes
	$(PYTHON) -m tests.trials.fuzz --inputs 500 --out $$(mktemp -d)/fuzz

format:          ## mend what ruff can mend
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

ci:              ## all of .ci/run, on the last commit
	./.ci/run
