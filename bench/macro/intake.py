"""Acknowledged publishes per second with every message on disk, and JetStream in the same run.

    python -m bench.macro.intake [--save] [--quick] [--rounds 3]

One publisher sends prepared frames of 100 bytes and counts the acknowledgments, which must all
report success. A window limits the messages without an acknowledgment. A figure is messages divided
by the time from the first byte sent to the last acknowledgment.

Penstock runs with `fsync`: an acknowledgment is sent when its message is on disk. JetStream runs
with its defaults: a file stream that is synced every two minutes. Its publisher is the same
program: PUB with a reply subject, acknowledgments counted by their sequence numbers. Its best
window differs from run to run, so it is measured with three. Rounds of all alternate; the best of
each counts. Every run lasts at least a second.
"""

import argparse
import multiprocessing
import re
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.macro.peers import HOST, build_newest_nats, nats_version
from bench.macro.rates import SECONDS, Rates
from bench.macro.stores import jetstream_store, penstock_store
from bench.macro.wires import WIRES, Nats, Wire, exchange
from bench.results import save
from penstock.cli.bench.wire import AcknowledgmentCounter, PublishRefused

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

VALUE = bytes(range(100))
WRITE_BYTES = 256 * 1024
WINDOWS = {"jetstream": (500, 2_000, 10_000)}
"""Publishes without an answer. JetStream refuses some if more than 10,000 wait for it."""
WINDOW = 500_000
SECONDS_MAX = 120
ANSWER_SECONDS_MAX = 60

TIMES_MIN = {"rheos1": 6.9, "rheos2": 7.3, "lamamq": 9.8}
"""Target ratios to JetStream's file store in the same run."""


class Counter(ABC):
    """Counts acknowledgments in a stream; each must report success."""

    @abstractmethod
    def count(self, data: memoryview) -> int:
        """Add the next bytes; return how many acknowledgments they complete."""


class FixedCounter(Counter):
    """Counts acknowledgments of a fixed size, as in Penstock's protocols."""

    def __init__(self, wire: Wire) -> None:
        self._counter = AcknowledgmentCounter(wire)

    def count(self, data: memoryview) -> int:
        try:
            return self._counter.count(data)
        except PublishRefused:
            raise SystemExit("a publish was refused") from None


class JetstreamCounter(Counter):
    """Counts acknowledgments of JetStream: JSON with the message's sequence number."""

    MARK = b'"seq":'

    def __init__(self) -> None:
        self._rest = b""

    def count(self, data: memoryview) -> int:
        whole = self._rest + data
        if refusal := re.search(rb'"error".*|-ERR.*', whole):
            raise SystemExit(f"a publish was refused: {refusal[0][:200]!r}")
        self._rest = whole[-len(self.MARK) + 1 :]
        return whole.count(self.MARK)


COUNTERS: dict[str, Callable[[], Counter]] = {
    "rheos1": lambda: FixedCounter(WIRES["rheos1"]),
    "rheos2": lambda: FixedCounter(WIRES["rheos2"]),
    "lamamq": lambda: FixedCounter(WIRES["lamamq"]),
    "jetstream": JetstreamCounter,
}


class Jetstream(Nats):
    """JetStream with a file stream, created by the first publisher; acknowledges each publish."""

    name = "jetstream"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self.connect(peer)
        make = b'{"name":"BENCH","subjects":["%b"],"storage":"file"}' % self.subject
        peer.sendall(
            b"SUB made 1\r\nPUB $JS.API.STREAM.CREATE.BENCH made %d\r\n%b\r\n" % (len(make), make)
        )
        answer = b""
        while not answer.endswith(b"}\r\n"):
            answer += peer.recv(65_536)
        if b'"error"' in answer:
            raise SystemExit(f"JetStream made no stream: {answer!r}")
        exchange(peer, b"UNSUB 1\r\nSUB a 2\r\nPING\r\n", len(b"PONG\r\n"))
        return lambda value: b"PUB %b a %d\r\n%b\r\n" % (self.subject, len(value), value)


ACKNOWLEDGED: dict[str, Wire] = {
    **{name: wire for name, wire in WIRES.items() if wire.acknowledged_bytes},
    "jetstream": Jetstream(),
}


class Window:
    """Limits unacknowledged messages, between the sending and the counting thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sent = 0
        self._answered = 0
        self._failure: BaseException | None = None
        self._moved = threading.Condition()

    def send(self, count: int) -> None:
        """Wait until `count` more fit."""
        with self._moved:
            self._wait_for(lambda: self._sent - self._answered + count <= self._size)
            self._sent += count

    def answered(self, count: int) -> None:
        with self._moved:
            self._answered += count
            self._moved.notify()

    def fail(self, failure: BaseException) -> None:
        """Wake the waiting thread: no more acknowledgments will arrive."""
        with self._moved:
            self._failure = failure
            self._moved.notify()

    def finish(self) -> None:
        """Wait until all are acknowledged."""
        with self._moved:
            self._wait_for(lambda: self._sent == self._answered)

    def _wait_for(self, moved: Callable[[], bool]) -> None:
        in_time = self._moved.wait_for(lambda: self._failure or moved(), ANSWER_SECONDS_MAX)
        if self._failure or not in_time:
            missing = self._sent - self._answered
            raise SystemExit(f"{missing} publishes were not answered: {self._failure!r}")


def count_answers(peer: socket.socket, counter: Counter, total: int, window: Window) -> None:
    """Read exactly `total` acknowledgments."""
    buffer = bytearray(1024 * 1024)
    view = memoryview(buffer)
    answered = 0
    while answered < total:
        received = peer.recv_into(buffer)
        if not received:
            raise SystemExit("the broker closed the connection")
        count = counter.count(view[:received])
        answered += count
        window.answered(count)
    if answered != total:
        raise SystemExit(f"{answered} acknowledgments for {total} messages")


def load(
    peer: socket.socket, pieces: Iterable[tuple[memoryview, int]], counter: Counter, window: int
) -> float:
    """Send all pieces and wait for the acknowledgments; return the seconds it took."""
    pieces = list(pieces)
    total = sum(count for _, count in pieces)
    out = Window(window)

    def read() -> None:
        try:
            count_answers(peer, counter, total, out)
        except (OSError, SystemExit) as failure:
            out.fail(failure)

    answers = threading.Thread(target=read, daemon=True)
    answers.start()
    start = time.monotonic()
    for frames, count in pieces:
        out.send(count)
        peer.sendall(frames)
    out.finish()
    seconds = time.monotonic() - start
    answers.join(SECONDS_MAX)
    return seconds


def publish(name: str, port: int, count: int, window: int, results: "Queue[float]") -> None:
    """Send `count` messages and wait for the acknowledgments; report the seconds it took."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        frame = ACKNOWLEDGED[name].open_publisher(peer)(VALUE)
        per_write = min(WRITE_BYTES // len(frame), window // 4)
        block = memoryview(frame * per_write)
        pieces = [(block, per_write)] * (count // per_write)
        pieces.append((block[: count % per_write * len(frame)], count % per_write))
        results.put(load(peer, pieces, COUNTERS[name](), window))


def run(name: str, port: int, *, count: int, window: int = WINDOW) -> float:
    """Return acknowledged messages per second."""
    context = multiprocessing.get_context("fork")
    results: Queue[float] = context.Queue()
    sender = context.Process(target=publish, args=(name, port, count, window, results))
    sender.start()
    sender.join(SECONDS_MAX)
    if sender.exitcode != 0:
        sender.kill()
        raise SystemExit(f"the {name} publisher failed")
    return count / results.get(timeout=1)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(*, rounds: int, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the best figures of every protocol with acknowledgments and of JetStream."""
    rates = Rates(seconds)
    sizes: dict[str, float] = {}

    def stored(name: str, window: int, count: int) -> float:
        with jetstream_store() if name == "jetstream" else penstock_store("fsync") as store:
            rate = run(name, store.port, count=count, window=window)
            sizes[name] = folder_bytes(store.folder) / count
            return rate

    windows = {name: WINDOWS.get(name, (WINDOW,)) for name in ACKNOWLEDGED}
    for _ in range(rounds):
        for name in ACKNOWLEDGED:
            for window in windows[name]:
                rates.take((name, window), partial(stored, name, window))
    best = {
        name: max(rates.best[name, window] for window in windows[name]) for name in ACKNOWLEDGED
    }
    return [
        {
            "protocol": name,
            "value_bytes": len(VALUE),
            "acknowledged": rate,
            "times_jetstream": rate / best["jetstream"],
            "stored_bytes_each": sizes[name],
            "nats_version": nats_version(),
        }
        for name, rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    return [
        f"{row['protocol']}: {row['times_jetstream']:.1f} times JetStream,"
        f" {TIMES_MIN[row['protocol']]} wanted"
        for row in results
        if row["times_jetstream"] < TIMES_MIN.get(row["protocol"], 0.0)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.quick:
        build_newest_nats()
    rounds, seconds = (1, 0.0) if arguments.quick else (arguments.rounds, SECONDS)
    results = measure(rounds=rounds, seconds=seconds)
    version = results[0]["nats_version"]
    print(f"million acknowledged messages of 100 bytes a second; JetStream {version}")
    print(f"{'':<9} {'acknowledged':>12} {'x jetstream':>12} {'bytes each':>11}")
    for row in results:
        print(
            f"{row['protocol']:<9} {row['acknowledged'] / 1e6:>12.2f}"
            f" {row['times_jetstream']:>12.1f} {row['stored_bytes_each']:>11.0f}"
        )
    if arguments.save:
        print(f"saved to {save('intake', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
