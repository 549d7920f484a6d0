# The checks of .ci/run and the pre-commit hooks. PYTHON=... selects another interpreter.
PYTHON ?= python
export OMP_NUM_THREADS ?= 1

.PHONY: help install check lint types test records slow mutants kills fuzz format ci

help:            ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*\#\# (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

install:         ## install the packages in editable form, the development tools and the git hooks
	$(PYTHON) -m pip install -c constraints.txt -e ".[dev]"
	$(PYTHON) -m pre_commit install

check: lint types test ## lint, types and the default tests

lint:            ## run ruff: rules and format
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:           ## run mypy on the packages
	$(PYTHON) -m mypy

test:            ## run the default tests, with warnings as errors
	$(PYTHON) -m pytest

records:         ## check published records, long runs and processes; CI runs it
	$(PYTHON) -m pytest -m "records and not slow"

slow:            ## run the long tests that the default set leaves out
	$(PYTHON) -m pytest -m slow -n 0

mutants:         ## check that the tests notice 200 small changes to attention; one hour
	$(PYTHON) -m tests.mutation attention --sample 200

kills:           ## check that killed and repeated commands equal undisturbed ones; 200 cases, an hour
	$(PYTHON) -m tests.trials.stops --count 200 --out $$(mktemp -d)/stops

fuzz:            ## check that odd inputs bring no traceback, hang, 2 GB or wrong number; an hour
	for trial in fuzz odd_envs onnx_fields forgetting; do \
	  $(PYTHON) -m tests.trials.$$trial --out $$(mktemp -d)/$$trial || exit 1; done

format:          ## fix what ruff can fix
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

ci:              ## run .ci/run on the last commit
	./.ci/run
