# Everything a person does with a checkout. `make` alone lists it.

PYTHON      ?= $(shell command -v python3.11 || command -v python3)
VENV        := .venv
BIN         := $(VENV)/bin
INSTALLED   := $(VENV)/.installed
CASES       ?= 200000
SEED        ?= 1
CHECKED     := conductor workers models tasks
TYPED       := $(CHECKED) tests/environment tests/house
LOCK        := $(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --no-header \
               --generate-hashes --no-emit-index-url --no-emit-find-links \
               --no-emit-trusted-host --no-emit-options

.DEFAULT_GOAL := help
.PHONY: help install hypervisor real-guests demo demo-vm test check format bench chaos prove services stop lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## create .venv with exactly what the lock file names

demo: $(INSTALLED) ## see the main job done, in one process, with simulated hosts
	@$(BIN)/conductor demo

demo-vm: $(INSTALLED) hypervisor services ## see real guests on two libvirt hosts: built, pinned, moved, shelved (root)
	@$(BIN)/python -m tests.hypervisors.demo_vm

test: $(INSTALLED) services real-guests ## run every test, on real RabbitMQ, PostgreSQL and Redis too
	@$(BIN)/python -m tests.halves

check: $(INSTALLED) ## style, formatting, types, words and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house.words
	$(BIN)/python -m tests.house.importable

format: $(INSTALLED) ## rewrite the code in the house format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(INSTALLED) services ## measure speed and memory; a table, and JSON in .benchmarks/
	@$(BIN)/pytest tests/benchmarks --timeout=900 --override-ini 'python_files=bench_*.py' -s

chaos: $(INSTALLED) services ## the long forms of the crash tests
	@$(BIN)/pytest -m chaos --timeout=1800

prove: $(INSTALLED) ## compare the fitter with an oracle on CASES (200000) cases; property tests at length
	@$(BIN)/python -m tests.hardware.prove --cases $(CASES) --seed $(SEED)
	@$(BIN)/pytest -m hypothesis --timeout=1800 --hypothesis-profile=prove

hypervisor: $(INSTALLED) ## install QEMU, libvirt and its Python binding (Debian, root)
	@deploy/hypervisor/install --binding $(BIN)/python

# Tests of real guests are skipped where they cannot be had, unless they are required.
real-guests: $(INSTALLED)
	@deploy/hypervisor/install --binding $(BIN)/python || [ "$$TEST_HYPERVISORS" != required ]

services: ## find RabbitMQ, PostgreSQL and Redis on localhost, else start private ones
	@$(PYTHON) -m tests.environment ensure

stop: ## stop the private services that `make services` started
	@$(PYTHON) -m tests.environment stop

lock: $(INSTALLED) ## choose dependency versions anew and write the lock files
	$(LOCK) --upgrade --output-file requirements.lock pyproject.toml
	$(LOCK) --upgrade --extra dev --constraint requirements.lock \
	  --output-file requirements-dev.lock pyproject.toml
	printf '%s\n' 'libvirt-python>=9.0' | $(LOCK) --upgrade --output-file deploy/hypervisor/requirements.txt -
	printf '%s\n' openstack-placement psycopg2-binary | $(LOCK) --upgrade \
	  --output-file tests/environment/placement-requirements.txt -

clean: stop ## remove the environment and all that a run leaves behind
	rm -rf $(VENV) .venv-placement .venv-placement.lock .mypy_cache .ruff_cache .pytest_cache \
	  .import_linter_cache .hypothesis .benchmarks .services.env build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements-dev.lock pyproject.toml deploy/install
	@deploy/install "$(PYTHON)" $(VENV)
	@touch $@
