"""Many connections, topics and patterns, and nats-server in the same run.

    python -m bench.macro.many [--save] [--quick] [--rounds 3]

All are messages of 100 bytes, published to brokers that store nothing, and counted by one
subscriber, with one message from each in turn:

- "connections": one message from each of 1, 1,000 and 10,000 connections in turn, to a topic; each
  has its session already. The publisher is a C program that makes a system call for each message.
  That bounds the rate of a broker that needs less; its processor time for a message tells.
- "topics": one connection, one message to each of 1, 10,000 and 100,000 topics in turn, which one
  pattern covers.
- "patterns": one connection, one message to each of 10,000 topics in turn, each of which the
  subscriber has a pattern of its own for. It is compared with one topic, and with as many topics
  that one pattern covers.

Topics and patterns are measured with Rheos v2. Rounds of both brokers alternate; the best of each
counts, and so does the least of the broker's processor time for a message. All runs last at least a
second.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.macro.peers import (
    HOST,
    build_newest_nats,
    compiled,
    nats_process,
    nats_version,
    penstock_process,
)
from bench.macro.pubsub import SECONDS_MAX, VALUE, WRITE_BYTES, drain
from bench.macro.rates import SECONDS, Rates
from bench.macro.wires import CLIENT, WIRES, Nats, exchange
from bench.results import save
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

CONNECTIONS: Final = (1, 1_000, 10_000)
TOPICS: Final = (1, 10_000, 100_000)
PATTERNS: Final = 10_000
RHEOS2_ACKNOWLEDGMENT: Final = 22
CYCLE: Final = 100_000
"""Messages after which topics repeat: a multiple of every number of topics."""
TURNS_MIN: Final = 10
"""Messages of each connection at least: its first ones cost more."""
SLOWER_MAX: Final = 1.3
"""How many times slower any number of topics may be than one."""

Wait = Callable[[], None]


class Load(NamedTuple):
    """A load, for a number of messages that is a multiple of `unit`."""

    unit: int
    subscribe: Callable[[socket.socket, int], tuple[int, int]]
    """Subscribes; returns the bytes of deliveries before the measurement and in it."""
    publish: Callable[[int, int, Wait, Wait], None]
    """Publishes to a port. Calls a function when the measurement begins, which waits for the
    deliveries before it. May call another one, which waits for those of the measurement."""


# --- Connections ----------------------------------------------------------------------------------


def publish_from(
    name: str, port: int, connections: int, count: int, *, started: Wait, finished: Wait
) -> None:
    """Send `count` messages, one from each connection in turn.

    The connections are open until all messages have arrived: closing them is not measured.
    """
    wire = WIRES[name]
    with contextlib.ExitStack() as stack:
        sockets, given = [], []
        for _ in range(connections):
            peer = stack.enter_context(socket.create_connection((HOST, port), SECONDS_MAX))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frame = wire.open_publisher(peer)(VALUE)
            exchange(peer, frame, wire.acknowledged_bytes)  # the first may open a session
            peer.settimeout(None)
            sockets.append(peer.fileno())
            given.append(peer.fileno().to_bytes(4, sys.byteorder) + frame)
        numbers = (connections, len(frame), count // connections, wire.acknowledged_bytes)
        process = stack.enter_context(
            subprocess.Popen(  # noqa: S603
                [compiled("publisher"), *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=sockets,
            )
        )
        _give(process, b"".join(given))
        started()
        _give(process, b".")
        finished()
        process.communicate(b".", SECONDS_MAX)


def _give(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Write to a publisher, and wait until it has done what it is to do with it."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("a publisher without pipes")
    with memoryview(data) as rest:
        done = 0
        while done < len(data):
            done += process.stdin.write(rest[done:]) or 0
    if not process.stdout.read(1):
        raise SystemExit("the publisher failed")


def from_connections(name: str, connections: int) -> Load:
    """Publish from many connections in turn."""

    def subscribe(peer: socket.socket, count: int) -> tuple[int, int]:
        each = WIRES[name].open_subscriber(peer, VALUE)
        return each * connections, each * count

    def publish(port: int, count: int, started: Wait, finished: Wait) -> None:
        publish_from(name, port, connections, count, started=started, finished=finished)

    return Load(connections * TURNS_MIN, subscribe, publish)


# --- Topics and patterns --------------------------------------------------------------------------


def topic_names(topics: int, separator: str) -> list[str]:
    return [f"plant{separator}{number:06}{separator}temperature" for number in range(topics)]


def ask_rheos2(peer: socket.socket, code: OpCode, names: list[str]) -> None:
    """Send a request for each name, and wait for all answers."""
    for first in range(0, len(names), 1000):
        some = names[first : first + 1000]
        frames = [rheos2.encode(rheos2.Event(CLIENT, code, name.encode(), b"")) for name in some]
        exchange(peer, b"".join(frames), RHEOS2_ACKNOWLEDGMENT * len(frames))


def to_topics(name: str, topics: int, *, own_patterns: bool = False) -> Load:
    """Publish to many topics in turn, which one pattern covers or each has one of its own."""
    nats = Nats()
    separator = "." if name == "nats" else "/"
    rest = "*" if name == "nats" else "+"
    names = topic_names(topics, separator)
    patterns = [f"plant{separator}{rest}{separator}{rest}"]
    if own_patterns:
        patterns = [f"{each.rpartition(separator)[0]}{separator}{rest}" for each in names]

    def frame(each: str) -> bytes:
        if name == "nats":
            return b"PUB %b %d\r\n%b\r\n" % (each.encode(), len(VALUE), VALUE)
        return rheos2.encode(rheos2.Event(CLIENT, OpCode.PUBLISH, each.encode(), VALUE))

    def subscribe(peer: socket.socket, count: int) -> tuple[int, int]:
        rounds = count // topics
        if name != "nats":
            ask_rheos2(peer, OpCode.SUBSCRIBE, patterns)
            return 0, rounds * sum(len(frame(each)) for each in names)
        nats.connect(peer)
        asked = b"".join(b"SUB %b %d\r\n" % (p.encode(), n) for n, p in enumerate(patterns))
        exchange(peer, asked + b"PING\r\n", len(b"PONG\r\n"))
        size = 0
        for number, each in enumerate(names):
            head = b"MSG %b %d %d\r\n" % (each.encode(), number if own_patterns else 0, len(VALUE))
            size += len(head) + len(VALUE) + 2
        return 0, rounds * size

    def publish(port: int, count: int, started: Wait, _: Wait) -> None:
        frames = [frame(each) for each in names] * max(1, CYCLE // topics)
        per_write = WRITE_BYTES // len(frames[0])
        blocks = [
            b"".join(frames[first : first + per_write])
            for first in range(0, len(frames), per_write)
        ]
        rounds = count // CYCLE
        with socket.create_connection((HOST, port), SECONDS_MAX) as peer:
            answers = 0
            if name == "nats":
                nats.connect(peer)
            else:
                answers = RHEOS2_ACKNOWLEDGMENT * rounds * len(frames)
                ask_rheos2(peer, OpCode.CREATE, names)
            reading = threading.Thread(target=drain, args=(peer, answers), daemon=True)
            reading.start()
            started()
            for _ in range(rounds):
                for block in blocks:
                    peer.sendall(block)
            reading.join(SECONDS_MAX)
            if name == "nats":
                exchange(peer, b"PING\r\n", len(b"PONG\r\n"))

    return Load(CYCLE, subscribe, publish)


# --- One run --------------------------------------------------------------------------------------


class Broker(NamedTuple):
    """A broker under load."""

    port: int
    process: int

    def processor_seconds(self) -> float:
        """Return the processor time that it has used, in all its threads."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _publishing(
    publish: Callable[[Wait, Wait], None],
    begin: Any,  # noqa: ANN401
    end: Any,  # noqa: ANN401
    times: "Queue[float]",
) -> None:
    def started() -> None:
        if not begin.acquire(timeout=SECONDS_MAX):
            raise SystemExit("messages before the measurement did not arrive")
        times.put(time.monotonic())

    def finished() -> None:
        if not end.acquire(timeout=SECONDS_MAX):
            raise SystemExit("messages of the measurement did not arrive")

    publish(started, finished)


def run(load: Load, broker: Broker, count: int) -> tuple[float, float]:
    """Return the messages per second, and the broker's processor time of a message in µs."""
    context = multiprocessing.get_context("fork")
    times: Queue[float] = context.Queue()
    with socket.create_connection((HOST, broker.port), SECONDS_MAX) as peer:
        before, size = load.subscribe(peer, count)
        begin, end = context.Semaphore(0), context.Semaphore(0)
        publish = partial(load.publish, broker.port, count)
        sender = context.Process(target=_publishing, args=(publish, begin, end, times))
        sender.start()
        drain(peer, before)
        used = broker.processor_seconds()
        begin.release()
        drain(peer, size)
        ended = time.monotonic()
        used = broker.processor_seconds() - used
        end.release()
        sender.join(SECONDS_MAX)
    if sender.exitcode != 0:
        raise SystemExit("the publisher failed")
    return count / (ended - times.get(timeout=SECONDS_MAX)), used / count * 1e6


def loads(part: int = 1) -> dict[tuple[str, int, str], Load]:
    """Return the load of each kind, number and protocol; `part` divides the numbers."""
    found: dict[tuple[str, int, str], Load] = {}
    for number in CONNECTIONS:
        for name in WIRES:
            found["connections", number, name] = from_connections(name, max(1, number // part))
    for number in TOPICS:
        for name in ("rheos2", "nats"):
            found["topics", number, name] = to_topics(name, max(1, number // part))
    for name in ("rheos2", "nats"):
        load = to_topics(name, max(1, PATTERNS // part), own_patterns=True)
        found["patterns", PATTERNS, name] = load
    return found


def measure(*, rounds: int, seconds: float = SECONDS, part: int = 1) -> list[dict[str, Any]]:
    """Return the best figures of both brokers for each kind and number."""
    rates = Rates(seconds)
    costs: dict[tuple[str, int, str], float] = {}
    cases = loads(part)
    with penstock_process() as (own, own_port), nats_process() as (nats, nats_port):
        brokers = {name: Broker(own_port, own.pid) for name in WIRES}
        brokers["nats"] = Broker(nats_port, nats.pid)

        def once(key: tuple[str, int, str], count: int) -> float:
            rate, cost = run(cases[key], brokers[key[2]], count)
            if count / rate >= seconds:
                costs[key] = min(costs.get(key, cost), cost)
            return rate

        for _ in range(rounds):
            for key, load in cases.items():
                rates.take(key, partial(once, key), unit=load.unit)
    rows = []
    for kind, number, name in cases:
        rate = rates.best[kind, number, name]
        row = {"kind": kind, "number": number, "protocol": name, "published": rate}
        row["times_nats"] = rate / rates.best[kind, number, "nats"]
        one = "connections" if kind == "connections" else "topics"
        row["times_slower"] = rates.best[one, 1, name] / rate
        if kind == "patterns":
            row["times_one_pattern"] = rates.best["topics", number, name] / rate
        row["broker_us"] = costs[kind, number, name]
        rows.append({**row, "nats_version": nats_version()})
    return rows


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    nats = {(row["kind"], row["number"]): row for row in results if row["protocol"] == "nats"}
    short = []
    for row in results:
        what = f"{row['number']:,} {row['kind']} in {row['protocol']}"
        bounded_by_publisher = row["kind"] == "connections" and row["number"] == 1
        if row["times_nats"] < 1 and not bounded_by_publisher:
            short.append(f"{what}: {row['times_nats']:.2f} times nats-server")
        most = nats[row["kind"], row["number"]]["broker_us"]
        if row["broker_us"] > most:
            short.append(f"{what}: {row['broker_us']:.2f} µs, {most:.2f} of nats-server")
        is_own = row["protocol"] != "nats"
        if row["kind"] == "topics" and is_own and row["times_slower"] > SLOWER_MAX:
            short.append(f"{what}: {row['times_slower']:.2f} times slower than one")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if not arguments.quick:
        build_newest_nats()
    if arguments.quick:
        results = measure(rounds=1, seconds=0.0, part=100)
    else:
        results = measure(rounds=arguments.rounds)
    print(f"million messages of 100 bytes a second; nats-server {results[0]['nats_version']}")
    print(
        f"{'':<12} {'number':>7} {'protocol':<9} {'published':>9} {'x nats':>7} {'slower':>7}"
        f" {'than one pattern':>16} {'broker, us':>10}"
    )
    for row in results:
        one_pattern = f"{row['times_one_pattern']:.2f}" if "times_one_pattern" in row else ""
        print(
            f"{row['kind']:<12} {row['number']:>7,} {row['protocol']:<9}"
            f" {row['published'] / 1e6:>9.3f} {row['times_nats']:>7.2f} {row['times_slower']:>7.2f}"
            f" {one_pattern:>16} {row['broker_us']:>10.2f}"
        )
    if arguments.save:
        print(f"saved to {save('many', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
