# Each target sets up what it needs first: `make demo` and `make test` work in a fresh clone.
# VENV=… puts the virtual environment elsewhere; PYTHON=… chooses the interpreter it is made with.
VENV ?= .venv
PYTEST_ARGS ?=
GPU_TEST_ARGS ?=
export VENV

PYTHON_IN_VENV = $(VENV)/bin/python
# Strict: a warning fails it. The variable turns off a notice of the theme about its successor.
BUILD_SITE = NO_MKDOCS_2_WARNING=1 $(PYTHON_IN_VENV) -m mkdocs --quiet build --strict
CHECKED = $(wildcard src tests benchmarks examples)

.PHONY: help demo test test-guests gpu-test check docs format bench clean

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo:  ## set up, then run `kernelkeep demo`: no GPU needed
	@scripts/setup demo
	@$(PYTHON_IN_VENV) -m kernelkeep demo

test:  ## set up with all backends, then run the tests; PYTEST_ARGS="-k name" selects
	@scripts/setup test
	$(PYTHON_IN_VENV) scripts/test $(PYTEST_ARGS)

test-guests:  ## install Triton, PyTorch, JAX and the other guests (7 GB), and test that they use this cache
	@scripts/setup guests
	$(PYTHON_IN_VENV) -m pytest tests/guests $(PYTEST_ARGS)

gpu-test:  ## conformance and fault suites on this machine's GPU, side by side, in 8 minutes; installs nothing
	@scripts/gpu-test $(GPU_TEST_ARGS)

check:  ## ruff, mypy strict for Linux, Windows and macOS, also over the docs' programs; import direction
	@scripts/setup check
	$(PYTHON_IN_VENV) -m ruff check $(CHECKED)
	$(PYTHON_IN_VENV) -m ruff format --check $(CHECKED)
	$(PYTHON_IN_VENV) scripts/docs_programs.py build/docs_programs
	@scripts/check-types $(CHECKED) build/docs_programs
	$(PYTHON_IN_VENV) -m pytest -q tests/unit/test_layers.py

docs:  ## build the documentation's site in build/site; a broken link or a page that is not in the navigation fails
	@scripts/setup docs
	$(BUILD_SITE)
	@echo "open build/site/index.html"

format:  ## let ruff fix and format everything
	@scripts/setup check
	$(PYTHON_IN_VENV) -m ruff check --fix $(CHECKED)
	$(PYTHON_IN_VENV) -m ruff format $(CHECKED)

bench:  ## measure every row beside its peer; the results go to build/bench
	@scripts/setup test
	$(PYTHON_IN_VENV) -m kernelkeep bench all --out build/bench

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
