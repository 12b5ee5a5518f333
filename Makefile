# Two commands do everything on a fresh machine: `make dev` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: dev test test-long check format bench clean

dev: .venv/run  ## install, then run everything in one process on 127.0.0.1
	$(BIN)/datp dev $(ARGS)

test: .venv/dev  ## install what the tests need, then run them all
	$(BIN)/pytest -n 2 --dist worksteal $(ARGS)

test-long: .venv/dev  ## the tests that take minutes: kills at random, ten thousand transactions
	$(BIN)/pytest -m long $(ARGS)

check: .venv/dev  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev  ## the figures of docs/explanation/performance.md, measured here
	$(BIN)/python -m bench.run

clean:
	rm -rf .venv build src/*.egg-info

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "DATP needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python requirements/run.txt pyproject.toml
	$(BIN)/pip install --quiet -r requirements/run.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

.venv/dev: .venv/bin/python requirements/dev.txt pyproject.toml
	$(BIN)/pip install --quiet -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@ .venv/run
