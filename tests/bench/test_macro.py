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
from bench.macro.peers import HOST, bare_relay, nats_server, penstock, penstock_process
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
    rows = brokers.measure_cell(cell, rounds=1, seconds=0.0, latency_seconds=0.05)
    peers = ["nats", "redis", "mosquitto"] if durability == "memory" else ["jetstream"]
    own = OWN if durability == "memory" else list(brokers.STORED_OF)
    assert [row["system"] for row in rows] == [*own, *peers]
    assert all(row["published"] > 100 for row in rows)
    measured = {row["system"]: row["latency"] for row in rows if "latency" in row}
    assert measured.keys() == {*peers, *brokers.LATENCY_OF} & {*own, *peers}
    for latencies in measured.values():
        assert latencies.keys() == {"1", "10", "50"}
        for found in latencies.values():
            assert "p50_us" not in found or 0 < found["p50_us"] <= found["p99_us"] < 60e6
            assert "p999_us" not in found, "there are too few messages"
    picture = ET.fromstring(draw(rows))  # noqa: S314
    assert picture.tag.endswith("svg")


def test_a_load_above_the_throughput_of_a_broker_is_not_measured() -> None:
    if shutil.which("redis-server") is None or NATS is None:
        raise SkipTest("redis-server or nats-server is not installed: apt-get install")
    cell = {"durability": "memory", "value_bytes": 100, "subscribers": 1}
    best = {"redis": 999.0, "nats": 1e6, "mosquitto": 0.0, "rheos2": 0.0, "herald": 0.0}
    found = brokers.measure_latencies(cell, best, {10: 1000.0}, rounds=2, seconds=0.05)
    assert found["redis"] == {"10": {"per_second": 1000.0}}
    assert found["nats"]["10"].keys() == {"per_second", "messages", "p50_us", "p90_us", "p99_us"}


def test_a_ratio_below_its_bar_is_a_miss() -> None:
    def row(system: str, durability: str, size: int, times: float) -> dict[str, Any]:
        cell = {"durability": durability, "value_bytes": size, "subscribers": 1}
        return {**cell, "system": system, "times_peer": times}

    met = [row("herald", "memory", 1_000, 1.8), row("herald", "memory", 10_000, 1.2)]
    assert brokers.misses([*met, row("redis", "memory", 1_000, 0.1)]) == []
    assert brokers.misses([row("herald", "fsync", 100, 0.5)]) == [], "JetStream promises less"
    short = [row("herald", "memory", 1_000, 1.79), row("lamamq", "memory", 10_000, 1.19)]
    assert len(brokers.misses([*met, *short])) == 2


@pytest.mark.parametrize("measured", [log_latency.bare, log_latency.bare_server])
def test_a_bare_loop_and_a_bare_server_are_measured_beside_the_log(measured: Any) -> None:
    figures = measured(2000, count=200)
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"]


@pytest.mark.parametrize("name", OWN)
def test_messages_of_many_connections_in_turn_all_arrive(name: str) -> None:
    if shutil.which("cc") is None:
        raise SkipTest("there is no C compiler")
    with penstock_process() as (process, port):
        broker = many.Broker(port, process.pid)
        for connections, count in ((1, 5_000), (10, 200)):  # 5,000: answers are read meanwhile
            rate, cost = many.run(many.from_connections(name, connections), broker, count)
            assert rate > 100
            assert cost >= 0


@pytest.mark.parametrize("own_patterns", [False, True])
def test_many_topics_and_patterns_are_loaded(own_patterns: bool) -> None:  # noqa: FBT001
    with penstock_process() as (process, port):
        load = many.to_topics("rheos2", 100, own_patterns=own_patterns)
        rate, cost = many.run(load, many.Broker(port, process.pid), many.CYCLE)
    assert rate > 1000
    assert 0 < cost < 1000


def test_many_that_are_slower_or_cost_more_than_they_may_are_a_miss() -> None:
    def row(kind: str, number: int, **figures: float) -> dict[str, Any]:
        row = {"kind": kind, "number": number, "protocol": "rheos2"}
        return {**row, "times_nats": 1.0, "times_slower": 1.0, "broker_us": 2.0, **figures}

    cases = (("topics", 1), ("topics", 100_000), ("connections", 1), ("connections", 1_000))
    nats = [{**row(*case, times_slower=9.0), "protocol": "nats"} for case in cases]
    assert many.misses([*nats, *(row(*case) for case in cases)]) == []
    for met in (
        row("topics", 100_000, times_slower=1.3),
        row("connections", 1, times_nats=0.5),  # the publisher is the bound
        row("connections", 1_000, times_slower=2.0),
    ):
        assert many.misses([*nats, met]) == []
    for short in (
        row("topics", 100_000, times_slower=1.31),
        row("connections", 1_000, times_nats=0.99),
        row("connections", 1, broker_us=2.01),
    ):
        assert len(many.misses([*nats, short])) == 1
