"""What the console costs the broker, and how long its pages take, with many topics and clients.

    python -m bench.macro.console [--save] [--quick]

A Rheos v2 client publishes 100 bytes to each of 100,000 topics in turn, 100,000 times a second,
while 1,000 other clients are connected.

Pages: seconds from a request for the page to the end of the answer, the longest of several.

Cost: processor time of the broker's process for each message, with a page open in Debian's
chromium. The console is stopped (SIGSTOP) and goes on by turns of a few seconds, so that drifts of
the machine are in both; the median of the differences of neighbouring turns counts. The processor
time is that of all threads of the broker.

Throughput: messages a second of a publisher that sends as fast as the broker takes them, with a
page open and without, by turns in the same way.

The broker has a processor of its own, as if console and browser ran on another machine. They share
the other processor with the publisher, which goes first.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import deltalake
import pyarrow as pa

from bench.macro.crowd import PROTOCOLS, connect
from bench.macro.intake import COUNTERS, WINDOW, load
from bench.macro.peers import HOST
from bench.macro.stores import Store, penstock_store
from bench.macro.topics import frames, pieces
from bench.macro.wires import WIRES
from bench.results import save
from penstock.wire.rheos import OpCode

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOPICS: Final = 100_000
CLIENTS: Final = 1_000
RATE: Final = 100_000
BLOCKS: Final = 100
"""Writes of the publisher in a second."""
LOG_BYTES_MAX: Final = 8 << 30
"""Retention of the log: a full disk would refuse messages, which costs less than to take them."""
PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topics below a level": "/topics?prefix=plant/",
    "messages": "/messages",
    "messages of a pattern": "/messages?topic=plant/%23",
    "messages of a topic": "/messages?topic=plant/00017/temperature",
    "clients": "/clients",
    "groups": "/groups",
    "hooks": "/hooks",
    "refusals": "/refusals",
    "storage": "/storage",
    "cluster": "/cluster",
    "pipeline": "/pipeline",
    "sql": "/sql",
}
OPEN: Final = {
    "overview": "/",
    "topics": "/topics?prefix=plant/",
    "live messages": "/messages?topic=plant/%23",
    "clients": "/clients",
    "groups": "/groups",
    "hooks": "/hooks",
    "refusals": "/refusals",
    "storage": "/storage",
    "pipeline": "/pipeline",
}
TABLE_ROWS: Final = 10_000
TABLE_COMMITS: Final = 5
TURN_SECONDS: Final = 2.5
TURNS: Final = 6
PUBLISHER_NICENESS: Final = -10
SETTLE_SECONDS: Final = 0.5
"""After each change, before its turn is measured."""
COST_PERCENT_MAX: Final = 3.0
PAGE_SECONDS_MAX: Final = 1.0


def prefer_thread() -> None:
    """Let the calling thread go before others, if that is allowed."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PUBLISHER_NICENESS)


@contextlib.contextmanager
def separated(store: Store) -> Iterator[None]:
    """Give the broker a processor of its own, and all others to this thread and what it starts."""
    before = os.sched_getaffinity(0)
    own, *others = sorted(before)
    if others:
        for task in Path(f"/proc/{store.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {own})
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Publisher:
    """Publishes at a rate, in a thread, as long as the context is open."""

    def __init__(self, port: int, *, topics: int, rate: int) -> None:
        self._peer = socket.create_connection((HOST, port), timeout=60)
        creations = frames(OpCode.CREATE, topics, b"")
        load(self._peer, pieces(creations, topics), COUNTERS["rheos2"](), WINDOW)
        self._reader = threading.Thread(target=self._drain)
        self._writer = threading.Thread(target=self._write)
        self._ends = threading.Event()
        self.sent = 0
        self.floods = False
        """Whether it sends as fast as the broker takes messages, instead of at the rate."""
        each = rate // BLOCKS
        frame_of = frames(OpCode.PUBLISH, topics, b"v" * 100)
        frame_of *= -(-each // len(frame_of))
        self._blocks = [
            b"".join(frame_of[first : first + each]) for first in range(0, len(frame_of), each)
        ]
        self._each = each

    def __enter__(self) -> Self:
        self._reader.start()
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._writer.join()
        self._peer.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._peer.close()

    def _write(self) -> None:
        prefer_thread()
        due = time.monotonic()
        number = 0
        while not self._ends.is_set():
            self._peer.sendall(self._blocks[number % len(self._blocks)])
            number += 1
            self.sent += self._each
            if self.floods:
                due = time.monotonic()
                continue
            due += 1 / BLOCKS
            time.sleep(max(due - time.monotonic(), 0))

    def _drain(self) -> None:
        prefer_thread()
        with contextlib.suppress(OSError):
            while self._peer.recv(1 << 20):
                pass


class Console(NamedTuple):
    """A console that runs."""

    process: "subprocess.Popen[bytes]"
    url: str


@contextlib.contextmanager
def running_console(store: Store) -> Iterator[Console]:
    """Run `penstock console`, with some tables of a pipeline."""
    command = [sys.executable, "-m", "penstock.cli", "console", "--listen", f"{HOST}:0"]
    command += ["--url", f"http://{HOST}:{store.http_port}"]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as warehouse:
        fill_warehouse(Path(warehouse))
        command += ["--warehouse", warehouse]
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            yield Console(process, _address(process, output.fileno()))
        finally:
            process.send_signal(signal.SIGCONT)  # one that is stopped would not end
            process.terminate()
            process.wait(30)


def fill_warehouse(folder: Path) -> None:
    """Write tables of a few commits each."""
    rows = pa.table({"topic": [f"plant/{number:05}" for number in range(TABLE_ROWS)]})
    for name in ("bronze", "silver/temps", "silver/orders", "gold/traffic"):
        (folder / name).mkdir(parents=True)
        for _ in range(TABLE_COMMITS):
            deltalake.write_deltalake(str(folder / name), rows, mode="append")


def _address(process: "subprocess.Popen[bytes]", output: int) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(rb"is at (http\S+)/", os.pread(output, 1 << 16, 0))
        if found:
            return found[1].decode()
        time.sleep(0.05)
    raise SystemExit(f"the console did not start: {os.pread(output, 1 << 16, 0).decode()}")


@contextlib.contextmanager
def crowd(port: int, count: int) -> Iterator[None]:
    """Connect clients of all protocols; each subscribes and sends nothing more."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            wire = WIRES[PROTOCOLS[number % len(PROTOCOLS)]]
            wire.open_subscriber(stack.enter_context(connect(port)), b"x")
        yield


def processor_seconds(store: Store) -> float:
    """Return the processor time that all threads of the broker took so far."""
    tasks = Path(f"/proc/{store.process.pid}/task")
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks.iterdir()) / 1e9


def answers(store: Store) -> int:
    """Return how many HTTP requests the broker has answered."""
    with urllib.request.urlopen(f"http://{HOST}:{store.http_port}/metrics") as answer:
        found = re.findall(r"penstock_http_requests_total\{.*\} (\S+)", answer.read().decode())
    return int(sum(map(float, found)))


def page_seconds(base: str, path: str, times: int) -> float:
    """Return the longest time in which the console answered with a page."""
    longest = 0.0
    for _ in range(times):
        began = time.monotonic()
        with urllib.request.urlopen(base + path, timeout=60) as answer:  # noqa: S310
            answer.read()
        longest = max(longest, time.monotonic() - began)
    return longest


@contextlib.contextmanager
def browser_page() -> Iterator["Page"]:
    """Start chromium; yield a page of it."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- not needed for tests

    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("chromium is needed: apt-get install chromium")
    with sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched.new_page(viewport={"width": 1280, "height": 900})
        launched.close()


class Turn(NamedTuple):
    """Processor time of the broker for each message, and messages a second."""

    microseconds_each: float
    rate: float


def turn(store: Store, publisher: Publisher) -> Turn:
    """Measure for TURN_SECONDS."""
    time.sleep(SETTLE_SECONDS)
    began, sent, at = processor_seconds(store), publisher.sent, time.monotonic()
    time.sleep(TURN_SECONDS)
    count, used = publisher.sent - sent, processor_seconds(store) - began
    if not count:
        raise SystemExit(f"the broker took no message for {TURN_SECONDS} s")
    return Turn(used * 1e6 / count, count / (time.monotonic() - at))


def costs(
    store: Store, publisher: Publisher, console: Console, *, turns: int
) -> Iterator[dict[str, Any]]:
    """Yield the cost of each page."""
    with browser_page() as page:
        for name, path in OPEN.items():
            page.goto(console.url + path)
            time.sleep(3)
            asked = answers(store)
            pairs = []
            for _ in range(turns):
                running = turn(store, publisher)
                console.process.send_signal(signal.SIGSTOP)
                stopped = turn(store, publisher)
                console.process.send_signal(signal.SIGCONT)
                pairs.append((running, stopped))
            requests = answers(store) - asked
            without = statistics.median(each.microseconds_each for _, each in pairs)
            more = statistics.median(
                first.microseconds_each - second.microseconds_each for first, second in pairs
            )
            yield {
                "measure": "cost", "name": name, "without_us": without, "more_us": more,
                "percent": RATE * more / 1e4, "requests": requests,
                "rate": min(each.rate for pair in pairs for each in pair),
            }  # fmt: skip
            publisher.floods = True
            yield throughput(store, publisher, console, name, turns=turns)
            publisher.floods = False


def throughput(
    store: Store, publisher: Publisher, console: Console, name: str, *, turns: int
) -> dict[str, Any]:
    """Return the greatest throughput with a page open, and without."""
    pairs = []
    for _ in range(turns):
        running = turn(store, publisher).rate
        console.process.send_signal(signal.SIGSTOP)
        stopped = turn(store, publisher).rate
        console.process.send_signal(signal.SIGCONT)
        pairs.append((running, stopped))
    return {
        "measure": "throughput", "name": name,
        "without": statistics.median(stopped for _, stopped in pairs),
        "with": statistics.median(running for running, _ in pairs),
        "lost_percent": statistics.median(
            100 * (1 - running / stopped) for running, stopped in pairs
        ),
    }  # fmt: skip


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each page, and for each cost."""
    topics, clients, rate = (500, 20, 5_000) if quick else (TOPICS, CLIENTS, RATE)
    rows: list[dict[str, Any]] = []
    with (
        penstock_store(config=f"[log]\nbytes_max = {LOG_BYTES_MAX}\n") as store,
        separated(store),
        crowd(store.port, clients),
        Publisher(store.port, topics=topics, rate=rate) as publisher,
    ):
        wanted = 2 * topics
        while publisher.sent < wanted or publisher.sent < rate * 10 * (not quick):
            time.sleep(0.1)
        with running_console(store) as console:
            page_seconds(console.url, "/", 1)  # modules are loaded
            for name, path in PAGES.items():
                seconds = page_seconds(console.url, path, 1 if quick else 5)
                rows.append({"measure": "page", "name": name, "seconds": seconds})
            if not quick:
                rows += costs(store, publisher, console, turns=TURNS)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    arguments = parser.parse_args()
    results = measure(quick=arguments.quick)
    for row in results:
        if row["measure"] == "page":
            print(f"page {row['name']}: {row['seconds']:.2f} s")
        elif row["measure"] == "throughput":
            print(
                f"open at {row['name']}: {row['with']:,.0f} messages a second at most, without"
                f" {row['without']:,.0f}: {row['lost_percent']:+.1f} % less"
            )
        else:
            print(
                f"open at {row['name']}: {row['more_us']:.3f} microseconds of the broker for a"
                f" message more than {row['without_us']:.2f}, {row['percent']:+.1f} % of a core,"
                f" at {row['rate']:,.0f} messages a second, {row['requests']} requests"
            )
    if arguments.save:
        print(f"saved to {save('console', results)}")
    slow = [row for row in results if row.get("seconds", 0.0) > PAGE_SECONDS_MAX]
    dear = [row for row in results if row.get("lost_percent", 0.0) > COST_PERCENT_MAX]
    for row in (*slow, *dear):
        print(f"below target: {row['name']}", file=sys.stderr)
    return 1 if (slow or dear) and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
