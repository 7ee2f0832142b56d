"""Penstock beside nats-server, JetStream, Redis and Mosquitto, all in the same run.

    python -m bench.macro.brokers [--save] [--quick] [--rounds 3]

Every cell is a size of values, a number of subscribers and a durability. Where nothing is stored,
the peers are nats-server, Redis (publish and subscribe) and Mosquitto (MQTT, QoS 0). With `os` and
`fsync` the peer is JetStream with its defaults: it acknowledges before the disk has a message.
There, publishers limit the messages without an acknowledgment as in `bench.macro.intake`: JetStream
gets three limits, and its best counts. Subscribers are live ones.

- Throughput is that of `bench.macro.pubsub`. All runs last at least a second; rounds of all
  alternate, the best of each counts.
- Latency is measured with the same load for all: 1, 10 and 50 % of the throughput of nats-server or
  JetStream, by the clock whether or not earlier messages have arrived. A broker whose throughput is
  less is left out. Rounds of all alternate; the best of each percentile counts. p99.9 is stored
  only of rounds with at least 20,000 messages.

nats-server is the newest one if Go is installed, else the system's, as the others are. All of it
takes 20 to 25 minutes.
"""

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.macro import latency, pubsub
from bench.macro.intake import COUNTERS, WINDOW, WINDOWS, Counter, Jetstream, JetstreamCounter, load
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
from bench.macro.rates import SECONDS, Rates
from bench.macro.stores import jetstream_store, penstock_store
from bench.macro.wires import WIRES, Mqtt, Redis, Wire, exchange
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SIZES: Final = (100, 1_000, 10_000)
SUBSCRIBERS: Final = (1, 8)
LOADS: Final = (1, 10, 50)
"""Per cent of the throughput of the peer."""
LATENCY_SECONDS: Final = 1.0
TAIL_MESSAGES_MIN: Final = 20_000
"""Messages of a round without which there is no p99.9."""
LATENCY_OF: Final = ("herald", "rheos2")
"""Protocols of Penstock whose latency is measured."""
STORED_OF: Final = ("rheos2", "lamamq")
"""Protocols of Penstock that acknowledge, for messages that are stored."""
MESSAGES_FIRST: Final = 2_000
"""Messages of the first run of a system."""
PEERS: Final = ("nats", "jetstream", "redis", "mosquitto")
TIMES_MIN: Final = {
    ("memory", 100): 4.4,
    ("memory", 1_000): 1.8,
    ("memory", 10_000): 1.2,
    ("os", 100): 4.0,
    ("os", 1_000): 1.5,
    ("os", 10_000): 1.0,
}
"""Target ratios to nats-server, and to JetStream with the durability that promises as much."""


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
    window: int = 0
    """Messages without an acknowledgment; 0 if publishers do not wait for any."""

    @property
    def is_peer(self) -> bool:
        """Whether it is not Penstock."""
        return self.name in PEERS

    @property
    def has_latency(self) -> bool:
        """Whether its latency is measured."""
        return self.is_peer or self.name in LATENCY_OF


def publish_in_window(
    wire: Wire,
    port: int,
    count: int,
    value: bytes,
    results: "Queue[float]",
    *,
    counter: Callable[[], Counter],
    window: int,
) -> None:
    """Send `count` messages; report the times of the first and of the last acknowledgment."""
    with socket.create_connection((HOST, port), timeout=pubsub.SECONDS_MAX) as peer:
        frame = wire.open_publisher(peer)(value)
        per_write = max(1, min(pubsub.WRITE_BYTES // len(frame), window // 4))
        block = memoryview(frame * per_write)
        pieces = [(block, per_write)] * (count // per_write)
        pieces.append((block[: count % per_write * len(frame)], count % per_write))
        results.put(time.monotonic())
        load(peer, pieces, counter(), window)
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
            found = [System(name, WIRES[name], own, WINDOW) for name in STORED_OF]
            peer = run(jetstream_store()).port
            found += [System("jetstream", LiveJetstream(), peer, n) for n in WINDOWS["jetstream"]]
        yield found


def throughput(system: System, size: int, subscribers: int, count: int) -> float:
    """Return the messages per second that are delivered to each subscriber."""
    publisher: pubsub.Publisher = pubsub.publish
    if system.window:
        publisher = partial(publish_in_window, counter=COUNTERS[system.name], window=system.window)
    return pubsub.run(
        system.wire,
        system.port,
        count=count,
        subscribers=subscribers,
        value=bytes(number % 251 for number in range(size)),
        publisher=publisher,
    )


def latency_at(
    system: System, per_second: float, *, size: int, subscribers: int, seconds: float
) -> dict[str, float]:
    """Return percentiles in microseconds at a rate, and the messages that they are of."""
    burst = max(1, round(per_second / 1000))
    bursts = max(20, round(per_second * seconds / burst))
    found = latency.run(
        system.wire,
        system.port,
        count=bursts * burst,
        per_second=max(1, round(per_second)),
        burst=burst,
        value_bytes=size,
        subscribers=subscribers,
        answers=read_answers if system.name == "jetstream" else None,
    )
    if bursts * burst < TAIL_MESSAGES_MIN:
        del found["p999_us"]
    return {"messages": bursts * burst, **found}


def measure(*, rounds: int, seconds: float, latency_seconds: float) -> list[dict[str, Any]]:
    """Return a row for each cell and system."""
    return [
        row
        for durability in ("memory", "os", "fsync")
        for size in SIZES
        for subscribers in SUBSCRIBERS
        for row in measure_cell(
            {"durability": durability, "value_bytes": size, "subscribers": subscribers},
            rounds=rounds,
            seconds=seconds,
            latency_seconds=latency_seconds,
        )
    ]


def measure_cell(
    cell: dict[str, Any], *, rounds: int, seconds: float, latency_seconds: float
) -> list[dict[str, Any]]:
    """Return a row for each system in a cell."""
    size, subscribers = cell["value_bytes"], cell["subscribers"]
    rates = Rates(seconds, first=MESSAGES_FIRST)
    for _ in range(rounds):
        with systems(cell["durability"]) as compared:  # new ones, so that no disk fills up
            for system in compared:
                run = partial(throughput, system, size, subscribers)
                rates.take((system.name, system.window), run)
    best: dict[str, float] = {}
    for system in compared:
        rate = rates.best[system.name, system.window]
        best[system.name] = max(best.get(system.name, 0.0), rate)
    reference = next(system.name for system in compared if system.is_peer)
    latencies = measure_latencies(
        cell, best, {percent: best[reference] * percent / 100 for percent in LOADS},
        rounds=rounds, seconds=latency_seconds,
    )  # fmt: skip
    rows = []
    for name, rate in best.items():
        row = {**cell, "system": name, "published": rate, "times_peer": rate / best[reference]}
        if name in latencies:
            row["latency"] = latencies[name]
        rows.append(row)
        show(row)
    return rows


def measure_latencies(
    cell: dict[str, Any],
    best: dict[str, float],
    loads: dict[int, float],
    *,
    rounds: int,
    seconds: float,
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the latency of each system at each load, without percentiles where it is too much."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with systems(cell["durability"]) as compared:
        measured = {system.name: system for system in compared if system.has_latency}
        for _ in range(rounds):
            for percent, per_second in loads.items():
                for name, system in measured.items():
                    row = found.setdefault(name, {}).setdefault(str(percent), {})
                    row["per_second"] = per_second
                    if per_second > best[name]:
                        continue
                    figures = latency_at(
                        system,
                        per_second,
                        size=cell["value_bytes"],
                        subscribers=cell["subscribers"],
                        seconds=seconds,
                    )
                    row |= {each: min(us, row.get(each, us)) for each, us in figures.items()}
    return found


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cells in which the ratio of a protocol to the peer is below its target."""
    short = []
    for row in rows:
        bar = TIMES_MIN.get((row["durability"], row["value_bytes"]), 0.0)
        if row["system"] not in PEERS and row["times_peer"] < bar:
            short.append(
                f"{row['system']} with {row['value_bytes']:,} bytes to {row['subscribers']},"
                f" {row['durability']}: {row['times_peer']:.2f} times the peer, {bar} wanted"
            )
    return short


def show(row: dict[str, Any]) -> None:
    """Print a row of the table."""
    cells = []
    for percent in LOADS:
        found = row.get("latency", {}).get(str(percent))
        if not found or "p50_us" not in found:
            cells.append("cannot" if found else "")
            continue
        names = ("p50_us", "p99_us", "p999_us")
        cells.append("/".join(f"{found[each]:.0f}" if each in found else "-" for each in names))
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
    print("µs from due to received (p50/p99/p99.9) at parts of the throughput of the latter")
    print(
        f"{'':<7} {'bytes':>6} {'subs':>4} {'':<10} {'published':>9} {'times':>6} "
        + " ".join(f"{f'at {percent} %':>18}" for percent in LOADS)
    )
    if arguments.quick:
        rows = measure(rounds=1, seconds=0.0, latency_seconds=0.05)
    else:
        rows = measure(rounds=arguments.rounds, seconds=SECONDS, latency_seconds=LATENCY_SECONDS)
    if arguments.save:
        head = {"versions": versions, "load_of": "nats-server or JetStream"}
        print(f"saved to {save('brokers', [head, *rows])}")
    short = misses(rows)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
