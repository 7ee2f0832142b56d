"""The benchmarks of whole brokers run one short pass, so that they cannot rot."""

import shutil
import socket
import time
from pathlib import Path
from typing import Any
from unittest import SkipTest
from xml.etree import ElementTree as ET

import pytest

from bench.chart import draw
from bench.macro import brokers, console, crowd, groups, latency, log_latency, many, pubsub
from bench.macro.pacing import exact_sleep, wait_until
from bench.macro.peers import HOST, bare_relay, nats_server, penstock
from bench.macro.wires import WIRES, Relay, exchange

OWN = [name for name in WIRES if name != "nats"]
NATS = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


@pytest.mark.parametrize("name", OWN)
def test_every_protocol_carries_a_load_to_one_and_to_eight(name: str) -> None:
    with penstock() as port:
        assert pubsub.run(WIRES[name], port, count=20_000, subscribers=1) > 1000
        assert pubsub.run(WIRES[name], port, count=5_000, subscribers=8) > 1000


@pytest.mark.parametrize("name", OWN)
def test_latency_is_measured_in_every_protocol(name: str) -> None:
    with penstock() as port:
        figures = latency.run(WIRES[name], port, count=1000)
    assert 0 < figures["p50_us"] <= figures["p90_us"] <= figures["p99_us"]


@pytest.mark.parametrize("interjection", [b"", b"PING\r\n"])
def test_stamps_are_found_wherever_the_stream_is_cut(interjection: bytes) -> None:
    def delivery(stamp: float) -> bytes:
        return b"head" + latency.STAMP.pack(stamp) + bytes(4) + b"\0\0"

    times = [1.5, 2.5, 3.5, 4.5]
    first, *rest = map(delivery, times)
    stream = first + interjection + b"".join(rest)
    for cut in range(len(stream) + 1):
        stamps = latency.Stamps(len(first), 4, interjection)
        found = [*stamps.take(stream[:cut]), *stamps.take(stream[cut:])]
        assert found == times


@pytest.mark.parametrize("name", OWN)
def test_the_value_is_where_a_delivery_says_it_is(name: str) -> None:
    wire, value = WIRES[name], b"<" + bytes(90) + b">"
    with (
        penstock() as port,
        socket.create_connection((HOST, port), 10) as subscriber,
        socket.create_connection((HOST, port), 10) as publisher,
    ):
        size = wire.open_subscriber(subscriber, value)
        publisher.sendall(wire.open_publisher(publisher)(value))
        delivery = exchange(subscriber, b"", size)
    assert delivery[: size - wire.trailer_bytes].endswith(value)


def test_a_figure_above_that_of_nats_server_is_a_miss() -> None:
    def row(protocol: str, middle: float, tail: float) -> dict[str, Any]:
        return {"protocol": protocol, "per_second": 1000, "p50_us": middle, "p99_us": tail}

    level = [row("nats", 100.0, 200.0), row("herald", 100.0, 200.0)]
    assert latency.misses(level) == []
    short = latency.misses([*level, row("rheos1", 100.1, 200.0), row("lamamq", 90.0, 200.1)])
    assert [each.split(" ")[0] for each in short] == ["rheos1", "lamamq"]


def test_a_thread_that_sleeps_exactly_has_no_timer_slack_meanwhile() -> None:
    slack = Path("/proc/self/timerslack_ns")
    before = slack.read_text()
    with exact_sleep():
        assert int(slack.read_text()) == 1
        due = time.monotonic() + 0.001
        wait_until(due)
        assert time.monotonic() >= due
        wait_until(due)  # it is over
    assert slack.read_text() == before


def test_idle_clients_are_cheap_and_restless_ones_leave_nothing() -> None:
    assert crowd.idle(500)["kib_each"] < crowd.IDLE_KIB_MAX
    assert crowd.restless(40, 3.0)["growth_kib"] < crowd.GROWTH_KIB_MAX


def test_every_page_of_the_console_is_timed_under_load() -> None:
    pytest.importorskip("nicegui", reason="the extra console is not installed")
    rows = {row["name"]: row["seconds"] for row in console.measure(quick=True)}
    assert rows.keys() == console.PAGES.keys()
    assert all(seconds > 0 for seconds in rows.values())


def test_the_peer_is_loaded_in_the_same_way() -> None:
    if NATS is None:
        raise SkipTest("nats-server is not installed: apt-get install nats-server")
    with nats_server() as port:
        assert pubsub.run(WIRES["nats"], port, count=20_000, subscribers=1) > 1000


def test_groups_of_one_and_of_eight_are_loaded() -> None:
    with groups.penstock_broker("memory") as store:
        for name, members in (("lamamq", 1), ("fleximq", 8), ("herald", 8)):
            system = groups.penstock_system(name, members)
            assert groups.run(system, store.port, count=5_000, members=members) > 100


def test_the_bare_relay_is_loaded_in_the_same_way() -> None:
    if shutil.which("cc") is None:
        raise SkipTest("there is no C compiler")
    with bare_relay(1024) as port:
        for value in (b"x" * 16, b"y" * 10_000):
            assert pubsub.run(Relay(), port, count=2_000, subscribers=1, value=value) > 1000


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_brokers_are_compared_and_drawn(durability: str) -> None:
    for program in ("nats-server", "redis-server", "mosquitto"):
        if not (shutil.which(program) or shutil.which(program, path="/usr/sbin")):
            raise SkipTest(f"{program} is not installed: apt-get install {program}")
    cell = {"durability": durability, "value_bytes": 100, "subscribers": 2}
    with brokers.systems(durability) as found:
        compared = [each for each in found if each.is_peer or each.name == "rheos2"]
        rows = brokers.measure_cell(compared, cell, rounds=1, part=1000, seconds=0.05)
    assert [row["system"] for row in rows] == [each.name for each in compared]
    assert all(
        row["published"] > 100 and row["latency"].keys() == {"1", "10", "50"} for row in rows
    )
    picture = ET.fromstring(draw(rows))  # noqa: S314
    assert picture.tag.endswith("svg")


@pytest.mark.parametrize("measured", [log_latency.bare, log_latency.bare_server])
def test_a_bare_loop_and_a_bare_server_are_measured_beside_the_log(measured: Any) -> None:
    figures = measured(2000, count=200)
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"]


def test_many_connections_topics_and_patterns_are_loaded() -> None:
    with penstock() as port:
        load = many.from_connections("herald", 10, 200)
        assert many.run(load, port, count=200) > 100
        for own_patterns in (False, True):
            load = many.to_topics("rheos2", 100, many.CYCLE, own_patterns=own_patterns)
            assert many.run(load, port, count=many.CYCLE) > 1000
