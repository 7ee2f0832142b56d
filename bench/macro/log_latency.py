"""Latency at a constant rate with every message in the log, and without a log.

    python -m bench.macro.log_latency [--save] [--quick] [--rounds 3]

10,000 messages of 100 bytes a second by the clock, whether or not earlier ones have arrived, as in
`bench.macro.latency`. "Acknowledged" is the time from when a message is due to its acknowledgment,
which with `fsync` is sent when the message is on disk. "Delivered" is the time to a subscriber;
delivery does not wait for the disk. The figures are those of the best round by its p99.

Others are measured beside them: a loop that writes as many bytes to a file and syncs it; a server
of one thread that does so for each read of its socket, and then answers; and delivery by
nats-server. What the server takes more than the loop is the way through the machine's network and
back: a broker, whose clients are other processes, cannot take less.
"""

import argparse
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.macro import latency
from bench.macro.intake import ACKNOWLEDGED, COUNTERS, VALUE, folder_bytes
from bench.macro.latency import BURST, PER_SECOND, SECONDS_MAX
from bench.macro.pacing import SLACK_NS_MIN, exact_sleep, wait_until
from bench.macro.peers import HOST, build_newest_nats, nats_server, nats_version
from bench.macro.stores import data_folder, penstock_store
from bench.macro.wires import WIRES, exchange
from bench.results import save

DURABILITIES = ("memory", "os", "fsync")
DELIVERED = ("herald", "rheos2")
ACKNOWLEDGED_PROTOCOL = "rheos2"
PERCENTILES = ("p50_us", "p90_us", "p99_us", "p999_us")
BARE = "write, fdatasync"
BARE_SERVER = "read, write, fdatasync, answer"
BARE_ANSWER_BYTES = 22
"""Of the bare server, as an acknowledgment of Rheos v2."""
TIMES_MAX = 1.3
"""The greatest ratio of medians with `fsync` to those of the bare loop and of nats-server."""


def send(peer: socket.socket, frame: bytes, count: int, start: float) -> None:
    """Send `count` messages at the rate, the first at `start`."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    due = start
    with exact_sleep():
        for _ in range(count // BURST):
            wait_until(due)
            peer.sendall(frame * BURST)
            due += BURST / PER_SECOND


def acknowledged(name: str, port: int, *, count: int) -> dict[str, float]:
    """Return percentiles in microseconds from due to acknowledged."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        wire = ACKNOWLEDGED[name]
        frame = wire.open_publisher(peer)(VALUE)
        exchange(peer, frame, wire.acknowledged_bytes)  # the first message opens the session
        return _answered(peer, frame, COUNTERS[name]().count, count=count)


def _answered(
    peer: socket.socket, frame: bytes, answers: Callable[[memoryview], int], *, count: int
) -> dict[str, float]:
    """Return percentiles from when frames are due to their answers, which `answers` counts."""
    start = time.monotonic() + 0.2
    context = multiprocessing.get_context("fork")
    sender = context.Process(target=send, args=(peer, frame, count, start))
    sender.start()
    buffer = memoryview(bytearray(65_536))
    late: list[float] = []
    while len(late) < count:
        received = peer.recv_into(buffer)
        now = time.monotonic()
        if not received:
            raise SystemExit("the server closed the connection")
        for _ in range(answers(buffer[:received])):
            late.append(now - start - len(late) // BURST * BURST / PER_SECOND)
    sender.join(SECONDS_MAX)
    return latency.percentiles(late)


def bare(size: int, *, count: int) -> dict[str, float]:
    """Return percentiles of a loop that writes and syncs a file, without a broker.

    `size` is that of a burst in the log. All bursts that are due are written together.
    """
    late: list[float] = []
    with data_folder() as folder:
        file = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            start = time.monotonic() + 0.2
            done, bursts = 0, count // BURST
            with exact_sleep():
                while done < bursts:
                    wait_until(start + done * BURST / PER_SECOND)
                    passed = int((time.monotonic() - start) * PER_SECOND / BURST) + 1
                    together = min(max(passed, done + 1), bursts)
                    os.write(file, bytes(size * (together - done)))
                    os.fdatasync(file)
                    now = time.monotonic()
                    for burst in range(done, together):
                        late += [now - start - burst * BURST / PER_SECOND] * BURST
                    done = together
        finally:
            os.close(file)
    return latency.percentiles(late)


def bare_server(size: int, *, count: int) -> dict[str, float]:
    """Return percentiles of a server of one thread that writes and syncs a file, then answers.

    `size` is that of a burst in the log.
    """
    frame = bytes(len(VALUE))
    with data_folder() as folder, socket.create_server((HOST, 0)) as listener:
        file = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        serving = (listener, file, len(frame), size // BURST)
        server = multiprocessing.get_context("fork").Process(target=_serve_bare, args=serving)
        server.start()
        rest = 0

        def answers(data: memoryview) -> int:
            nonlocal rest
            found, rest = divmod(rest + len(data), BARE_ANSWER_BYTES)
            return found

        try:
            with socket.create_connection(listener.getsockname(), timeout=SECONDS_MAX) as peer:
                return _answered(peer, frame, answers, count=count)
        finally:
            server.join(SECONDS_MAX)
            os.close(file)


def _serve_bare(listener: socket.socket, file: int, frame_bytes: int, stored_bytes: int) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = 0
        while data := peer.recv(65_536):
            frames, rest = divmod(rest + len(data), frame_bytes)
            os.write(file, bytes(stored_bytes * frames))
            os.fdatasync(file)
            peer.sendall(bytes(BARE_ANSWER_BYTES * frames))


def measure(*, rounds: int, count: int) -> list[dict[str, Any]]:
    """Return the best figures of every durability, and those they are compared with."""
    best: dict[tuple[str, str, str], dict[str, float]] = {}

    def take(key: tuple[str, str, str], figures: dict[str, float]) -> None:
        if key not in best or figures["p99_us"] < best[key]["p99_us"]:
            best[key] = figures

    for _ in range(rounds):
        for durability in DURABILITIES:
            with penstock_store(durability) as store:
                name = ACKNOWLEDGED_PROTOCOL
                figures = acknowledged(name, store.port, count=count)
                take(("acknowledged", name, durability), figures)
                if durability == "fsync":
                    size = folder_bytes(store.folder) * BURST // count
                    take(("acknowledged", BARE, durability), bare(size, count=count))
                    take(("acknowledged", BARE_SERVER, durability), bare_server(size, count=count))
                for name in DELIVERED:
                    figures = latency.run(WIRES[name], store.port, count=count)
                    take(("delivered", name, durability), figures)
        with nats_server() as port:
            figures = latency.run(WIRES["nats"], port, count=count)
            take(("delivered", "nats", "none"), figures)
    return [
        {
            "measure": what,
            "protocol": name,
            "durability": durability,
            "per_second": PER_SECOND,
            "nats_version": nats_version(),
            "timer_slack_ns": SLACK_NS_MIN,
            **figures,
        }
        for (what, name, durability), figures in sorted(best.items())
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the medians with `fsync` that are above their targets."""
    medians = {(row["measure"], row["protocol"]): row["p50_us"] for row in results}
    bounds = {
        "acknowledged": medians["acknowledged", BARE],
        "delivered": medians["delivered", "nats"],
    }
    return [
        f"{row['protocol']} {row['measure']} after {row['p50_us']:.0f} µs,"
        f" {TIMES_MAX * bounds[row['measure']]:.0f} wanted"
        for row in results
        if row["durability"] == "fsync"
        and row["protocol"] != BARE_SERVER
        and row["p50_us"] > TIMES_MAX * bounds[row["measure"]]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.quick:
        build_newest_nats()
    rounds, count = (1, 2_000) if arguments.quick else (arguments.rounds, 50_000)
    results = measure(rounds=rounds, count=count)
    version = results[0]["nats_version"]
    print(f"microseconds from due, at 10,000 of 100 bytes a second; nats-server {version}")
    heads = " ".join(f"{name:>7}" for name in ("p50", "p90", "p99", "p99.9"))
    print(f"{'':<13} {'protocol':<30} {'durability':<11} {heads}")
    for row in results:
        figures = " ".join(f"{row[name]:>7.0f}" for name in PERCENTILES)
        print(f"{row['measure']:<13} {row['protocol']:<30} {row['durability']:<11} {figures}")
    if arguments.save:
        print(f"saved to {save('log_latency', results)}")
    short = misses(results)
    for miss in short:
        print(f"above target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
