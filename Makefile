# Each target sets up what it needs. PYTHON may name any interpreter from 3.11 on.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
TORCH   = torch==2.13.0
ROOMS   = agent kernels pipeline prompts results verify
PIP     = $(BIN)/pip --disable-pip-version-check

.PHONY: quickstart test lint acceptance setup lock

setup: $(VENV)/.installed

# The CPU build of PyTorch comes first, from its own index where that is reachable: the default
# Linux wheel brings gigabytes of CUDA that nothing here uses.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q --retries 0 --timeout 20 --index-url https://download.pytorch.org/whl/cpu '$(TORCH)' 2>/dev/null \
	  || $(PIP) install -q -c constraints.txt '$(TORCH)'
	$(PIP) install -q -c constraints.txt -e '.[test,text]'
	mkdir -p $(VENV)/typecheck && ln -sfn ../.. $(VENV)/typecheck/nkismith
	touch $@

quickstart: setup
	$(BIN)/nkismith quickstart

test: setup lint
	$(BIN)/python -m pytest -q -m "not acceptance and not device"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd $(VENV)/typecheck && ../bin/mypy --config-file nkismith/pyproject.toml --cache-dir nkismith/.mypy_cache $(ROOMS:%=-p nkismith.%)

acceptance: setup
	$(BIN)/python -m pytest -q -m acceptance

lock: setup
	$(PIP) freeze --exclude-editable | sed 's/+cpu//' > constraints.txt

