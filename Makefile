# Every command of the project; CONTRIBUTING.md says when to use which. All but `make docs` and `make lock` run `make setup` first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KERNELS := $(wildcard src/penstock/_kernels/*.pyx src/penstock/_kernels/*.pxd src/penstock/_kernels/*.h)
WORKERS ?= 3
MUTATE_WORKERS ?= 2
FAST_WORKERS ?= 3
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKS := requirements/build.txt requirements/development.txt
SECONDS ?= 60
KILLS ?= 100
SEQUENCES ?= 10000
INPUTS ?= 1000000
ATTACK_SECONDS ?= 600
N ?= 200
SEED ?= 1
BROKERS ?= 1
FAULTS ?= 20
SEEDS ?= 1000

# Tests start hundreds of processes: each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-cluster serve kafka test test-fast check format figures bench bench-broker bench-peers \
	bench-log bench-spark fuzz fuzz-rights fuzz-arrow sanitize attack crash crash-kafka crash-pipeline \
	soak-pipeline story mutate lock cluster audit sbom clean bench-nodes crash-groups wheel image-steps \
	dissector screenshots docs bench-console bench-groups bench-history bench-spark-kafka

help:
	@echo "make demo            run clients of all five protocols, their Spark tables, and a broker to try"
	@echo "make demo-cluster    lose one of two nodes and one of three Kafka brokers, count on a Spark cluster"
	@echo "make serve           run a broker on tcp://127.0.0.1:7000"
	@echo "make kafka           run Apache Kafka on this machine to try a log on it (BROKERS=3 for three)"
	@echo "make test-fast       run the quick tests: no Spark, Kafka, crash run or browser"
	@echo "make test            run every test"
	@echo "make check           run ruff, mypy and the layering test; look for vulnerable packages"
	@echo "make format          format the code"
	@echo "make fuzz-rights     compare access rules with a model in SEQUENCES=10000 random sequences"
	@echo "make fuzz            fuzz each codec, and Arrow, for SECONDS=60"
	@echo "make fuzz-arrow      send INPUTS=1000000 damaged inputs to everything that takes Arrow"
	@echo "make attack          run attackers beside well-behaved clients for ATTACK_SECONDS=600"
	@echo "make sanitize        run unit, conformance and fuzz tests with ASan and UBSan in the kernels"
	@echo "make crash           kill brokers under load for SECONDS=60, and cut their power"
	@echo "make crash-groups    SEEDS=1000 histories of a consumer group, KILLS=100 kills of a broker with one, and faults on disk and Kafka"
	@echo "make crash-kafka     kill, stop and replace nodes and Kafka brokers, fill disks, FAULTS=20 times, and count"
	@echo "make cluster         run a Spark job on a cluster of network namespaces (root), and a short demo-cluster"
	@echo "make crash-pipeline  kill drivers and brokers of pipelines KILLS=100 times, and count all messages"
	@echo "make soak-pipeline   measure 20 silver and 10 gold tables at 5,000 messages a second for SECONDS=600"
	@echo "make story           send two million messages through broker and pipeline, and count them"
	@echo "make bench           measure the codecs (ARGS=--save stores the results)"
	@echo "make bench-broker    measure the broker, compared with nats-server"
	@echo "make bench-peers     measure throughput and latency beside nats-server, JetStream, Redis and Mosquitto, in 20 to 25 minutes"
	@echo "make bench-log       measure the log, compared with JetStream"
	@echo "make bench-history   measure a replay of a rare topic, and the last messages of a million topics"
	@echo "make bench-console   measure the pages of the console, its cost to the broker, and the time to its first chart"
	@echo "make bench-nodes     measure nodes on Kafka: acknowledgments, the way to another node, costs"
	@echo "make bench-groups    measure consumer groups, compared with NATS, JetStream and Redis"
	@echo "make bench-spark     measure the data source, compared with Spark's Parquet reader"
	@echo "make bench-spark-kafka  measure the scan of a log on Kafka, compared with Spark's Kafka source"
	@echo "make figures         write the stored results into README.md and docs/"
	@echo "make docs            write the pages as a site to site/, with search and a reference"
	@echo "make screenshots     take the pictures of the console for docs/images"
	@echo "make mutate          put N=200 small faults into the code (SEED=1) and print those that no test notices"
	@echo "make lock            write requirements/ from pyproject.toml (ARGS=--upgrade for newer versions)"
	@echo "make audit           look for known vulnerabilities in the locked packages"
	@echo "make sbom            write sbom.json, the packages of a broker as CycloneDX"
	@echo "make wheel           build the wheels in dist/, for CPython 3.11 to 3.13 (ARGS=--install tries each)"
	@echo "make image-steps     run the steps of the container file in a folder, without an image"
	@echo "make dissector       write the Wireshark dissector from the layouts of the protocols"
	@echo "make clean           remove the virtual environment and everything built"

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml setup.py $(LOCKS) $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Penstock needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up: packages from PyPI, then kernels to compile. A few minutes, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --require-hashes --requirement requirements/build.txt
	@$(PIP_INSTALL) --require-hashes --no-build-isolation --requirement requirements/development.txt
	@$(BIN)/python -m pip uninstall -qqq --yes penstock # what the distribution was called before
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/fuzz-installed: $(VENV)/installed requirements/fuzz.txt
	$(PIP_INSTALL) --require-hashes --no-build-isolation --requirement requirements/fuzz.txt
	touch $@

# An environment of its own: the site needs neither Penstock's packages nor its kernels.
$(VENV)/docs/installed: requirements/docs.txt
	@$(PYTHON) -m venv $(VENV)/docs
	@$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

demo: setup
	@$(BIN)/python -m examples.demo $(ARGS)

demo-cluster: setup
	@$(BIN)/python -m examples.demo_cluster $(ARGS)

serve: setup
	@$(BIN)/penstock serve $(ARGS)

kafka: setup
	@$(BIN)/python -m tools.kafka --brokers $(BROKERS)

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope $(ARGS)

test-fast: setup
	$(BIN)/python -m pytest -n $(FAST_WORKERS) --dist loadscope -m "not (spark or kafka or crash or browser or slow)" --ignore tests/crash $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_lock.py
	$(BIN)/python -m tools.audit requirements/development.txt requirements/build.txt

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

figures: setup
	$(BIN)/python -m bench.figures

bench: setup
	$(BIN)/python -m bench.micro.codecs $(ARGS)

bench-broker: setup
	$(BIN)/python -m bench.run bench.macro.pubsub bench.macro.sizes bench.macro.latency bench.macro.many bench.macro.crowd -- $(ARGS)

bench-peers: setup
	$(BIN)/python -m bench.macro.brokers $(ARGS)

bench-log: setup
	$(BIN)/python -m bench.run bench.micro.log bench.macro.intake bench.macro.logged bench.macro.replay bench.macro.topics bench.macro.log_latency bench.macro.opening -- $(ARGS)

bench-history: setup
	$(BIN)/python -m bench.run bench.macro.rare_topic bench.macro.last_values -- $(ARGS)

bench-groups: setup
	$(BIN)/python -m bench.macro.groups $(ARGS)

bench-nodes: setup
	$(BIN)/python -m bench.run bench.macro.kafka_intake bench.macro.node_latency bench.macro.node_costs bench.macro.namespace_costs -- $(ARGS)

bench-spark-kafka: setup
	$(BIN)/python -m bench.spark.scan --only Kafka $(ARGS)

bench-console: setup
	$(BIN)/python -m bench.run bench.macro.first_chart bench.macro.console -- $(ARGS)

screenshots: setup
	mkdir -p docs/images
	PENSTOCK_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -n 0 tests/console -k "two_widths" $(ARGS)

docs: $(VENV)/docs/installed
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict $(ARGS)

fuzz-rights: setup
	$(BIN)/python -m tests.fuzz.rights_run --sequences $(SEQUENCES) $(ARGS)

fuzz: $(VENV)/fuzz-installed
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(ARGS)
	$(BIN)/python -m tests.fuzz.arrow --seconds $(SECONDS)

fuzz-arrow: setup
	$(BIN)/python -m tests.fuzz.arrow --inputs $(INPUTS) $(ARGS)

attack: setup
	$(BIN)/python -m tests.attack.run --seconds $(ATTACK_SECONDS) $(ARGS)

sanitize: setup
	$(BIN)/python -m tests.sanitize.run $(ARGS)

crash: setup
	PENSTOCK_CRASH_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -s --timeout $$((600 + 2 * $(SECONDS))) \
		tests/crash/test_kill.py tests/crash/test_merge_kill.py $(ARGS)
	PENSTOCK_POWER_CUTS=20 $(BIN)/python -m pytest -q -s --timeout 7200 tests/crash/test_power_cut.py $(ARGS)

crash-groups: setup
	PENSTOCK_SEEDS=$(SEEDS) $(BIN)/python -m pytest -q --timeout 7200 tests/sim/test_groups.py $(ARGS)
	PENSTOCK_GROUP_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s -n 0 --timeout $$((600 + 60 * $(KILLS))) \
		tests/crash/test_group_kill.py $(ARGS)
	PENSTOCK_GROUP_FAULTS=$(KILLS) $(BIN)/python -m pytest -q -s -n 0 --timeout $$((600 + 60 * $(KILLS))) \
		tests/crash/test_group_history.py $(ARGS)

crash-kafka: setup
	PENSTOCK_KAFKA_FAULTS=$(FAULTS) $(BIN)/python -m pytest -q -s -n 0 --timeout $$((600 + 60 * $(FAULTS))) \
		tests/crash/test_kafka_faults.py $(ARGS)

cluster: setup
	PENSTOCK_CLUSTER=1 $(BIN)/python -m pytest -q -n 0 --timeout 1800 tests/spark/test_package.py tests/examples/test_demo_cluster.py $(ARGS)

crash-pipeline: setup
	PENSTOCK_PIPELINE_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s --timeout $$((3600 + 120 * $(KILLS))) \
		tests/crash/test_pipeline_kill.py tests/crash/test_recipe_kill.py $(ARGS)

soak-pipeline: SECONDS = 600
soak-pipeline: setup
	$(BIN)/python -m bench.spark.soak --seconds $(SECONDS) $(ARGS)

story: setup
	$(BIN)/python -m tests.pipeline.story $(ARGS)

bench-spark: setup
	$(BIN)/python -m bench.run bench.spark.bronze bench.spark.scan -- $(ARGS)

mutate: setup
	$(BIN)/python -m tools.mutate --count $(N) --seed $(SEED) --workers $(MUTATE_WORKERS) $(ARGS)

lock:
	@test -x $(BIN)/uv || { test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); $(PIP_INSTALL) uv; }
	$(BIN)/python -m tools.lock $(ARGS)

audit: setup
	$(BIN)/python -m tools.audit requirements/*.txt

sbom: setup
	$(BIN)/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --output-reproducible \
		--index-url '' --output-file sbom.json

wheel: setup
	$(BIN)/python -m tools.wheel $(ARGS)

image-steps: setup
	$(BIN)/python -m tools.image_steps

dissector: setup
	$(BIN)/python -m tools.dissector

clean:
	rm -rf $(VENV) build dist site src/*.egg-info src/penstock/_kernels/*.c src/penstock/_kernels/*.so
