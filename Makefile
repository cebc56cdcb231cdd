# Needs a POSIX shell, make (GNU 3.81, as on macOS, is enough) and Python 3.11 or newer; installs into .venv only.
#
#   make demo        install, then replay the bundled coding session under both default policies
#   make test        the tests, but for the slow ones       make test-slow   those
#   make test-light  what works without the extra mlx, in an environment of its own
#   make lint        ruff                                   make typecheck   mypy --strict
#   make bench       measure, and write the numbers into docs/performance.md
#   make conformance compare the policies with the code of servers' newest releases (docs/conformance.md)
#   make docs        regenerate what is generated in README.md and docs/ (`make test` fails where it is stale)
#   make clean       remove .venv and everything that was built
#
# PYTHON=/path/to/python chooses the interpreter that makes .venv, VENV=folder another place for it, and
# WORKERS=n the number of test processes. An active environment is neither used nor changed.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)
VENV ?= .venv
WORKERS ?= 2

RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
TYPECHECK := .cache/typecheck
LIGHT := .cache/light
SESSION := fixtures/transcripts/claude-code.jsonl

# Bytecode is kept, whatever the environment says: tests start hundreds of processes of tplaudit, and each would
# compile all of it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-light lint typecheck bench conformance docs clean

demo: $(INSTALLED)
	@echo
	@echo "1. A template that accepts no later system message: the server moves them to the front."
	@echo "   tplaudit replay $(SESSION)"
	@echo
	@$(VENV)/bin/tplaudit replay $(SESSION)
	@echo
	@echo "2. The same session with a template that leaves them where they stand."
	@echo "   tplaudit replay $(SESSION) --template fixtures/templates/in-place.jinja"
	@echo
	@$(VENV)/bin/tplaudit replay $(SESSION) --template fixtures/templates/in-place.jinja

test: $(INSTALLED_DEV)
	$(RUN) -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(INSTALLED_DEV)
	$(RUN) -m pytest -q -m slow

# A new environment each time, so that nothing is in it but what `pip install .` brings.
test-light: $(INSTALLED_DEV)
	rm -rf $(LIGHT)
	$(RUN) -m venv $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt .
	$(RUN) tests/light.py $(LIGHT)/bin/python

lint: $(INSTALLED_DEV)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

# mypy takes a package's name from its folder; this folder's name is not the package's, so links stand in for it.
typecheck: $(INSTALLED_DEV)
	rm -rf $(TYPECHECK)/tplaudit
	mkdir -p $(TYPECHECK)/tplaudit
	for each in __init__.py py.typed cli probes fixtures; do ln -s ../../../$$each $(TYPECHECK)/tplaudit/$$each; done
	cd $(TYPECHECK) && $(abspath $(RUN)) -m mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p tplaudit

bench: $(INSTALLED_DEV)
	$(RUN) tests/bench/run.py --write

# Downloads the newest releases of all servers, some 600 MB, into build/conformance or CONFORMANCE_HOME=; oMLX comes
# from a checkout that OMLX= names.
conformance: $(INSTALLED_DEV)
	$(RUN) -m tests.conformance.run --write
	$(RUN) -m pytest -q -n 0 tests/probes/policies/test_own_code.py

docs: $(INSTALLED_DEV)
	$(RUN) docs/generate.py

clean:
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist tplaudit.egg-info
	find cli docs fixtures probes tests -name __pycache__ -prune -exec rm -rf {} +

$(RUN):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(RUN)
	$(PIP) --editable ".[mlx]"
	@touch $@

$(INSTALLED_DEV): pyproject.toml constraints.txt | $(RUN)
	$(PIP) --editable ".[dev]"
	@touch $(INSTALLED) $@
