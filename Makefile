# Two commands on a fresh machine: `make demo` and `make test`. Each does all set-up it needs.
#   PYTHON    the interpreter to build the virtual environment with (3.11 or newer)
#   VENV      where the virtual environment goes
#   PIP_ARGS  arguments of every pip install; constraints.txt pins the torch this project is tested with
PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?= -c constraints.txt
BIN := $(VENV)/bin

.PHONY: help demo test test-all check format browser

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.ready-all  ## Install, then run the whole pipeline on a bundled corpus
	$(BIN)/dmnrag demo

test: $(VENV)/.ready-dev  ## Install, then run the default tests
	$(BIN)/pytest -m "not slow and not service and not gpu"

test-all: $(VENV)/.ready-dev  ## Also the tests that load models, read ../shared or start servers
	$(BIN)/pytest -m "not gpu"

browser:  ## Install what the browser tests need, where it is missing (Debian, as root)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; }
	@command -v openssl >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openssl

check: $(VENV)/.ready-dev  ## Format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.ready-dev  ## Rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.ready-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time this takes some minutes and says nothing meanwhile."
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -e '.[$*]'
	@touch $@
