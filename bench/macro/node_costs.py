"""What a node on Kafka spends for each message and for each group: its own, and those of others.

    python -m bench.macro.node_costs [--save] [--quick] [--seconds 5] [--rounds 3]

A publisher sends bursts of 1, 100 and 2,000 messages of 100 bytes to one node, each when the one
before is acknowledged. Another node follows it, without a subscriber and with one in turns. The
processor time of both nodes and of Kafka is read from the system, less what they use while nothing
is sent; the best of several rounds counts. A node tells how many transactions it has committed,
each with a group or a few.

The time of a process is fitted as `messages * a + groups * b`, with the least squares of the
relative differences; "off" is the largest of them. The publisher's node takes, appends and commits.
The follower fetches, checks, loads and routes; with a subscriber it delivers too.
"""

import argparse
import contextlib
import os
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.macro.intake import VALUE, FixedCounter
from bench.macro.kafka_nodes import Cluster, kafka_nodes
from bench.macro.peers import HOST
from bench.macro.stores import Store
from bench.macro.wires import WIRES
from bench.results import save

BURSTS = (1, 100, 2_000)
PUBLISHER = WIRES["rheos2"]
SUBSCRIBER = WIRES["herald"]
SECONDS_MAX = 60
FOLLOWED_SECONDS = 0.5
"""The last groups of a load are followed within this time."""
TICKS = os.sysconf("SC_CLK_TCK")
COMMITS = re.compile(rb"^penstock_log_commits_total(?:\{[^}]*\})? ([0-9.e+]+)", re.MULTILINE)


class Run(NamedTuple):
    """Messages and groups that were sent, and the processor seconds of each process for them."""

    burst: int
    messages: int
    groups: int
    seconds: float
    used: dict[str, float]


class Cost(NamedTuple):
    """Microseconds of processor time for each message and each group."""

    message_us: float
    group_us: float
    off: float


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def commits(node: Store) -> int:
    """Return the transactions that a node has committed."""
    with urllib.request.urlopen(f"http://{HOST}:{node.http_port}/metrics") as answer:
        found = COMMITS.search(answer.read())
    if found is None:
        raise SystemExit("a node does not tell its commits")
    return int(float(found[1]))


def processes(cluster: Cluster) -> dict[str, int]:
    source, target = (node.process.pid for node in cluster.nodes)
    (kafka,) = (broker.process for broker in cluster.brokers)
    if kafka is None:
        raise SystemExit("Kafka does not run")
    return {"source": source, "target": target, "kafka": kafka.pid}


def idle_rates(cluster: Cluster, seconds: float) -> dict[str, float]:
    """Return the processor seconds that each process uses in a second without messages."""
    names = processes(cluster)
    before = {name: processor_seconds(each) for name, each in names.items()}
    time.sleep(seconds)
    return {
        name: (processor_seconds(each) - before[name]) / seconds for name, each in names.items()
    }


def send(cluster: Cluster, burst: int, seconds: float, idle: dict[str, float]) -> Run:
    """Send bursts for some seconds."""
    source = cluster.nodes[0]
    names = processes(cluster)
    with socket.create_connection((HOST, source.port), timeout=SECONDS_MAX) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = PUBLISHER.open_publisher(peer)(VALUE) * burst
        counter = FixedCounter(PUBLISHER)
        buffer = bytearray(1 << 20)
        groups = commits(source)
        before = {name: processor_seconds(each) for name, each in names.items()}
        start = time.monotonic()
        messages = 0
        while time.monotonic() < start + seconds:
            peer.sendall(frames)
            messages += burst
            waiting = burst
            while waiting:
                received = peer.recv_into(buffer)
                if not received:
                    raise SystemExit("a node closed the connection")
                waiting -= counter.count(memoryview(buffer)[:received])
        sending = time.monotonic() - start
        groups = commits(source) - groups
        time.sleep(FOLLOWED_SECONDS)
        took = time.monotonic() - start
    used = {
        name: max(processor_seconds(each) - before[name] - idle[name] * took, 1 / TICKS)
        for name, each in names.items()
    }
    return Run(burst, messages, groups, sending, used)


@contextlib.contextmanager
def subscriber(port: int) -> Iterator[None]:
    """Receive what a node delivers."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        SUBSCRIBER.open_subscriber(peer, VALUE)
        peer.settimeout(None)

        def read() -> None:
            buffer = bytearray(1 << 20)
            with contextlib.suppress(OSError):
                while peer.recv_into(buffer):
                    pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        yield
        peer.shutdown(socket.SHUT_RDWR)
        thread.join(SECONDS_MAX)


def fit(runs: Iterable[Run], name: str) -> Cost:
    """Return the costs of a process that explain its processor time; the best run of each burst."""
    best: dict[int, Run] = {}
    for run in sorted(runs, key=lambda each: each.used[name] / each.messages, reverse=True):
        best[run.burst] = run
    rows = [(run.messages / run.used[name], run.groups / run.used[name]) for run in best.values()]
    mm = sum(m * m for m, _ in rows)
    gg = sum(g * g for _, g in rows)
    mg = sum(m * g for m, g in rows)
    m, g = (sum(each) for each in zip(*rows, strict=True))
    determinant = mm * gg - mg * mg
    message, group = (m * gg - g * mg) / determinant, (g * mm - m * mg) / determinant
    if message < 0:
        message, group = 0.0, g / gg
    off = max(abs(1 - message * m - group * g) for m, g in rows)
    return Cost(message * 1e6, group * 1e6, off)


def measure(cluster: Cluster, *, seconds: float, rounds: int = 1) -> list[dict[str, Any]]:
    """Return the costs of each kind of work, and the time of a commit."""
    warm = dict.fromkeys(processes(cluster), 0.0)
    for burst in BURSTS:
        send(cluster, burst, seconds, warm)  # warms up Kafka's Java
    idle = idle_rates(cluster, seconds)
    alone: list[Run] = []
    served: list[Run] = []
    for _ in range(rounds):
        alone += [send(cluster, burst, seconds, idle) for burst in BURSTS]
        with subscriber(cluster.nodes[1].port):
            served += [send(cluster, burst, seconds, idle) for burst in BURSTS]
    costs = {
        "append": fit(alone, "source"),
        "follow": fit(alone, "target"),
        "deliver": fit(served, "target"),
        "kafka": fit(alone, "kafka"),
    }
    single = min((run for run in alone if run.burst == 1), key=lambda run: run.seconds / run.groups)
    return [
        *({"measure": "cost", "work": work, **cost._asdict()} for work, cost in costs.items()),
        {"measure": "idle", **{f"{name}_percent": rate * 100 for name, rate in idle.items()}},
        {"measure": "commit", "milliseconds": single.seconds / single.groups * 1e3},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with kafka_nodes(2) as cluster:
        seconds, rounds = (1.0, 1) if arguments.quick else (arguments.seconds, arguments.rounds)
        results = measure(cluster, seconds=seconds, rounds=rounds)
    print("microseconds of processor time")
    print(f"{'':<9} {'message':>9} {'group':>9} {'off':>6}")
    for row in results:
        if row["measure"] == "cost":
            print(
                f"{row['work']:<9} {row['message_us']:>9.2f} {row['group_us']:>9.0f}"
                f" {row['off']:>6.0%}"
            )
        else:
            print(", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.save:
        print(f"saved to {save('node_costs', results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
