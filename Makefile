# Everything runs in .venv, which is made on first use. `make test PYTHON=python3.13` runs in .venv-3.13 instead, with that interpreter.
PYTHON ?= python3
ifeq ($(origin PYTHON),command line)
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
else
VENV := .venv
endif
INPUT ?=
ARGS ?=
SEEDS ?= 2000
ELASTIC_SEEDS ?= 400
SESSION_SEEDS ?= 300
SECONDS ?= 60
PY := $(VENV)/bin/python
JVM_CLASSES := $(VENV)/spark-classes.jsa
IN_MEMORY := sh scripts/with-files-in-memory
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.ready
OF_NAMES := tests/test_tidy.py tests/test_mirror.py tests/unit/engine/model/test_own_places.py  # `make check` has them
CHECKED := $(OF_NAMES:%=--ignore=%)

# Each process compiles all of Penstock anew where Python may keep nothing of it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-servers test-kubernetes test-all check sim bench peers differential foreign soak chaos demo browser plan q5 docs dist clean java postgres mariadb zookeeper redis mosquitto nats rabbitmq object-stores prometheus chromium kafka hadoop lakehouse-readers kubernetes

run: $(INSTALLED) java
	$(PY) examples/word_count.py $(if $(INPUT),--input "$(INPUT)") $(ARGS)

q5: $(INSTALLED) java
	$(PY) examples/nexmark_q5.py $(ARGS)

# Tests in one process at a time share the cores. Those with real processes come after them, two at a time, which keeps two cores
# busy (three take as long): each file in one worker, so that its tests share a Spark, and in the files' order, for the longest is the
# first. (With this pytest xdist's loadgroup does not see groups: it spreads single tests, and Spark starts anew all the time.)
# 5: nothing was selected.
SERVERS := postgres mariadb zookeeper redis mosquitto nats rabbitmq object-stores kafka hadoop lakehouse-readers
WITH_SPARK := tests/chaos tests/dashboard tests/docs tests/spark
test: $(STAMP) java $(JVM_CLASSES) chromium
	$(IN_MEMORY) $(PY) -m pytest $(CHECKED) -m "not spark and not browser and not long and not foreign and not server" -n 5 --dist worksteal --max-worker-restart 2 $(ARGS) || [ $$? = 5 ]
	$(PY) -m pytest $(WITH_SPARK) -m "(spark or browser) and not long and not foreign and not server" -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 2 $(ARGS) || [ $$? = 5 ]

# With real brokers, databases and clusters: a file's tests share one. Three files at once, each with a cluster of its own, starve two cores.
test-servers: $(STAMP) java $(JVM_CLASSES) $(SERVERS)
	$(IN_MEMORY) $(PY) -m pytest -m "server and not long and not kubernetes" -n 2 --dist loadfile --max-worker-restart 2 $(ARGS) || [ $$? = 5 ]

# On nodes of Kubernetes itself, which are built on first use and kept in the virtual environment.
test-kubernetes: $(STAMP) kubernetes
	$(PY) -m pytest tests/kubernetes -m "kubernetes and not long" $(ARGS)

# Random row functions against the interpreter, PENSTOCK_FUNCTIONS of each kind (100000).
fuzz:
	$(PY) -m pytest tests/unit/engine/runtime/row_functions -m long -n 2 -rP -o faulthandler_timeout=14400 $(ARGS)

# What is too long for every run besides: more tests, and more examples of each law.
test-all: test test-servers
	$(PY) -m pytest -m "long and not foreign" $(ARGS) || [ $$? = 5 ]
	PENSTOCK_EXAMPLES=500 $(IN_MEMORY) $(PY) -m pytest tests/property -m "not long" -n 2 --dist worksteal $(ARGS)

check: $(STAMP) $(VENV)/.pyright-ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests/typing
	$(VENV)/bin/pyright
	$(PY) -m scripts.check_dashboard
	$(VENV)/bin/lint-imports
	$(PY) -m pytest $(OF_NAMES)

sim: $(STAMP)
	$(PY) -m simulation --seeds $(SEEDS) $(ARGS)
	$(PY) -m simulation --seeds $(ELASTIC_SEEDS) --elastic $(ARGS)
	$(PY) -m simulation session --seeds $(SESSION_SEEDS)

MINUTES ?= 10
soak: $(STAMP) java
	$(PY) -m benchmarks.soak --minutes $(MINUTES)

chaos: $(STAMP) java
	$(PY) -m audit --seconds $(SECONDS) $(ARGS)

bench: $(STAMP) java
	$(PY) -m benchmarks $(ARGS)

peers: $(STAMP) java
	$(PY) -m benchmarks.peers $(ARGS)

# Random programs on true PyFlink and here: what differs has to stand on the compatibility page. Then archives of jobs: Flink's own
# history server reads ours, and ours reads Flink's.
PROGRAMS ?= 500
differential: $(STAMP) java
	$(PY) -m differential --programs $(PROGRAMS) $(ARGS)
	$(PY) -m differential.flink_history

# Flink's own programs, Prometheus and Chromium, unchanged, against jobs of Penstock. Flink comes from PyPI, the others from the system.
foreign: $(STAMP) java prometheus chromium
	$(PY) -m pytest -m foreign $(ARGS)

# A job that can be made ill from its dashboard.
demo: $(STAMP) java
	$(PY) examples/demo.py

# Every page of the dashboard in each of its states.
browser: $(STAMP) chromium
	$(PY) -m pytest -m browser -n 2 --dist loadfile $(ARGS)

plan: $(INSTALLED)
	$(VENV)/bin/penstock plan examples/word_count.py --taskmanagers 2 --slots 3

# pyright brings a Node.js along, which only this needs.
$(VENV)/.pyright-ready: $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[pyright]'
	@touch $@

# The documentation as web pages, in site/. Broken links and anchors are errors.
docs: $(VENV)/.docs-ready
	$(PY) -m scripts.state_diagrams
	$(PY) -m scripts.reference_pages
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

$(VENV)/.docs-ready: $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

# A wheel and an sdist in dist/, looked at as a package index would.
dist: $(STAMP)
	rm -rf dist
	$(PY) -m build --no-isolation
	$(PY) -m twine check --strict dist/*

java:
	@sh scripts/ensure-java

# What JVMs are started with; without it they are slower, and nothing else.
$(JVM_CLASSES): $(INSTALLED) | java
	@echo "penstock: writing an archive of Spark's classes, so that it starts in half the time ..."
	@$(PY) -m penstock.engine.hosting.spark.class_archive >/dev/null 2>&1 || true
	@touch $@

postgres:
	@sh scripts/ensure-postgres

mariadb:
	@sh scripts/ensure-mariadb

zookeeper:
	@sh scripts/ensure-zookeeper

mosquitto:
	@sh scripts/ensure-mosquitto

rabbitmq:
	@sh scripts/ensure-rabbitmq

redis:
	@sh scripts/ensure-redis

nats:
	@sh scripts/ensure-nats

object-stores:
	@sh scripts/ensure-object-stores

kafka: $(STAMP)
	@sh scripts/ensure-jars "$(VENV)" kafka-4.3.1 org.apache.kafka:kafka_2.13:4.3.1 org.apache.kafka:kafka-tools:4.3.1

# Of the version of PySpark's own client. Without a logger the daemons log nothing, and without Bouncy Castle the ResourceManager ends.
hadoop: $(STAMP)
	@sh scripts/ensure-jars "$(VENV)" hadoop-3.5.0 org.apache.hadoop:hadoop-client-minicluster:3.5.0 \
		org.slf4j:slf4j-reload4j:1.7.36 org.bouncycastle:bcpkix-jdk18on:1.82

lakehouse-readers: $(STAMP)
	@sh scripts/ensure-lakehouse-readers "$(VENV)"

kubernetes: $(STAMP)
	@sh scripts/ensure-kubernetes "$(VENV)"

prometheus:
	@sh scripts/ensure-prometheus

chromium:
	@sh scripts/ensure-chromium

# What programs need.
$(INSTALLED): pyproject.toml constraints.txt
	@sh scripts/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

# What tests and checks need besides.
$(STAMP): $(INSTALLED)
	@sh scripts/make-venv "$(PYTHON)" "$(VENV)" dev
	@touch $@

clean:
	rm -rf .venv .venv-* site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
