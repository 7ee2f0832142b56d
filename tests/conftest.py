"""Settings that every test shares."""

from __future__ import annotations

import faulthandler
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pytest_timeout import Settings
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from tests.support.commands import Commands
    from tests.support.worker_groups import GroupScheduling
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

FIRST = (
    "spark",
    "kafka",
    "console",
    "spark/test_cluster.py",
    "crash/test_pipeline_kill.py",
    "pipeline/test_object_store.py",
    "examples/test_demo.py",
    "sixth/test_sixth.py",
    "crash/test_recipe_kill.py",
    "attack/test_attack.py",
    "examples/test_start_page.py",
    "examples/test_configuration.py",
    "examples/test_command_line.py",
    "examples/test_first_hour.py",
    "examples/test_readme.py",
    "unit/kernels/test_agreement.py",
    "conformance/test_cases.py",
    "unit/cli/test_conform.py",
    "unit/test_layers.py",
)
"""The groups of tests that take longest, in the order in which workers begin with them."""

LONG_SECONDS = {"slow": 300, "kafka": 300, "spark": 600, "crash": 600, "browser": 600}
"""Time-outs of tests with these markers; `timeout` in pyproject.toml is that of all others."""
EXIT_SECONDS = 10
"""How long pytest-timeout may take to end the process, until faulthandler ends it."""

STDERR = pytest.StashKey[int]()
GROUPS = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()

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
    """Mark tests for `make test-fast`; group them for the workers of xdist.

    Give long tests a longer time-out, unless `--timeout` sets one for all tests.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.path.is_relative_to(CRASH):
            item.add_marker(pytest.mark.crash)
        if item.path.relative_to(TESTS).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if "kafka" in fixtures:
            item.add_marker(pytest.mark.kafka)
        longer = [each.name for each in item.iter_markers() if each.name in LONG_SECONDS]
        if longer and config.getoption("timeout") is None:
            seconds = max(LONG_SECONDS[name] for name in longer)
            item.add_marker(pytest.mark.timeout(seconds))
    file = getattr(config, "workerinput", {}).get("groups")
    if file is not None:
        from tests.support.worker_groups import write_groups  # noqa: PLC0415  (needs xdist)

        groups = {item.nodeid: group_of(item) for item in items}
        order = {name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: order.get(groups[item.nodeid], len(order)))
        write_groups(Path(file), groups)


def group_of(item: pytest.Item) -> str:
    """Return the group of a test, which one worker runs.

    The session of Spark, Kafka and the fixtures of a module start once, in one worker. And xdist
    searches all groups after each test: a group for each test would take it many seconds.
    """
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    if item.get_closest_marker("kafka") is not None:
        return "kafka"
    return item.path.relative_to(TESTS).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker of xdist where to write the groups of its tests."""
    node.workerinput["groups"] = str(groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Hand out groups of tests to workers with `--dist loadscope`."""
    from tests.support.worker_groups import GroupScheduling  # noqa: PLC0415  (needs xdist)

    if config.getoption("dist") != "loadscope":
        return None
    return GroupScheduling(config, log, groups_file(config))


def groups_file(config: pytest.Config) -> Path:
    """Return the file of the groups, in a folder that goes with the controller of xdist."""
    if GROUPS not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="penstock-groups-")
        config.stash[GROUPS] = folder
        config.add_cleanup(folder.cleanup)
    return Path(config.stash[GROUPS].name, "groups.json")


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
