# Every target is one line: what it does is in scripts/, and CI runs the same scripts.
# `make PYTHON=python3.12 TARGET` makes .venv with that Python; without it the first that is new enough is taken.

PYTHON ?=
export PYTHON

.PHONY: help install run test check format test-llm test-crash test-hostile test-outages test-simulation test-failover test-sidecars test-histories test-languages clients-table test-recall bench quality coverage release protos config-docs designs weights lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## create .venv and install what the product needs, from the hash-pinned lock
	@scripts/install runtime

run: install ## the main job, end to end, on a temporary log
	@.venv/bin/abridged demo

test: ## all tests but the long and the measuring ones
	@scripts/test

check: ## format, lint, types, import rules, protos, drift, tidiness
	@scripts/check

format: ## rewrite the sources in the one format
	@scripts/install dev
	@.venv/bin/ruff check --fix-only --quiet . && .venv/bin/ruff format .

test-llm: ## the tests that ask a real small model
	@scripts/install dev recall llm
	@scripts/test -m llm

test-crash: ## the long kill -9 run
	@scripts/test -m crash_long

test-hostile: ## the long attacks: floods, power cuts, flipped bits, a greedy tenant
	@scripts/test -m hostile

test-simulation: ## ten thousand runs of several sidecars on one log, with kills, stops and lost answers
	@SIMULATION_SEEDS=10000 scripts/test -q -n 2 tests/unit/passes/test_fleet.py

test-failover: ## two hundred losses of a PostgreSQL primary under load
	@FAILOVER_ROUNDS=200 scripts/test -q tests/integration/test_failover.py

test-sidecars: ## four sidecars on one PostgreSQL: 20,000 passes under kills and stops, a million events; `make test-sidecars TRIGGERS=N EVENTS=N`
	@SIDECAR_TRIGGERS=$(or $(TRIGGERS),20000) SIDECAR_EVENTS=$(or $(EVENTS),1000000) scripts/test -q tests/e2e/test_struck_sidecars.py tests/integration/test_log_processes.py

test-outages: ## ten thousand random chats in outages, against the rules alone
	@OUTAGE_CHATS=10000 scripts/test -q -n 2 tests/unit/domain/test_outages.py

test-histories: ## ten thousand random chats and histories that are revoked, pinned and rewound, two thousand that branch
	@SIMULATED_CHATS=10000 HISTORIES=10000 BRANCHING_HISTORIES=2000 scripts/test -q -n 2 tests/unit/domain/test_simulator.py tests/unit/domain/test_amendments_fold.py tests/integration/test_branching_histories.py

test-languages: ## the examples in six languages and their fits, and the table of cases; fetches their packages
	@scripts/test -q -rs -m languages tests/languages

clients-table: ## the same, and write what was seen into docs/clients.md
	@WRITE_CLIENTS_TABLE=1 scripts/test -q -rs -m languages tests/languages

test-recall: ## how well searches find what has left the window, on the shared chats
	@scripts/test -q -m recall tests/quality

release: ## what a release consists of, in dist/, and its contract beside the protos
	@scripts/release

bench: install ## measure, beside bare gRPC and bare SQLite
	@.venv/bin/abridged bench

quality: ## measure what windows still know, and write docs/quality.md; `make quality DATA=FOLDER BEAM=FOLDER` with real chats
	@scripts/install dev recall
	@.venv/bin/abridged bench --only quality $(if $(DATA),--data $(DATA)) > docs/quality.md
	@$(if $(BEAM),echo >> docs/quality.md; .venv/bin/abridged bench --only beam --data $(BEAM) >> docs/quality.md)

coverage: ## branch coverage of the in-process tests
	@scripts/install dev recall
	@.venv/bin/coverage run -m pytest -q tests/unit tests/conformance tests/integration && .venv/bin/coverage report

protos: ## generate the contract's Python code
	@scripts/install dev
	@scripts/gen-protos

designs: ## play the presets, and write the table of docs/designs.md
	@scripts/install dev recall
	@scripts/gen-designs

config-docs: ## generate docs/configuration.md
	@scripts/install dev
	@scripts/gen-config-docs

weights: ## train the models that find standing rules
	@scripts/install dev recall
	@scripts/gen-weights

lock: ## pin all packages again; `make lock UPGRADE=1` for the newest
	@scripts/install dev
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## remove what the other targets made
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
