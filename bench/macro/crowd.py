"""Broker memory with many clients: for each idle client, and growth with short-lived clients.

    python -m bench.macro.crowd [--save] [--quick]

Idle: clients connect, subscribe and send nothing more; the growth of the broker's resident memory
is divided by their number. Restless: clients connect, subscribe, publish, receive and disconnect,
repeatedly; after a warm-up the broker's memory must not grow.
"""

import argparse
import contextlib
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.macro.peers import HOST, penstock_process
from bench.macro.wires import WIRES, exchange
from bench.results import save

PROTOCOLS = [name for name in WIRES if name != "nats"]
IDLE_KIB_MAX = 12.0
GROWTH_KIB_MAX = 4096


def resident_kib(process: "subprocess.Popen[bytes]") -> int:
    """Return the broker's resident memory."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("the broker has ended")


def connect(port: int) -> socket.socket:
    peer = socket.create_connection((HOST, port), timeout=10)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def idle(count: int) -> dict[str, Any]:
    """Return KiB of broker memory for each of `count` idle subscribers of all protocols."""
    with penstock_process() as (process, port), contextlib.ExitStack() as stack:
        for (
            name
        ) in PROTOCOLS:  # memory that the first client of a protocol allocates is not counted
            WIRES[name].open_subscriber(stack.enter_context(connect(port)), b"x")
        before = resident_kib(process)
        for number in range(count):
            wire = WIRES[PROTOCOLS[number % len(PROTOCOLS)]]
            wire.open_subscriber(stack.enter_context(connect(port)), b"x")
        after = resident_kib(process)
        return {"measure": "idle", "clients": count, "kib_each": (after - before) / count}


def restless(clients: int, seconds: float) -> dict[str, Any]:
    """Return the growth in KiB over the second half of `seconds` with short-lived clients."""
    randomness = random.Random(1)  # noqa: S311
    with penstock_process() as (process, port), contextlib.ExitStack() as stack:
        present: list[socket.socket] = []
        stack.callback(lambda: [peer.close() for peer in present])
        start = time.monotonic()
        visits = 0
        middle = 0
        while time.monotonic() - start < seconds:
            if len(present) >= clients:
                present.pop(randomness.randrange(len(present))).close()
            present.append(visit(port, randomness.choice(PROTOCOLS)))
            visits += 1
            for peer in randomness.sample(present, min(20, len(present))):
                with contextlib.suppress(BlockingIOError):
                    peer.recv(1 << 20)  # all of them receive every message
            if not middle and time.monotonic() - start > seconds / 2:
                middle = resident_kib(process)
        return {
            "measure": "restless",
            "clients": clients,
            "visits": visits,
            "growth_kib": resident_kib(process) - middle,
        }


def visit(port: int, name: str) -> socket.socket:
    """Connect, subscribe, and publish one message from a second connection; close that one."""
    wire = WIRES[name]
    subscriber = connect(port)
    size = wire.open_subscriber(subscriber, b"v" * 100)
    with connect(port) as publisher:
        frame = wire.open_publisher(publisher)(b"v" * 100)
        exchange(publisher, frame, wire.acknowledged_bytes)
        exchange(subscriber, b"", size)
    subscriber.setblocking(False)  # noqa: FBT003
    return subscriber


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    arguments = parser.parse_args()
    results = [
        idle(500 if arguments.quick else 10_000),
        restless(*((50, 4.0) if arguments.quick else (1_000, 60.0))),
    ]
    for row in results:
        print(", ".join(f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
                        for name, value in row.items()))  # fmt: skip
    if arguments.save:
        print(f"saved to {save('crowd', results)}")
    return int(results[0]["kib_each"] > IDLE_KIB_MAX or results[1]["growth_kib"] > GROWTH_KIB_MAX)


if __name__ == "__main__":
    sys.exit(main())
