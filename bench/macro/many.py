"""Many connections, topics and patterns, and nats-server in the same run.

    python -m bench.macro.many [--save] [--quick] [--rounds 3]

All are messages of 100 bytes, published to brokers that store nothing, and counted by one
subscriber, with one message from each in turn:

- "connections": one message from each of 1, 1,000 and 10,000 connections in turn, to a topic; each
  has its session already. Each message is a system call of the load generator, so one connection is
  the bound.
- "topics": one connection, one message to each of 1 and 100,000 topics in turn, which one pattern
  covers.
- "patterns": one connection, one message to each of 10,000 topics in turn, each of which the
  subscriber has a pattern of its own for.

Topics and patterns are measured with Rheos v2. Rounds of both brokers alternate; the best of each
counts.
"""

import argparse
import contextlib
import multiprocessing
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from bench.macro.peers import HOST, build_newest_nats, nats_server, nats_version, penstock
from bench.macro.pubsub import SECONDS_MAX, VALUE, WRITE_BYTES, drain
from bench.macro.wires import CLIENT, WIRES, Nats, exchange
from bench.results import save
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

CONNECTIONS: Final = (1, 1_000, 10_000)
TOPICS: Final = (1, 100_000)
PATTERNS: Final = (1, 10_000)
RHEOS2_ACKNOWLEDGMENT: Final = 22
CYCLE: Final = 100_000
"""Messages after which topics repeat: a multiple of every number of topics."""
SLOWER_MAX: Final = 1.3
"""How many times slower 100,000 topics may be than one."""

Wait = Callable[[], None]
Load = tuple[Callable[[socket.socket], tuple[int, int]], Callable[[int, Wait, Wait], None]]
"""Subscribes and returns the size of deliveries before the measurement and in it; publishes to a
port, and calls a function when the measurement begins, which waits for the deliveries before it. It
may call another one, which waits for the deliveries of the measurement."""


# --- Connections ----------------------------------------------------------------------------------


def publish_from(
    name: str, port: int, connections: int, count: int, *, started: Wait, finished: Wait
) -> None:
    """Send `count` messages, one from each connection in turn.

    The connections are open until all messages have arrived: closing them is not measured.
    """
    wire = WIRES[name]
    with contextlib.ExitStack() as stack:
        peers, sends = [], []
        for _ in range(connections):
            peer = stack.enter_context(socket.create_connection((HOST, port), SECONDS_MAX))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frame = wire.open_publisher(peer)(VALUE)
            exchange(peer, frame, wire.acknowledged_bytes)  # the first may open a session
            sends.append((peer.sendall, frame))
            peers.append(peer)
        started()
        for _ in range(count // connections):
            for send, frame in sends:
                send(frame)
        for peer in peers:
            drain(peer, wire.acknowledged_bytes * (count // connections))
        finished()


def from_connections(name: str, connections: int, count: int) -> Load:
    def subscribe(peer: socket.socket) -> tuple[int, int]:
        each = WIRES[name].open_subscriber(peer, VALUE)
        return each * connections, each * (count // connections * connections)

    def publish(port: int, started: Wait, finished: Wait) -> None:
        publish_from(name, port, connections, count, started=started, finished=finished)

    return subscribe, publish


# --- Topics and patterns --------------------------------------------------------------------------


def topic_names(topics: int, separator: str) -> list[str]:
    return [f"plant{separator}{number:06}{separator}temperature" for number in range(topics)]


def ask_rheos2(peer: socket.socket, code: OpCode, names: list[str]) -> None:
    """Send a request for each name, and wait for all answers."""
    for first in range(0, len(names), 1000):
        some = names[first : first + 1000]
        frames = [rheos2.encode(rheos2.Event(CLIENT, code, name.encode(), b"")) for name in some]
        exchange(peer, b"".join(frames), RHEOS2_ACKNOWLEDGMENT * len(frames))


def to_topics(name: str, topics: int, count: int, *, own_patterns: bool) -> Load:
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

    def subscribe(peer: socket.socket) -> tuple[int, int]:
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

    def publish(port: int, started: Wait, _: Wait) -> None:
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

    return subscribe, publish


# --- One run --------------------------------------------------------------------------------------


def _publishing(
    publish: Callable[[int, Wait, Wait], None],
    port: int,
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

    publish(port, started, finished)


def run(load: Load, port: int, *, count: int) -> float:
    """Return the messages per second."""
    subscribe, publish = load
    context = multiprocessing.get_context("fork")
    times: Queue[float] = context.Queue()
    with socket.create_connection((HOST, port), SECONDS_MAX) as peer:
        before, size = subscribe(peer)
        begin, end = context.Semaphore(0), context.Semaphore(0)
        sender = context.Process(target=_publishing, args=(publish, port, begin, end, times))
        sender.start()
        drain(peer, before)
        begin.release()
        drain(peer, size)
        ended = time.monotonic()
        end.release()
        sender.join(SECONDS_MAX)
    return count / (ended - times.get(timeout=SECONDS_MAX))


def measure(*, rounds: int, part: int = 1) -> list[dict[str, Any]]:
    """Return the best figures of both brokers for each kind and number."""
    own = [name for name in WIRES if name != "nats"]
    cases: list[tuple[str, int, str, int, Load]] = []
    for connections in CONNECTIONS:
        connected = max(1, connections // part)
        count = max(200_000 // part, connected)
        count -= count % connected
        cases += [
            ("connections", connections, name, count, from_connections(name, connected, count))
            for name in [*own, "nats"]
        ]
    for kind, numbers in (("topics", TOPICS), ("patterns", PATTERNS)):
        for number in numbers:
            used = max(1, number // part)
            for name, most in (("rheos2", 4_000_000), ("nats", 1_000_000)):
                count = max(most // part // CYCLE, 1) * CYCLE
                load = to_topics(name, used, count, own_patterns=kind == "patterns")
                cases.append((kind, number, name, count, load))
    best: dict[tuple[str, int, str], float] = {}
    with penstock() as own_port, nats_server() as nats_port:
        for _ in range(rounds):
            for kind, number, name, count, load in cases:
                port = nats_port if name == "nats" else own_port
                rate = run(load, port, count=count)
                best[kind, number, name] = max(best.get((kind, number, name), 0.0), rate)
    return [
        {
            "kind": kind,
            "number": number,
            "protocol": name,
            "published": rate,
            "times_nats": rate / best[kind, number, "nats"],
            "times_slower": best[kind, 1, name] / rate,
            "nats_version": nats_version(),
        }
        for (kind, number, name), rate in best.items()
    ]


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
    rounds, part = (1, 100) if arguments.quick else (arguments.rounds, 1)
    results = measure(rounds=rounds, part=part)
    print(f"million messages of 100 bytes a second; nats-server {results[0]['nats_version']}")
    print(f"{'':<12} {'number':>7} {'protocol':<9} {'published':>9} {'x nats':>7} {'slower':>7}")
    for row in results:
        print(
            f"{row['kind']:<12} {row['number']:>7,} {row['protocol']:<9}"
            f" {row['published'] / 1e6:>9.3f} {row['times_nats']:>7.2f} {row['times_slower']:>7.2f}"
        )
    if arguments.save:
        print(f"saved to {save('many', results)}")
    short = [
        f"{row['number']:,} {row['kind']} are {row['times_slower']:.2f} times slower than one"
        for row in results
        if row["kind"] == "topics"
        and row["protocol"] == "rheos2"
        and row["times_slower"] > SLOWER_MAX
    ] + [
        f"{row['number']:,} {row['kind']} in {row['protocol']}: {row['times_nats']:.2f} times"
        " nats-server"
        for row in results
        if row["times_nats"] < 1
    ]
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
