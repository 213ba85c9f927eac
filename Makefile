# Two commands do everything on a machine with Python and a package index: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
# What to give pip for PyTorch. Empty: a CPU build where there is one, which spares gigabytes of CUDA.
# On a machine with a GPU: make demo TORCH=torch
TORCH ?=
TORCH_CPU = torch==2.13.0+cpu
TORCH_RANGE = torch >= 2.13, < 2.16
TORCH_CPU_INDEX = https://download.pytorch.org/whl/cpu

PIP = $(VENV)/bin/python -m pip install --quiet

# An S3 server that is not Python, for a test that is skipped without it
S3RVER = 3.7.1
CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/farspan

.PHONY: help demo check check-tests test coverage test-lowest s3rver test-other-processor test-slurm test-flink test-dask test-readers test-kernels test-browser test-s3rver screenshots lint stub docs tutorial bench clean

help:
	@echo "make demo   the whole way from real text to a scored model, in demo-output/"
	@echo "make check  lint, types and the tests that find most mistakes, in a minute or two; before each commit"
	@echo "make test   the tests"
	@echo "make coverage   the tests, with the share of lines that they run"
	@echo "make test-lowest   the tests with the oldest dependencies that setup.cfg allows"
	@echo "make test-s3rver   the tests on an S3 server of Node's packages, which make s3rver installs into the user's cache"
	@echo "make test-other-processor   the tests as on an x86-64 processor of 2009"
	@echo "make test-slurm   the tests on a Slurm cluster of this machine, skipped where its packages cannot be had"
	@echo "make test-dask    the tests on a Dask cluster of this machine"
	@echo "make test-readers   exports read by the libraries that own their formats, installed into the user's cache"
	@echo "make test-kernels   the kernels for GPUs compiled and interpreted without one, by Triton in the user's cache"
	@echo "make test-flink   the tests on a Flink cluster of this machine, skipped where Java or Flink is missing"
	@echo "make test-browser   the pages of farspan view in Chromium, skipped where it is missing; make screenshots: the docs' pictures"
	@echo "make lint   formatting, lint and types"
	@echo "make stub   write farspan/__init__.pyi, the types of the public names, after a change of options or names"
	@echo "make docs   the site, in docs/_build/html; a warning is an error"
	@echo "make tutorial   run the notebook of the tutorial, and store its outputs in it; three minutes"
	@echo "make bench  the benchmarks of docs/benchmarks.md"
	@echo "make clean  remove $(VENV), demo-output and caches"

demo: $(VENV)/installed-demo
	$(VENV)/bin/python examples/demo.py --output demo-output

# Imports and folders, golden values, the laws of objectives, one job of each kind and a run of two updates
CHECKED = tests/test_architecture.py tests/test_arrows.py tests/test_formats.py tests/test_mirror.py tests/test_packaging.py \
	tests/objectives/test_span.py tests/objectives/api/test_laws.py tests/trainer/data/test_order.py

check: $(VENV)/installed-dev
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint check-tests

check-tests: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n2 --dist loadfile $(CHECKED)

test: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n auto --dist worksteal

s3rver: $(CACHE)/s3rver-$(S3RVER)/node_modules/.bin/s3rver

$(CACHE)/s3rver-$(S3RVER)/node_modules/.bin/s3rver:
	npm install --silent --no-audit --no-fund --prefix $(CACHE)/s3rver-$(S3RVER) s3rver@$(S3RVER)

test-other-processor: $(VENV)/installed-dev
	$(VENV)/bin/python -m tests.processors $(VENV)/bin/python -m pytest -q -n auto --dist worksteal

test-slurm: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n0 -m slurm tests/pipelines/engine/test_slurm.py

test-flink: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n0 -m flink tests/flink

test-dask: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n0 -m dask tests/dask

test-readers: $(VENV)/installed-dev
	$(VENV)/bin/python -m tests.environments megatron mds olmo datatrove litdata
	$(VENV)/bin/python -m pytest -q -n0 -m readers tests/readers

test-kernels: $(VENV)/installed-dev
	$(VENV)/bin/python -m tests.environments triton
	$(VENV)/bin/python -m pytest -q -n0 -m kernels tests/trainer/model/kernels

test-s3rver: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n0 -m s3rver tests/corpora/storage/stores/test_s3_servers.py

test-browser: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n0 -m browser tests/pipelines/view/integration

screenshots: $(VENV)/installed-dev
	FARSPAN_SCREENSHOTS=docs/figures $(VENV)/bin/python -m pytest -q -n0 -m browser tests/pipelines/view/integration

coverage: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -q -n auto --dist worksteal --cov --cov-report=term:skip-covered

# constraints-lowest.txt has the lower bounds of setup.cfg
test-lowest:
	@$(MAKE) --no-print-directory VENV=$(VENV)-lowest CONSTRAINTS='-c constraints-lowest.txt' test

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

stub: $(VENV)/installed-dev
	$(VENV)/bin/python -m farspan.stub

docs: $(VENV)/installed-dev
	$(VENV)/bin/python -m sphinx -q -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

tutorial: $(VENV)/installed-dev
	$(VENV)/bin/python docs/tutorial_outputs.py

bench: $(VENV)/installed-dev
	$(VENV)/bin/python -m benchmarks

clean:
	rm -rf $(VENV) $(VENV)-lowest demo-output build dist farspan.egg-info docs/_build docs/generated
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed-demo $(VENV)/installed-dev: $(VENV)/installed-%: $(VENV)/torch setup.cfg pyproject.toml
	@echo "installing farspan[$*] into $(VENV)"
	$(PIP) $(CONSTRAINTS) --editable '.[$*]'
	@touch $@

$(VENV)/torch:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; name a Python: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "farspan needs Python 3.11 or newer, and this is $$($(PYTHON) --version); name another: make PYTHON=python3.12"; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing PyTorch into $(VENV)"
	@if [ -n "$(TORCH)" ]; then $(PIP) $(TORCH); else \
		$(PIP) '$(TORCH_CPU)' 2>/dev/null \
		|| $(PIP) '$(TORCH_CPU)' --extra-index-url $(TORCH_CPU_INDEX) 2>/dev/null \
		|| { echo "no CPU build $(TORCH_CPU) here; taking the index's own PyTorch, with CUDA some 5 GB on disk"; \
			$(PIP) '$(TORCH_RANGE)'; }; fi
	@touch $@
