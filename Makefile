# Everything that a developer or a newcomer runs. Each target creates the virtual environment that it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Python compiles a module at its first import, which is faster than compiling all of scipy at installation.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

# One environment with three sets of packages: the demo and the examples need only fairlag, which installs in half the time.
BASE := $(VENV)/base.stamp
DEV := $(VENV)/dev.stamp
DOCS := $(VENV)/docs.stamp

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
# How many random worlds `make soak` tries, or the only one.
SEEDS ?= 1000
SEED ?=

.PHONY: help demo test test-slow test-all soak soak-kills soak-damage soak-deployment lint format bench bench-peers fidelity load examples docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# One worker: for such a small model, starting more takes longer than they save.
demo: $(BASE) ## Train FedAvg, FedStaleWeight and FairShare on the paper's fleet, and write a report
	rm -rf demo-run
	$(BIN)/fairlag run demo --workers 1 --out demo-run
	$(BIN)/fairlag report demo-run --out demo-run/report.html

test: $(DEV) ## Run the fast tests and the examples in docstrings
	$(BIN)/pytest -n auto

# pytest's exit code 5 means that no test is marked slow, which is not a failure.
test-slow: $(DEV) ## Run only the slow tests
	$(BIN)/pytest -n auto -m slow --durations 15 || [ $$? -eq 5 ]

test-all: $(DEV) ## Run every test, fast and slow
	$(BIN)/pytest -n auto -m ""

soak: $(DEV) ## Try random faults in random worlds: SEEDS=10000, or one that failed: SEED=17
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# SEED=1 chooses other moments and places.
soak-kills: $(DEV) ## Kill runs at random (KILLS=200): after a resume, the same bytes
	KILLS=$(or $(KILLS),200) $(BIN)/pytest -q -s -m slow tests/test_soak_kills.py

soak-damage: $(DEV) ## Damage files of runs, plans and sweeps at random (DAMAGES=1000 per kind): the same answer, or a sentence
	DAMAGES=$(or $(DAMAGES),1000) $(BIN)/pytest -q -s -m slow tests/test_soak_damage.py

# SEED=1 draws other faults; FOLDER must be new.
soak-deployment: $(DEV) ## Kill, end and freeze the parts of a real federation on loopback for MINUTES=120, and check its record
	$(BIN)/python -m tests.soak_deployment --minutes $(or $(MINUTES),120) --seed $(or $(SEED),0) --folder $(or $(FOLDER),soak-deployment)

lint: $(DEV) ## Check format, lint rules, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## Format the code and apply the linter's automatic fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(DEV) ## Measure the speed of the timeline, training, large fleets and secure aggregation, each beside a baseline
	$(BIN)/python benchmarks/timeline.py
	$(BIN)/python benchmarks/timeline.py --store
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/privacy.py

FIDELITY := fidelity-runs
MEASURE := $(BIN)/python -m benchmarks.fidelity.measure $(FIDELITY)
SIX := --fast 4 --slow 2 --buffer 3 --queued 2 --port 9730

# A folder that already has a run is not measured again, and `make clean` keeps it. Both federations run at the same
# time, and so do their calibrations: the overhead then is that of an equally busy machine.
fidelity: $(DEV) ## Compare real federations on loopback with simulations of their fleets (an hour and three quarters)
	test -e $(FIDELITY)/threads/run || $(MEASURE)/threads --threads --unit 1 --seconds 720
	(test -e $(FIDELITY)/queued-2/run || $(MEASURE)/queued-2 --seconds 4500 $(SIX)) & \
	    (test -e $(FIDELITY)/queued-1/run || $(MEASURE)/queued-1 --seconds 4500); wait
	(test -e $(FIDELITY)/queued-2/calibration/run || $(MEASURE)/queued-2/calibration --seconds 400 $(SIX)) & \
	    (test -e $(FIDELITY)/queued-1/calibration/run || $(MEASURE)/queued-1/calibration --seconds 400); wait
	$(BIN)/python -m benchmarks.fidelity.compare $(FIDELITY)/threads $(FIDELITY)/queued-1 $(FIDELITY)/queued-2 \
	    --training 4 --figure docs/fidelity.png

LOAD := load-runs

# A folder that already has a summary is not measured again, and `make clean` keeps it.
load: $(DEV) ## Measure a deployment with 200 nodes in memory, one with 20 real nodes, and 200 readers (two and a half hours)
	test -e $(LOAD)/memory/summary.json || $(BIN)/python -m benchmarks.load.memory $(LOAD)/memory
	test -e $(LOAD)/real/paced/summary.json || $(BIN)/python -m benchmarks.load.real $(LOAD)/real
	$(BIN)/python -m benchmarks.load.readers $(LOAD)/readers

bench-peers: $(DEV) ## Measure fairlag beside its peers, each in its own environment (gigabytes, half an hour)
	$(BIN)/python benchmarks/peers/run.py

# A slow test runs the notebook: it needs Jupyter, which only the developers' environment has.
examples: $(BASE) ## Run every example script
	@set -e; for example in $(sort $(wildcard examples/*.py)); do \
	    echo "$(BIN)/python $$example"; $(BIN)/python "$$example"; \
	done

# The site can be opened as files. Only its search needs a server, such as `python -m http.server -d site`.
docs: $(DOCS) ## Build the documentation site in site/; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove the virtual environment, caches, the site and the demo's output
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist demo-run site
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "fairlag needs Python 3.11 or newer with its venv module, but '$(PYTHON)' does not have them:" \
	        "install it (on Debian, also the package python3-venv) or choose another Python with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(BASE): pyproject.toml constraints.txt | $(VENV)/made.stamp
	$(INSTALL) -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)/made.stamp
	$(INSTALL) -e '.[dev]'
	@touch $(BASE) $@

$(DOCS): pyproject.toml constraints.txt | $(VENV)/made.stamp
	$(INSTALL) -e '.[docs]'
	@touch $(BASE) $@
