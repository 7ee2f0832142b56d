"""Replay of history to one client, and live delivery of the same messages in the same run.

    python -m bench.macro.replay [--save] [--quick] [--rounds 1]

Live: one publisher and one subscriber through a broker with its log, as in `bench.macro.logged`.
Replay: when all messages are in the log, another client subscribes from the earliest message and
counts what arrives, from its subscription to the last byte. Then one more message is published: it
must arrive next, after exactly the messages in the log. A herald subscription cannot carry a start,
so its replay is configured, and the broker is restarted for it.
"""

import argparse
import multiprocessing
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.macro import pubsub
from bench.macro.peers import HOST
from bench.macro.stores import data_folder, penstock_store
from bench.macro.wires import CHANNEL, WIRES, Wire, exchange
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

PROTOCOLS = [name for name in WIRES if name != "nats"]
REPLAY = f'[herald.replay]\n{CHANNEL} = "@earliest"\n'
LAST = pubsub.VALUE[::-1]
SECONDS_MAX = 120

# Target ratio to live delivery of the same protocol in the same run.
TIMES_MIN = 1.1


def replay(wire: Wire, port: int, count: int, results: "Queue[float]") -> None:
    """Receive `count` messages of history and a live one; report the seconds for history."""
    with (
        socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer,
        socket.create_connection((HOST, port), timeout=SECONDS_MAX) as publisher,
    ):
        frame = wire.open_publisher(publisher)(LAST)
        start = time.monotonic()
        size = wire.open_subscriber(peer, pubsub.VALUE, start="@earliest")
        receive(peer, size * count)
        seconds = time.monotonic() - start
        exchange(publisher, frame, wire.acknowledged_bytes)
        last = exchange(peer, b"", size)
        if LAST not in last:
            raise SystemExit(f"{wire.name}: history has more than {count} messages")
        results.put(seconds)


def receive(peer: socket.socket, size: int) -> None:
    """Read `size` bytes; no more may have arrived."""
    buffer = bytearray(1024 * 1024)
    while size > 0:
        received = peer.recv_into(buffer)
        if not received:
            raise SystemExit("the broker closed the connection")
        size -= received
    if size < 0:
        raise SystemExit(f"history has {-size} bytes too many")


def run_replay(wire: Wire, port: int, *, count: int) -> float:
    """Return messages of history per second."""
    context = multiprocessing.get_context("fork")
    results: Queue[float] = context.Queue()
    client = context.Process(target=replay, args=(wire, port, count, results))
    client.start()
    client.join(SECONDS_MAX)
    if client.exitcode != 0:
        client.kill()
        raise SystemExit(f"{wire.name}: history did not come")
    return count / results.get(timeout=1)


def run(name: str, *, count: int, durability: str = "os") -> tuple[float, float]:
    """Return messages per second, live and then from history."""
    wire = WIRES[name]
    with data_folder() as folder:
        with penstock_store(durability, folder=folder) as store:
            live = pubsub.run(wire, store.port, count=count, subscribers=1)
            if name != "herald":
                return live, run_replay(wire, store.port, count=count)
        with penstock_store(durability, folder=folder, config=REPLAY) as store:
            return live, run_replay(wire, store.port, count=count)


def measure(*, rounds: int, count: int, names: list[str]) -> list[dict[str, Any]]:
    """Return the best figures of every protocol."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name in names:
            live, history = run(name, count=count)
            before = best.get(name, (0.0, 0.0))
            best[name] = max(live, before[0]), max(history, before[1])
    return [
        {
            "protocol": name,
            "messages": count,
            "value_bytes": len(pubsub.VALUE),
            "live": live,
            "replayed": history,
            "times_live": history / live,
        }
        for name, (live, history) in best.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    rounds, count = (1, 40_000) if arguments.quick else (arguments.rounds, 10_000_000)
    results = measure(rounds=rounds, count=count, names=PROTOCOLS)
    print(f"million messages of 100 bytes a second, of {count:,}")
    print(f"{'protocol':<9} {'live':>6} {'replayed':>9} {'x live':>7}")
    for row in results:
        print(
            f"{row['protocol']:<9} {row['live'] / 1e6:>6.2f} {row['replayed'] / 1e6:>9.2f}"
            f" {row['times_live']:>7.1f}"
        )
    if arguments.save:
        print(f"saved to {save('replay', results)}")
    short = [row for row in results if row["times_live"] < TIMES_MIN]
    for row in short:
        print(
            f"below target: {row['protocol']}: {row['times_live']:.2f} times live delivery",
            file=sys.stderr,
        )
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
