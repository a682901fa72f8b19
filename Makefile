# Penstock. The first use of any target makes the virtual environment and installs into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := shared services/metrics services/decider services/executor services/worker services/orchestrator services/pipeline services/console cli testing bundle

.DEFAULT_GOAL := help
.PHONY: docs-screenshots help install demo workflow-example celery-example test long-test compose-test upgrade-test chaos programs turnover exact kills check audit bench clean wheels lock docs

help:  ## what one can do here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

install: $(READY)  ## make the virtual environment (the other targets do this themselves)

$(READY): requirements.lock requirements-build.lock $(addsuffix /pyproject.toml,$(PACKAGES))
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Penstock needs Python 3.11 or newer, this is {v.major}.{v.minor}; run: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes a minute or two: pyspark is large)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-build.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(addprefix -e ,$(PACKAGES))
	@touch $@

demo: $(READY)  ## the main job: load that rises, bursts and falls, with failures; ends with a report
	@$(BIN)/python examples/demo.py

workflow-example: $(READY)  ## a Spark pipeline as workflows, declared and coded: run, branched, accepted, shown (1 min)
	@$(BIN)/python examples/workflows/run.py

celery-example: $(READY)  ## an unmodified Celery app, its workers started and ended by Penstock (needs redis-server; 1 min)
	@$(BIN)/python examples/celery/run.py

test: $(READY)  ## PROCESSES=4: unit, contract and integration tests on a real broker and real Spark (10 min)
	@$(BIN)/python -m pytest tests --numprocesses $(or $(PROCESSES),4) --dist loadfile --no-loadscope-reorder

long-test: $(READY)  ## ONE_IN=1 SEED=1: both buses, floods of forged messages, kills, chaos; ONE_IN=4 runs a quarter of them
	@$(BIN)/python -m pytest tests -m long --one-in $(or $(ONE_IN),1) --sample-seed $(or $(SEED),1) \
	  --numprocesses $(or $(PROCESSES),3) --dist loadfile --no-loadscope-reorder

compose-test: $(READY)  ## the compose stack on a Docker engine: load, kills, a partition, a rolling restart (10 min)
	@$(BIN)/python -m pytest tests/compose

chaos: $(READY)  ## RUNS=20 SEED=1 BESIDE=1 WORKFLOWS=10 FAULTS=: seeded faults under load; each run prints its verdict
	@$(BIN)/python -m tests.chaos --runs $(or $(RUNS),20) --seed $(or $(SEED),1) --beside $(or $(BESIDE),1) --workflows $(or $(WORKFLOWS),10) $(if $(FAULTS),--faults $(FAULTS))

programs: $(READY)  ## RUNS=1000 SEED=1 BESIDE=1 INTO=: random workflows, a process killed at each message they store; prints JSON
	@$(BIN)/python -m tests.programs --runs $(or $(RUNS),1000) --seed $(or $(SEED),1) --beside $(or $(BESIDE),1) $(if $(INTO),--into $(INTO))

turnover: $(READY)  ## JOBS=2000 MINUTES=4 SEED=1 REPLICAS=1: living jobs in every state outlast a small event log, under kills
	@$(BIN)/python -m tests.turnover --jobs $(or $(JOBS),2000) --minutes $(or $(MINUTES),4) --seed $(or $(SEED),1) --replicas $(or $(REPLICAS),1)

upgrade-test: $(READY)  ## an installation of the version before, with living jobs, is taken over (2 min; needs the git history)
	@UPGRADE_TEST=1 $(BIN)/python -m pytest tests/upgrade

exact: $(READY)  ## CONFIGURATIONS=10000 SEED=1: generated settings and measurements, decided and recomputed equal
	@$(BIN)/python -m tests.exactness --configurations $(or $(CONFIGURATIONS),10000) --seed $(or $(SEED),1)

kills: $(READY)  ## KILLS=20 SEED=1: the pipeline's processes and its broker, and ten times as often the console, are killed, seeded
	@CONSOLE_LOG_BYTES=8_000_000_000 CONSOLE_JOBS=5000 CONSOLE_KILLS=$$((10 * $(or $(KILLS),20))) CONSOLE_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -s -m long tests/integration/test_console_kills.py
	@PIPELINE_KILLS=$(or $(KILLS),20) PIPELINE_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -s -m long tests/integration/pipeline/test_pipeline_killed.py

check: $(READY)  ## style, types, import contracts, generated docs, language, locks, bill of materials
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python docs/language.py
	@$(BIN)/python deploy/lock.py --check
	@$(BIN)/python deploy/sbom.py --check

audit: $(READY)  ## ADVISORIES=zip-or-folder: known advisories of what is pinned (OSV format, or pip-audit; else skipped)
	@$(BIN)/python deploy/audit.py $(ADVISORIES)

docs-screenshots: $(READY)  ## new pictures of the console's pages in docs/images (needs chromium; 1 min)
	@CONSOLE_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/integration/test_console_in_browser.py -k every_page

docs: $(READY)  ## write the generated pages (events, settings)
	@$(BIN)/python docs/generate.py

bench: $(READY)  ## throughput, pickup and spawn figures, as JSON
	@$(BIN)/python benchmarks/throughput.py
	@$(BIN)/python benchmarks/dispatch.py
	@$(BIN)/python benchmarks/spawn.py

peers: $(READY)  ## the same work beside other job systems, as JSON (10 min; makes their environments and fetches Redis)
	@$(BIN)/python benchmarks/peers.py

wheels: $(READY)  ## build all distributions into dist/, and print how to install them elsewhere
	@rm -rf dist $(addsuffix /build,$(PACKAGES))
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist $(addprefix ./,$(PACKAGES))
	@rm -rf $(addsuffix /build,$(PACKAGES))
	@echo "in your project's environment: pip install --find-links $(CURDIR)/dist $(CURDIR)/$$(echo dist/penstock-[0-9]*.whl)"

lock:  ## pin requirements.in anew, with hashes and without any address
	@for f in requirements requirements-build $(basename $(wildcard benchmarks/peers/requirements-*.in)); do uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $$f.in -o $$f.lock; done
	@$(BIN)/python deploy/lock.py
	@$(BIN)/python deploy/sbom.py

clean:  ## remove the virtual environment and everything made
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-report.*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} + ; find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
