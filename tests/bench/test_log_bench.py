"""The benchmarks of the log run one short pass, and count exactly what they say they count."""

import shutil
import socket
from pathlib import Path
from unittest import SkipTest

import pytest
import uvloop

from bench.macro import (
    intake,
    last_values,
    log_latency,
    logged,
    opening,
    pubsub,
    rare_topic,
    replay,
    topics,
)
from bench.macro.stores import jetstream_store, penstock_store
from bench.macro.wires import WIRES
from bench.micro import log
from penstock.wire import lamamq, rheos1, rheos2
from penstock.wire.rheos import AckCode

OWN = [name for name in intake.ACKNOWLEDGED if name != "jetstream"]
NATS = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
IDENTIFIER = bytes([0xAC] * 16)


def answer(name: str, *, refused: bool) -> bytes:
    code = AckCode.FAILED if refused else AckCode.SUCCESS
    match name:
        case "rheos1":
            return rheos1.encode(rheos1.Acknowledgment(IDENTIFIER, code))
        case "rheos2":
            return rheos2.encode(rheos2.Acknowledgment(code, IDENTIFIER))
        case "lamamq":
            error = lamamq.ErrorCode.MIDDLEWARE_REFUSED if refused else None
            return lamamq.encode(lamamq.Answer(7, error, "no" if refused else ""))
    text = b'{"error":{"code":503}}' if refused else b'{"stream":"BENCH","seq":1}'
    return b"MSG a 2 %d\r\n%b\r\n" % (len(text), text)


@pytest.mark.parametrize("name", intake.ACKNOWLEDGED)
def test_acknowledgments_are_counted_wherever_the_stream_is_cut(name: str) -> None:
    stream = answer(name, refused=False) * 3
    for cut in range(len(stream) + 1):
        counter = intake.COUNTERS[name]()
        pieces = (memoryview(stream)[:cut], memoryview(stream)[cut:])
        assert sum(counter.count(piece) for piece in pieces) == 3


@pytest.mark.parametrize("name", intake.ACKNOWLEDGED)
def test_a_refusal_is_never_counted(name: str) -> None:
    stream = answer(name, refused=False) + answer(name, refused=True)
    with pytest.raises(SystemExit, match="refused"):
        intake.COUNTERS[name]().count(memoryview(stream))


@pytest.mark.parametrize("name", OWN)
def test_every_acknowledged_protocol_is_measured_and_its_messages_are_kept(
    name: str, tmp_path: Path
) -> None:
    with penstock_store("fsync", folder=tmp_path) as store:
        assert intake.run(name, store.port, count=5_000) > 1000
    assert opening.open_log(tmp_path / "data")[2] == 5_000


def test_jetstream_is_loaded_in_the_same_way() -> None:
    if NATS is None:
        raise SkipTest("nats-server is not installed: apt-get install nats-server")
    with jetstream_store() as store:
        assert intake.run("jetstream", store.port, count=5_000, window=2_000) > 1000
        assert intake.folder_bytes(store.folder) > 5_000 * len(intake.VALUE)


@pytest.mark.parametrize("durability", logged.DURABILITIES)
def test_a_load_goes_through_a_broker_of_every_durability(durability: str) -> None:
    with penstock_store(durability) as store:
        assert pubsub.run(WIRES["herald"], store.port, count=20_000, subscribers=1) > 1000


@pytest.mark.parametrize("name", replay.PROTOCOLS)
def test_history_comes_whole_and_what_is_live_comes_next(name: str) -> None:
    live, history = replay.run(name, count=5_000)
    assert live > 1000
    assert history > 1000


def test_history_that_is_too_long_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"12345")
        with pytest.raises(SystemExit, match="2 bytes too many"):
            replay.receive(ours, 3)


def test_topics_are_made_and_published_to_in_turn() -> None:
    names = topics.frames(topics.OpCode.PUBLISH, 3, b"x")
    assert len(set(names)) == 3
    sent = list(topics.pieces(names, 10_000))
    assert sum(count for _, count in sent) == 10_000
    assert b"".join(data for data, _ in sent) == (b"".join(names) * 3334)[: 10_000 * len(names[0])]
    with penstock_store("fsync") as store:
        made, rate = topics.run(store.port, topic_count=100, count=5_000)
    assert made > 10
    assert rate > 1000


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_the_time_to_an_acknowledgment_is_measured(durability: str) -> None:
    with penstock_store(durability) as store:
        figures = log_latency.acknowledged("rheos2", store.port, count=1000)
    assert 0 < figures["p50_us"] <= figures["p90_us"] <= figures["p99_us"]


def test_opening_finds_every_message_that_was_acknowledged_before_a_kill() -> None:
    clean, killed = opening.measure(size=2_000_000, crashed_count=5_000, starts=1)
    assert clean["bytes_read"] < killed["bytes_read"] < 5_000 * 1_000


def test_a_replay_of_a_rare_topic_is_measured_by_the_bytes_that_the_broker_reads() -> None:
    row = rare_topic.run(20_000_000, 10)
    assert row["messages"] >= 10
    assert 0 < row["share"] < 1


def test_last_messages_of_many_topics_come_whole() -> None:
    row = last_values.measure(2_000)
    assert 0 < row["first_seconds"] <= row["all_seconds"]
    assert row["asked_bytes_each"] > 0


def test_appending_is_measured_while_a_log_grows_and_for_more_topics() -> None:
    rows = uvloop.run(log.growing(gigabytes=0.002, count=2_000))
    sizes = [row["gigabytes"] for row in rows]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 0.002
    assert all(row["taking_ns"] > 0 for row in rows)


@pytest.mark.parametrize(("topic_count", "asked"), [(1, "topic"), (10, "one of ten")])
def test_every_way_to_read_finds_every_message_that_it_counts(
    tmp_path: Path, topic_count: int, asked: str
) -> None:
    uvloop.run(log.fill(tmp_path, topic_count=topic_count, count=20_000))
    rows = {row["way"]: row for row in log.read_back(tmp_path, rounds=1)}
    assert set(rows) == {"groups", "loaded", "records", asked}
    total = rows["records"]["messages"]
    assert total >= 20_000
    assert rows["groups"]["messages"] == rows["loaded"]["messages"] == total
    assert rows[asked]["messages"] == pytest.approx(total / topic_count, rel=0.05)
