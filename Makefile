# Two commands do everything on a machine with Python >= 3.11, make and git alone:
#   make run    the main job       make test   the test suite
# Each builds the virtual environment it needs in .venv when that is missing or stale.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
# One thread for the linear-algebra libraries: what is parallel here is said to be.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: run test test-all bench paper lint clean help

help:
	@echo "make run       set up, simulate Figure 2 (a) of the paper, and say where its figure and report are"
	@echo "make test      the test suite (minutes)"
	@echo "make test-all  the test suite with the long statistical tests"
	@echo "make bench     every benchmark, side by side with C and the peers"
	@echo "make paper     every figure of the paper with 100 seeds, both variants (about an hour): docs/paper.md"
	@echo "make lint      ruff and mypy"
	@echo "make clean     remove the virtual environment and caches"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "metabandit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV) (a minute or two, once)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --editable '.[dev]'
	@touch $(STAMP)

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --editable '.[dev,bench]'
	@touch $(BENCH_STAMP)

run: $(STAMP)
	@$(BIN)/metabandit study run figure-2-gaussian --seeds 20
	@echo "next: $(BIN)/metabandit study list, every experiment of the paper; $(BIN)/metabandit demo, your own kind of problem;"
	@echo "      README.md, ten lines on your own data; docs/tutorials, a page for each kind of user."

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: $(BENCH_STAMP)
	$(BIN)/python -m benchmarks.run

paper: $(STAMP)
	$(BIN)/python -m benchmarks.paper

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
