"""Throughput of a whole broker, and of nats-server in the same run.

    python -m bench.macro.pubsub [--save] [--quick] [--rounds 3]

One publisher sends prepared frames of 100 bytes as fast as the broker reads them. One or eight
subscribers count what arrives, each in its own process. A figure is messages published (or
delivered, for the fan-out) divided by the time from the first byte sent to the last byte received,
acknowledgments included. Rounds of all brokers alternate; the best of each counts. Every run lasts
at least a second.
"""

import argparse
import multiprocessing
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.macro.peers import HOST, build_newest_nats, nats_server, nats_version, penstock
from bench.macro.rates import SECONDS, Rates
from bench.macro.wires import WIRES, Wire
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

VALUE = bytes(range(100))
WRITE_BYTES = 256 * 1024
SECONDS_MAX = 60
SUBSCRIBERS = (1, 8)

TIMES_MIN = {
    "herald": (5.5, 6.0),
    "rheos1": (4.4, 5.6),
    "rheos2": (3.6, 5.1),
    "fleximq": (4.0, 4.2),
    "lamamq": (3.9, 5.2),
}
"""Target ratios to nats-server in the same run, to one subscriber and to eight."""


def publish(wire: Wire, port: int, count: int, value: bytes, results: "Queue[float]") -> None:
    """Send `count` messages; report when the first byte was sent."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        frame = wire.open_publisher(peer)(value)
        acknowledged = threading.Thread(
            target=drain, args=(peer, count * wire.acknowledged_bytes), daemon=True
        )
        acknowledged.start()
        per_write = max(1, WRITE_BYTES // len(frame))
        block = frame * per_write
        results.put(time.monotonic())
        for _ in range(count // per_write):
            peer.sendall(block)
        peer.sendall(frame * (count % per_write))
        acknowledged.join(SECONDS_MAX)
        results.put(time.monotonic())


Publisher = Callable[[Wire, int, int, bytes, "Queue[float]"], None]
"""Sends messages as `publish` does."""


def drain(peer: socket.socket, size: int) -> None:
    """Read and discard `size` bytes."""
    buffer = bytearray(1024 * 1024)
    while size > 0:
        received = peer.recv_into(buffer)
        if not received:
            raise ConnectionError("the broker closed the connection")
        size -= received


def subscribe(
    wire: Wire,
    port: int,
    expected: tuple[bytes, int],
    ready: Any,  # noqa: ANN401
    results: "Queue[float]",
) -> None:
    """Receive a value so many times; report when the last byte arrived."""
    value, count = expected
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        size = wire.open_subscriber(peer, value) * count
        ready.release()
        drain(peer, size)
        results.put(time.monotonic())


def run(
    wire: Wire,
    port: int,
    *,
    count: int,
    subscribers: int,
    value: bytes = VALUE,
    publisher: Publisher = publish,
) -> float:
    """Return the messages per second delivered to each subscriber."""
    context = multiprocessing.get_context("fork")
    ready = context.Semaphore(0)
    results: Queue[float] = context.Queue()
    ends: Queue[float] = context.Queue()
    receivers = [
        context.Process(target=subscribe, args=(wire, port, (value, count), ready, ends))
        for _ in range(subscribers)
    ]
    for receiver in receivers:
        receiver.start()
    for _ in receivers:
        if not ready.acquire(timeout=SECONDS_MAX):
            raise SystemExit(f"a {wire.name} subscriber did not get ready")
    sender = context.Process(target=publisher, args=(wire, port, count, value, results))
    sender.start()
    start = results.get(timeout=SECONDS_MAX)
    times = [results.get(timeout=SECONDS_MAX)]
    times += [ends.get(timeout=SECONDS_MAX) for _ in receivers]
    for process in [sender, *receivers]:
        process.join(SECONDS_MAX)
    return count / (max(times) - start)


def measure(*, rounds: int, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the best figures of every protocol and of nats, for one and eight subscribers."""
    rates = Rates(seconds)
    with penstock() as own, nats_server() as nats:
        for subscribers in SUBSCRIBERS:
            for _ in range(rounds):
                for name, wire in WIRES.items():
                    port = nats if name == "nats" else own
                    load = partial(_load, wire, port, subscribers)
                    rates.take((name, subscribers), load)
    return [
        {
            "protocol": name,
            "subscribers": subscribers,
            "value_bytes": len(VALUE),
            "published": rates.best[name, subscribers],
            "delivered": rates.best[name, subscribers] * subscribers,
            "times_nats": rates.best[name, subscribers] / rates.best["nats", subscribers],
            "nats_version": nats_version(),
        }
        for subscribers in SUBSCRIBERS
        for name in WIRES
    ]


def _load(wire: Wire, port: int, subscribers: int, count: int) -> float:
    return run(wire, port, count=count, subscribers=subscribers)


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    short = []
    for row in results:
        bars = dict(zip(SUBSCRIBERS, TIMES_MIN.get(row["protocol"], (0.0, 0.0)), strict=True))
        bar = bars[row["subscribers"]]
        if row["times_nats"] < bar:
            short.append(
                f"{row['protocol']} to {row['subscribers']}: {row['times_nats']:.1f} times"
                f" nats-server, {bar} wanted"
            )
    return short


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
    print(f"million messages of 100 bytes a second; nats-server {results[0]['nats_version']}")
    print(f"{'protocol':<9} {'subscribers':>11} {'published':>10} {'delivered':>10} {'x nats':>7}")
    for row in results:
        print(
            f"{row['protocol']:<9} {row['subscribers']:>11} {row['published'] / 1e6:>10.2f}"
            f" {row['delivered'] / 1e6:>10.2f} {row['times_nats']:>7.1f}"
        )
    if arguments.save:
        print(f"saved to {save('pubsub', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
