# Two commands on a fresh machine: `make run-scenario` and `make test` (as root, or with sudo).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

LIVE_SCENARIO := $(or $(SCENARIO),healthy)
SCENARIO ?= link-failure
RESULTS ?= results
FIG ?=
ARGS ?=
SYSTEM ?= debian12
ARCH ?= amd64
# Tests that neither install from the package index nor change the machine.
ANYWHERE := not install and not vm
# What make check leaves out.
SLOW := root or simulated or programs or long
# Whole files, in the order of tests/conftest.py, which also says how many processes -n stands for.
BY_FILE := --dist loadfile --no-loadscope-reorder

OWNED := scripts/owned.sh
# Matplotlib's font cache: in the home directory root's would stay behind.
export MPLCONFIGDIR := $(CURDIR)/.setup/matplotlib
# Bytecode is kept: a run starts several processes, and each would compile hundreds of modules for 3 s.
unexport PYTHONDONTWRITEBYTECODE

# For scripts/image.sh, where they are given.
export ARGS CONTAINER BASE SUITE BUILD_OPTIONS RUN_OPTIONS

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'SCENARIO=link-failure  a name from scenarios/ or a path    RESULTS=results  where runs are written'
	@echo 'ARGS="..."             more arguments for the command      PYTHON=...       the interpreter for .venv'

.PHONY: run-scenario
run-scenario: setup ## run one scenario and write its report (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/testbed run "$(SCENARIO)" --results "$(RESULTS)" $(ARGS)

.PHONY: live
live: setup ## run SCENARIO (default: healthy) and watch it in a browser, until it is ended (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/testbed run $(LIVE_SCENARIO) --live --results "$(RESULTS)" $(ARGS)

.PHONY: test
test: setup ## run the tests (root: without it the tests that need it are skipped)
	@$(OWNED) . -- .venv/bin/python -P -m pytest -ra -n auto $(BY_FILE) -m "not long and $(ANYWHERE)" $(ARGS)

.PHONY: test-long
test-long: setup ## run those that take longest: labs, clusters, the paper's rows, all scenarios (root)
	@$(OWNED) . -- .venv/bin/python -P -m pytest -ra -n auto $(BY_FILE) -m "long and $(ANYWHERE)" $(ARGS)

.PHONY: test-wheel
test-wheel: setup ## install the wheel into empty environments, and test it there (package index; part of it root)
	@$(OWNED) . -- .venv/bin/python -P -m pytest -ra -n 0 -m install $(ARGS) tests/install

.PHONY: check
check: lint ## lint, types, prose, commits, and the tests that need neither root, a fabric nor other programs
	@.venv/bin/python scripts/commits.py
	@$(OWNED) . -- .venv/bin/python -P -m pytest -q -n logical $(BY_FILE) -m "not ($(SLOW)) and $(ANYWHERE)" $(ARGS)

.PHONY: soak
soak: setup ## every fault for a second, then every scenario, and a table of how it went (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/python scripts/soak.py "$(RESULTS)" $(ARGS)

.PHONY: lint
lint: setup ## check style, types, spelling and prose
	@$(OWNED) . -- .venv/bin/ruff check
	@$(OWNED) . -- .venv/bin/ruff format --check
	@$(OWNED) . -- .venv/bin/mypy
	@$(OWNED) . -- .venv/bin/python scripts/prose.py
	@$(OWNED) . -- scripts/page_types.sh

.PHONY: bench
bench: setup ## measure what this machine carries (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/testbed bench $(ARGS)

.PHONY: figures
figures: setup ## make the paper's figures and a report of them (root); FIG=9a: one of them
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/testbed figures $(FIG) --results "$(RESULTS)" $(ARGS)

.PHONY: figures-full
figures-full: setup ## the same emulated (3 seeds) and simulated (6), the large ones too (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/testbed figures $(FIG) --full --results "$(RESULTS)" $(ARGS)

.PHONY: test-vm
test-vm: setup ## test the kernel of SYSTEM=debian12|debian13|newest in a virtual machine, ARCH=amd64|arm64 (root)
	@$(OWNED) "$(RESULTS)" . -- .venv/bin/python scripts/vm/test_vm.py "$(SYSTEM)" "$(ARCH)" \
	  --results "$(RESULTS)" $(ARGS)

.PHONY: image
image: ## make the container image mrc-testbed with podman or docker (scripts/image.sh has the settings)
	@scripts/image.sh build

.PHONY: test-image
test-image: ## run both commands in the container image, privileged, and once without privileges
	@scripts/image.sh test

# Where Wireshark looks for plugins of yours; without it here, where it does by default.
PLUGINS = $(or $(shell tshark -G folders 2>/dev/null | sed -n 's/^Personal Lua Plugins:[[:space:]]*//p'),\
	$(HOME)/.local/lib/wireshark/plugins)

SITE ?= site
.PHONY: docs
docs: setup ## build the documentation site into SITE=site; without network, strict about links
	@$(OWNED) "$(SITE)" . -- env NO_MKDOCS_2_WARNING=1 .venv/bin/python scripts/site/build.py "$(SITE)"

.PHONY: notebooks
notebooks: setup ## execute the notebooks of examples/ and keep their outputs
	@$(OWNED) . -- .venv/bin/python scripts/notebooks.py $(ARGS)

.PHONY: wireshark
wireshark: ## have Wireshark and tshark dissect MRC: install tools/wireshark/mrc.lua for this user
	@install -D -m 644 tools/wireshark/mrc.lua "$(PLUGINS)/mrc.lua"
	@echo "installed $(PLUGINS)/mrc.lua"

.PHONY: fast
fast: setup ## build core, endpoint and simulated links as C (mypyc): less CPU per packet, all else the same
	@$(OWNED) . -- .venv/bin/python scripts/fast.py $(ARGS)

.PHONY: slow
slow: ## remove what `make fast` has built
	find testbed -name "*.so" -delete

.PHONY: setup
setup: ## install what is missing: system packages (root), .venv; the others do this first
	@$(OWNED) . -- scripts/setup.sh

.PHONY: clean
clean: slow ## remove .venv, .setup and caches; results stay
	rm -rf .venv .setup .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find testbed tests -name __pycache__ -prune -exec rm -rf {} +
