# Every command a newcomer needs. `make setup` is run by all of them and costs nothing when done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KERNELS := $(wildcard src/penstock/_kernels/*.pyx src/penstock/_kernels/*.pxd src/penstock/_kernels/*.h)
WORKERS ?= 2
SECONDS ?= 60
KILLS ?= 10

.PHONY: help setup demo serve test check format bench bench-broker bench-log bench-spark fuzz crash crash-pipeline story clean

help:
	@echo "make demo     a story in five protocols, its Spark tables, and a broker to try"
	@echo "make serve    run a broker on tcp://127.0.0.1:7000"
	@echo "make test     set up and run every test"
	@echo "make check    ruff, mypy and the layering test"
	@echo "make bench    measure the codecs (ARGS=--save keeps the figures)"
	@echo "make bench-broker   measure the broker beside nats-server (Debian's package)"
	@echo "make bench-log      measure the log, beside JetStream where it has a part"
	@echo "make fuzz     fuzz each codec (SECONDS=60 for each)"
	@echo "make bench-spark    measure the data source beside Spark's Parquet reader"
	@echo "make crash    kill brokers under load (SECONDS=60 of it), and cut their power"
	@echo "make crash-pipeline kill the pipeline's driver, each job KILLS=10 times, and its broker"
	@echo "make story    two million messages of five protocols into tables, counted at both ends"
	@echo "make format   format the code"
	@echo "make clean    remove what was built"

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml setup.py $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Penstock needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up: packages from PyPI, then kernels to compile. A few minutes, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,test,check]'
	touch $@

$(VENV)/fuzz-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

demo: setup
	@$(BIN)/python -m examples.demo $(ARGS)

serve: setup
	@$(BIN)/penstock serve $(ARGS)

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m bench.micro.codecs $(ARGS)

bench-broker: setup
	$(BIN)/python -m bench.macro.pubsub $(ARGS)
	$(BIN)/python -m bench.macro.latency $(ARGS)
	$(BIN)/python -m bench.macro.crowd $(ARGS)

bench-log: setup
	$(BIN)/python -m bench.micro.log $(ARGS)
	$(BIN)/python -m bench.macro.intake $(ARGS)
	$(BIN)/python -m bench.macro.logged $(ARGS)
	$(BIN)/python -m bench.macro.replay $(ARGS)
	$(BIN)/python -m bench.macro.topics $(ARGS)
	$(BIN)/python -m bench.macro.log_latency $(ARGS)
	$(BIN)/python -m bench.macro.opening $(ARGS)

fuzz: $(VENV)/fuzz-installed
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(ARGS)

crash: setup
	PENSTOCK_CRASH_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -s tests/crash/test_kill.py $(ARGS)
	PENSTOCK_POWER_CUTS=20 $(BIN)/python -m pytest -q -s tests/crash/test_power_cut.py $(ARGS)

crash-pipeline: setup
	PENSTOCK_PIPELINE_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/crash/test_pipeline_kill.py $(ARGS)

story: setup
	$(BIN)/python -m tests.pipeline.story $(ARGS)

bench-spark: setup
	$(BIN)/python -m bench.spark.bronze $(ARGS)
	$(BIN)/python -m bench.spark.scan $(ARGS)

clean:
	rm -rf $(VENV) build src/*.egg-info src/penstock/_kernels/*.c src/penstock/_kernels/*.so
