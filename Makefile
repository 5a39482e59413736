# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNELS := $(VENV)/.compiled
JARS := .jars/.brought
PYTEST := $(BIN)/python -m pytest -n $(or $(JOBS),2) --dist loadscope --no-loadscope-reorder

.PHONY: demo test quick kills fuzz crash lint bench wheel jars clean java maven python
.DEFAULT_GOAL := help

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "semistream needs Python 3.11 or newer; '$(PYTHON)' is not. Install it:"; \
	  echo "  Debian, Ubuntu: sudo apt-get install python3.11 python3.11-venv    macOS: brew install python@3.11"; \
	  echo "and name it: make PYTHON=python3.11 ..."; exit 1; }

java:
	@version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ -z "$$version" ] || [ "$$version" -lt 17 ]; then \
	  echo "Spark needs Java 17 or newer; found $${version:-none}. Install it:"; \
	  echo "  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless    macOS: brew install openjdk@17"; exit 1; fi

maven:
	@command -v mvn >/dev/null 2>&1 || { \
	  echo "The tests with Kafka and Delta take jars that Maven brings; there is no 'mvn'. Install it:"; \
	  echo "  Debian, Ubuntu: sudo apt-get install maven    macOS: brew install maven"; exit 1; }

$(STAMP): pyproject.toml constraints.txt | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[spark,delta,plot,bench,dev]'
	@touch $@

$(KERNELS): $(STAMP) $(shell find src -name '*.py')
	$(BIN)/semistream compile
	@touch $@

$(JARS): kafka/pom.xml | java maven
	rm -rf .jars
	mvn -B -q -f kafka/pom.xml -P broker dependency:copy-dependencies
	mvn -B -q -f kafka/pom.xml -P spark dependency:copy-dependencies
	@touch $@

demo: java $(KERNELS)  ## install, then run the demo pipeline on local Spark
	$(BIN)/semistream demo

jars: $(JARS)  ## the jars of a Kafka broker, and of Spark's connectors for Kafka and Delta, for the tests

test: java $(KERNELS) $(JARS) lint  ## install, then check style, types and imports, and run all tests
	$(PYTEST)

quick: $(KERNELS) lint  ## the inner loop: style, types, imports, and the tests that need no JVM and no patience
	$(PYTEST) -m "not spark and not slow"

kills: java $(KERNELS)  ## kill pipelines at random and compare their tables with an oracle (KILLS=200 SEED=1 MINUTES=90)
	$(BIN)/python -m tests.faults --kills $(or $(KILLS),200) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),90)

crash: $(KERNELS)  ## cut the power at random and check what the disk is left with (STATES=2000 SEED=1; one: CUT=name SEED=1)
	$(BIN)/python -m tests.crash --states $(or $(STATES),2000) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2) $(if $(CUT),--cut '$(CUT)')

simulate: $(KERNELS)  ## run simulated histories of pipelines, without Spark, and check their tables (HISTORIES=1000 SEED=1)
	$(BIN)/python -m tests.simulation --histories $(or $(HISTORIES),1000) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),60)

fuzz: $(KERNELS)  ## hostile bytes for all that is parsed, guided by coverage (MINUTES=10 KINDS="yaml where")
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(KINDS),--kinds $(KINDS))

lint: $(STAMP)  ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: java $(KERNELS)  ## measure semistream beside its peers (SCALE=0.1 for a quick run)
	$(BIN)/python -m benchmarks --scale $(or $(SCALE),1)

wheel: $(STAMP)  ## the wheel in dist/, with kernels compiled for common processors
	rm -rf src/semistream/kernels/compiler/objects
	for level in x86-64-v3 x86-64-v4; do \
	  $(BIN)/semistream compile --level $$level --into src/semistream/kernels/compiler/objects || exit 1; done
	rm -rf src/semistream/kernels/compiler/objects/locks
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	rm -rf src/semistream/kernels/compiler/objects

clean:  ## remove all that make has made
	rm -rf $(VENV) .jars dist src/semistream/kernels/compiler/objects demo-out bench-out fuzz-out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
