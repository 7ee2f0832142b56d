"""Settings that every test shares."""

from __future__ import annotations

import faulthandler
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pytest_timeout import Settings

    from tests.support.commands import Commands
    from tools.kafka import KafkaBroker

TESTS = Path(__file__).parent
CRASH = TESTS / "crash"
SLOW = (
    "bench/test_log_bench.py",
    "bench/test_macro.py",
    "deploy/test_dissector.py",
    "examples/test_command_line.py",
    "examples/test_configuration.py",
    "examples/test_first_hour.py",
    "examples/test_kit_pages.py",
    "fuzz/test_short_pass.py",
    "interop/test_abuse.py",
    "interop/test_flight_beside.py",
    "interop/test_flight_retries.py",
    "interop/test_flight_sink.py",
    "interop/test_http_access.py",
    "sim/test_simulation.py",
    "sixth/test_sixth.py",
    "spark/test_stderr_filter.py",
    "tools/test_wheel.py",
    "unit/cli/test_arguments.py",
    "unit/cli/bench/test_bench.py",
    "unit/cli/messages/test_reply.py",
    "unit/cli/messages/test_sub.py",
    "unit/cli/monitor/test_top.py",
    "unit/cli/test_commands.py",
    "unit/cli/test_conform.py",
    "unit/cli/test_serve.py",
    "unit/kernels/test_agreement.py",
    "unit/kernels/test_stored.py",
    "unit/storage/test_dictionaries.py",
    "unit/storage/test_recovery.py",
    "unit/storage/test_verify.py",
    "unit/test_layers.py",
    "unit/transport/test_stdio.py",
)
"""The modules that take longest without Spark or a crash run: `make test-fast` leaves them out."""

LONG_SECONDS = {"slow": 300, "kafka": 300, "spark": 600, "crash": 600, "browser": 600}
"""Time-outs of tests with these markers; `timeout` in pyproject.toml is that of all others."""
EXIT_SECONDS = 10
"""How long pytest-timeout may take to end the process, until faulthandler ends it."""

STDERR = pytest.StashKey[int]()

# The same examples on every run, and no verdict on how busy the machine is: `make fuzz` is for
# inputs nobody has tried, `make test` must fail only when something broke.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr: file descriptor 2 is captured while a test runs."""
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what `pytest_configure` opened."""
    os.close(config.stash[STDERR])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests for `make test-fast`; run those that share Spark or Kafka in one process each.

    Give long tests a longer time-out, unless `--timeout` sets one for all tests.
    """
    for item in items:
        if item.path.is_relative_to(CRASH):
            item.add_marker(pytest.mark.crash)
        if item.path.relative_to(TESTS).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if item.get_closest_marker("kafka") is not None:
            item.add_marker(pytest.mark.xdist_group("kafka"))
        longer = [each.name for each in item.iter_markers() if each.name in LONG_SECONDS]
        if longer and config.getoption("timeout") is None:
            seconds = max(LONG_SECONDS[name] for name in longer)
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Print all stacks and end the process where pytest-timeout would not: return True for instead.

    In a worker of xdist pytest-timeout prints no stacks. While a thread holds the interpreter lock
    it does not run at all. faulthandler needs no lock.
    """
    worker = hasattr(item.config, "workerinput")
    seconds = settings.timeout if worker else settings.timeout + EXIT_SECONDS
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[STDERR])
    return worker or None


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> None:
    """Stop the timer of faulthandler; pytest-timeout stops its own."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """An Apache Kafka of one broker."""
    from tools.kafka import KafkaMissing, free_ports, start_brokers  # noqa: PLC0415

    try:
        with start_brokers(tmp_path_factory.mktemp("kafka"), free_ports(1)) as (broker,):
            yield broker
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of Spark for frames of a few rows."""
    from penstock.pipeline.tables import prepare  # noqa: PLC0415  (few tests need it)
    from penstock.spark import session  # noqa: PLC0415

    small = {
        "spark.driver.memory": "1g",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "1",
        # To compile a query takes longer than to run it.
        "spark.sql.codegen.wholeStage": "false",
    }
    made = session("tests", master="local[2]", short=True, **small)
    prepare(made)
    yield made
    made.stop()


@pytest.fixture
def commands(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Commands]:
    """Commands in this process; what a broker in it logs is not what they print."""
    from tests.support.commands import Commands  # noqa: PLC0415

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield Commands(capfd, monkeypatch)
    structlog.configure(**before)
