# Sets up what each target needs in a virtual environment and keeps it there for the next time.
#   make demo     index the standard library's docstrings and answer a few questions
#   make test     run what a change of the core needs, in less than three minutes; TESTS=tests/unit/formats: of one package
#   make test-all run all tests
#   make torture  run the tests of crashes, faults and races, and generated cases, at their full figures (one to two hours;
#                 SHARE=0.1: a tenth)
#   make check    run the formatter, the linters and the type checker
#   make arm64    try Quarry on an emulated ARM64 processor, and test what depends on one (OPTIONS=--smoke: ten minutes)
#   make windows  try Quarry in the Python of Windows, emulated, and test what depends on files (likewise)
#   make docs     write docs/api.md and docs/api from the docstrings
#   make bench    measure the main figures (bench/README.md has the other measurements)
#   make clean    remove everything that these targets made
# PYTHON names the interpreter to set up with, VENV the folder of the environment, TESTS what pytest runs, EXTRAS what
# is installed for it: EXTRAS=everything brings the optional libraries too, whose tests are skipped without them. WORKERS
# is the number of processes that run tests at once, OPTIONS what else pytest gets.

PYTHON ?= python3
VENV ?= .venv
TESTS ?= tests
EXTRAS ?= dev
SHARE ?= 1
WORKERS ?= 2
OPTIONS ?=
BIN := $(VENV)/bin
CORE := $(VENV)/.stamp
DEV := $(VENV)/.stamp-$(EXTRAS)

.PHONY: demo test test-all torture check arm64 windows docs bench clean

demo: $(CORE)
	$(BIN)/quarry demo .demo

test: $(DEV)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fast $(OPTIONS) $(TESTS)

test-all: $(DEV)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(OPTIONS) $(TESTS)

torture: $(DEV)
	-$(BIN)/python -m pip install --quiet atheris
	QUARRY_TORTURE=$(SHARE) $(BIN)/python -m pytest --timeout 14400 -o faulthandler_timeout=14460 \
		tests/crash tests/corruption tests/property tests/contract/test_odd_vectors.py

check: $(DEV) .links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=.links:. $(BIN)/lint-imports

arm64 windows: $(CORE)
	PYTHON=$(BIN)/python tests/platforms/$@.sh $(OPTIONS)

docs: $(DEV)
	$(BIN)/python docs/api.py

bench: $(DEV)
	$(BIN)/python -m bench figures

clean:
	rm -rf $(VENV) .demo .links build dist *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find bench bundles distributed engine exporters formats integrations readers server testing training src tests -name __pycache__ -prune -exec rm -rf {} +

# mypy and import-linter read folders, not what an editable installation maps to them.
.links: setup.py
	rm -rf $@ && mkdir -p $@/quarry
	ln -s $(addprefix ../../src/quarry/,__init__.py __main__.py py.typed) $@/quarry
	ln -s $(addprefix ../../,distributed engine exporters formats integrations readers server testing training) $@/quarry

# A stamp is written last, so a set-up that was interrupted starts again. pip takes a package for installed as soon as its
# .dist-info folder is there, and writes INSTALLER into it when all files are: packages without it are forgotten first.

FORGET = import glob, os, shutil, sysconfig; \
	[shutil.rmtree(each) for each in glob.glob(os.path.join(glob.escape(sysconfig.get_path("purelib")), "*.dist-info")) \
	if not os.path.exists(os.path.join(each, "INSTALLER"))]
INSTALL = $(BIN)/python -c '$(FORGET)' && $(BIN)/python -m pip install --quiet --editable $(1) && touch $@

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Quarry needs Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(call INSTALL,.)

$(DEV): $(CORE)
	@$(call INSTALL,'.[$(EXTRAS)]')
