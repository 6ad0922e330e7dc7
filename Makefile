# `make sweep` and `make test` are all the set-up there is. PYTHON and VENV can be given, as in
# `make test PYTHON=python3.13 VENV=/tmp/env`.
PYTHON ?= python3
VENV ?= .venv
PY := "$(VENV)/bin/python"

# What the sweep is asked for, as in `make sweep ARGS="arch=llama layout=cp4_ep4"`.
ARGS ?= -m arch=qwen3_moe,gpt_oss layout=cp4_ep4
# How many tests run at a time: of most, one waits while another computes.
WORKERS ?= 2
PYTEST := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What pytest is asked for besides, as in `make test PYTEST_ARGS="-k resume"`.
PYTEST_ARGS ?=
# Where `make ui` looks, as in `make ui OUTPUTS=/data/outputs PORT=5001`.
OUTPUTS ?= outputs
PORT ?= 5000

# Every rank imports thousands of modules: they are compiled once, when first imported.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env sweep test test-all test-fast check format recorded ui clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

env: $(VENV)/.installed  ## make the environment in .venv, or bring it up to date

$(VENV)/.installed: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"{sys.executable} is \
	Python {sys.version.split()[0]}: 3.11 or later is needed, as in make PYTHON=python3.12")'
	@echo "making the environment in $(VENV): a few minutes, once"
	@"$(PYTHON)" -m venv "$(VENV)"
# Compiling every installed module takes as long as installing them; most are never imported.
	@$(PY) -m pip install -qq --no-compile --disable-pip-version-check \
		-c constraints.txt -e '.[dev]'
	@touch "$@"

sweep: env  ## run a sweep (ARGS="..." replaces what it runs)
	@$(PY) -m sweep $(ARGS)

test: env  ## run the tests that a change has to pass
	@$(PY) $(PYTEST) -m "not nightly" --durations=20 $(PYTEST_ARGS)

test-all: env  ## run every test: all architectures, the longest sweeps
	@$(PY) $(PYTEST) --durations=20 $(PYTEST_ARGS)

test-fast: env  ## run the tests that need no second process
	@$(PY) $(PYTEST) -m "not slow and not nightly" $(PYTEST_ARGS)

check: env  ## lint, formatting, types, and who imports whom
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	"$(VENV)/bin/lint-imports" --no-logo

format: env  ## repair what ruff can repair
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

recorded:
	@test -e "$(OUTPUTS)/mlflow.db" || { echo "nothing recorded in $(OUTPUTS): make sweep"; exit 1; }

ui: recorded env  ## show the recorded runs in a browser, on loopback
# One worker and no job runner: one person looks at it, and it is there in a fifth of the time.
	@MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false \
		$(PY) -m mlflow ui --workers 1 --host 127.0.0.1 --port $(PORT) --backend-store-uri \
		"sqlite:///$(OUTPUTS)/mlflow.db"

clean:  ## remove the environment and the tools' caches; results stay
	rm -rf "$(VENV)" .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
