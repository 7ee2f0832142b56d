"""Penstock beside nats-server, JetStream, Redis and Mosquitto, all in the same run.

    python -m bench.macro.brokers [--save] [--quick] [--rounds 3]

Every cell is a size of values, a number of subscribers and a durability. Where nothing is stored,
the peers are nats-server, Redis (publish and subscribe) and Mosquitto (MQTT, QoS 0). With `os` and
`fsync` the peer is JetStream with its defaults: it acknowledges before the disk has a message.
There, publishers wait for acknowledgments; subscribers are live ones.

- Throughput is that of `bench.macro.pubsub`: rounds of all alternate, the best of each counts.
- Capacity of a cell is the least throughput in it. Latency is measured with the same 1, 10 and
  50 % of it for all, by the clock whether or not earlier messages have arrived; each message has
  the time at which it was due.

nats-server is the newest one if Go is installed, else the system's, as the others are.
"""

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.macro import latency, pubsub
from bench.macro.intake import Jetstream, JetstreamCounter, load
from bench.macro.peers import (
    HOST,
    build_newest_nats,
    mosquitto,
    mosquitto_version,
    nats_server,
    nats_version,
    penstock,
    redis_server,
    redis_version,
)
from bench.macro.stores import jetstream_store, penstock_store
from bench.macro.wires import WIRES, Mqtt, Redis, Wire, exchange
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SIZES: Final = (100, 1_000, 10_000)
SUBSCRIBERS: Final = (1, 8)
LOADS: Final = (1, 10, 50)
"""Per cent of the capacity of a cell."""
LATENCY_SECONDS: Final = 1.5
LATENCY_OF: Final = ("herald", "rheos2")
"""Protocols of Penstock whose latency is measured."""
STORED_OF: Final = ("rheos2", "lamamq")
"""Protocols of Penstock that acknowledge, for messages that are stored."""
BYTES: Final = 300_000_000
"""Of values in a run of Penstock; small values are fewer."""
MESSAGES_MAX: Final = 1_000_000
MESSAGES_MIN: Final = 2_000
PARTS: Final = {"nats": 4, "redis": 8, "mosquitto": 8, "jetstream": 10}
"""Peers get a part of the messages: they are slower, or disconnect slow subscribers."""
COMPARABLE: Final = ("memory", "os")
"""Durabilities with which the peer promises as much; JetStream's default is not `fsync`."""
WINDOW: Final = 20_000
"""Messages without an acknowledgment of JetStream."""


class LiveJetstream(Jetstream):
    """JetStream with live subscribers: deliveries name the subject of the acknowledgments."""

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:  # noqa: ARG002
        self.connect(peer)
        exchange(peer, b"SUB %b 1\r\nPING\r\n" % self.subject, len(b"PONG\r\n"))
        return len(b"MSG %b 1 a %d\r\n%b\r\n" % (self.subject, len(value), value))


class System(NamedTuple):
    """A broker with a protocol, as it is loaded."""

    name: str
    wire: Wire
    port: int

    @property
    def is_peer(self) -> bool:
        """Whether it is not Penstock."""
        return self.name in PARTS


def publish_in_window(
    wire: Wire, port: int, count: int, value: bytes, results: "Queue[float]"
) -> None:
    """Send `count` messages to JetStream; report the times of the first and of the last answer."""
    with socket.create_connection((HOST, port), timeout=pubsub.SECONDS_MAX) as peer:
        frame = wire.open_publisher(peer)(value)
        per_write = max(1, min(pubsub.WRITE_BYTES // len(frame), WINDOW // 4))
        block = memoryview(frame * per_write)
        pieces = [(block, per_write)] * (count // per_write)
        pieces.append((block[: count % per_write * len(frame)], count % per_write))
        results.put(time.monotonic())
        load(peer, pieces, JetstreamCounter(), WINDOW)
        results.put(time.monotonic())


def read_answers(peer: socket.socket, count: int) -> None:
    """Read the answers of JetStream to so many messages."""
    counter = JetstreamCounter()
    buffer = memoryview(bytearray(65_536))
    while count > 0:
        received = peer.recv_into(buffer)
        if not received:
            raise ConnectionError("the broker closed the connection")
        count -= counter.count(buffer[:received])


@contextlib.contextmanager
def systems(durability: str) -> Iterator[list[System]]:
    """Run the brokers that are compared with a durability; the first peer is the reference."""
    with contextlib.ExitStack() as stack:
        run = stack.enter_context
        if durability == "memory":
            own = run(penstock())
            found = [System(name, wire, own) for name, wire in WIRES.items() if name != "nats"]
            found.append(System("nats", WIRES["nats"], run(nats_server())))
            found.append(System("redis", Redis(), run(redis_server())))
            found.append(System("mosquitto", Mqtt(), run(mosquitto())))
        else:
            own = run(penstock_store(durability)).port
            found = [System(name, WIRES[name], own) for name in STORED_OF]
            jetstream = run(jetstream_store()).port
            found.append(System("jetstream", LiveJetstream(), jetstream))
        yield found


def throughput(system: System, *, size: int, subscribers: int, part: int) -> float:
    """Return the messages per second that are delivered to each subscriber."""
    count = min(MESSAGES_MAX, BYTES // size) // part // PARTS.get(system.name, 1)
    publisher = publish_in_window if system.name == "jetstream" else pubsub.publish
    return pubsub.run(
        system.wire,
        system.port,
        count=max(MESSAGES_MIN, count // (4 if subscribers > 1 else 1)),
        subscribers=subscribers,
        value=bytes(number % 251 for number in range(size)),
        publisher=publisher,
    )


def latency_at(
    system: System, per_second: float, *, size: int, subscribers: int, seconds: float
) -> dict[str, float]:
    """Return percentiles in microseconds at a rate."""
    burst = max(1, round(per_second / 1000))
    bursts = max(20, round(per_second * seconds / burst))
    return latency.run(
        system.wire,
        system.port,
        count=bursts * burst,
        per_second=max(1, round(per_second)),
        burst=burst,
        value_bytes=size,
        subscribers=subscribers,
        answers=read_answers if system.name == "jetstream" else None,
    )


def measure(*, rounds: int, part: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each cell and system."""
    rows = []
    for durability in ("memory", "os", "fsync"):
        for size in SIZES:
            with systems(durability) as compared:
                for subscribers in SUBSCRIBERS:
                    cell = {"durability": durability, "value_bytes": size}
                    cell["subscribers"] = subscribers
                    rows += measure_cell(compared, cell, rounds=rounds, part=part, seconds=seconds)
    return rows


def measure_cell(
    compared: list[System], cell: dict[str, Any], *, rounds: int, part: int, seconds: float
) -> list[dict[str, Any]]:
    """Return a row for each system in a cell."""
    size, subscribers = cell["value_bytes"], cell["subscribers"]
    best: dict[str, float] = {}
    for _ in range(rounds):
        for system in compared:
            rate = throughput(system, size=size, subscribers=subscribers, part=part)
            best[system.name] = max(best.get(system.name, 0.0), rate)
    reference = next(system.name for system in compared if system.is_peer)
    capacity = min(best.values())
    rows = []
    for system in compared:
        row = {**cell, "system": system.name, "published": best[system.name]}
        row["times_peer"] = best[system.name] / best[reference]
        if system.is_peer or system.name in LATENCY_OF:
            row["latency"] = {
                str(percent): {
                    "per_second": capacity * percent / 100,
                    **latency_at(
                        system,
                        capacity * percent / 100,
                        size=size,
                        subscribers=subscribers,
                        seconds=seconds,
                    ),
                }
                for percent in LOADS
            }
        rows.append(row)
        show(row)
    return rows


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cells in which a protocol moves less than the peer that promises no less."""
    return [
        f"{row['system']} with {row['value_bytes']:,} bytes to {row['subscribers']},"
        f" {row['durability']}: {row['times_peer']:.2f} times the peer"
        for row in rows
        if row["system"] not in PARTS and row["durability"] in COMPARABLE and row["times_peer"] < 1
    ]


def show(row: dict[str, Any]) -> None:
    """Print a row of the table."""
    cells = []
    for percent in LOADS:
        found = row.get("latency", {}).get(str(percent))
        names = ("p50_us", "p99_us", "p999_us")
        cells.append("/".join(f"{found[name]:.0f}" for name in names) if found else "")
    print(
        f"{row['durability']:<7} {row['value_bytes']:>6} {row['subscribers']:>4}"
        f" {row['system']:<10} {row['published'] / 1e6:>9.3f} {row['times_peer']:>6.2f} "
        + " ".join(f"{cell:>18}" for cell in cells),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.quick:
        build_newest_nats()
    versions = {
        "nats": nats_version(),
        "redis": redis_version(),
        "mosquitto": mosquitto_version(),
    }
    print("; ".join(f"{name} {version}" for name, version in versions.items()))
    print("million messages a second, times nats-server (JetStream where messages are stored), and")
    print("µs from due to received (p50/p99/p99.9) at parts of the least throughput of a cell")
    print(
        f"{'':<7} {'bytes':>6} {'subs':>4} {'':<10} {'published':>9} {'times':>6} "
        + " ".join(f"{f'at {percent} %':>18}" for percent in LOADS)
    )
    rounds, part, seconds = (arguments.rounds, 1, LATENCY_SECONDS)
    if arguments.quick:
        rounds, part, seconds = 1, 500, 0.05
    rows = measure(rounds=rounds, part=part, seconds=seconds)
    if arguments.save:
        print(f"saved to {save('brokers', [{'versions': versions}, *rows])}")
    short = misses(rows)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
