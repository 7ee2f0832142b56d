"""What the console costs the broker, and how long its pages take, with many topics and clients.

    python -m bench.macro.console [--save] [--quick]

A Rheos v2 client publishes 100 bytes to each of 100,000 topics in turn, 100,000 times a second,
while 1,000 other clients are connected. Cost: processor time of the broker's process for each
message, in slices of a few seconds with the console away, open at its overview, and open at live
messages; slices alternate. The pages are open in Debian's chromium. Pages: seconds from a request
for the page to the end of the answer, the longest of several, under the same load.
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self

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
PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topics below a level": "/topics?prefix=plant/",
    "messages": "/messages",
    "messages of a pattern": "/messages?topic=plant/%23",
    "messages of a topic": "/messages?topic=plant/00017/temperature",
    "clients": "/clients",
    "groups": "/groups",
    "refusals": "/refusals",
    "storage": "/storage",
}
OPEN: Final = {"overview": "/", "live messages": "/messages?topic=plant/%23"}
COST_PERCENT_MAX: Final = 3.0
PAGE_SECONDS_MAX: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


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
        due = time.monotonic()
        number = 0
        while not self._ends.is_set():
            self._peer.sendall(self._blocks[number % len(self._blocks)])
            number += 1
            self.sent += self._each
            due += 1 / BLOCKS
            time.sleep(max(due - time.monotonic(), 0))

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while self._peer.recv(1 << 20):
                pass


@contextlib.contextmanager
def console(store: Store) -> Iterator[str]:
    """Run `penstock console`; yield its address."""
    command = [sys.executable, "-m", "penstock.cli", "console", "--listen", f"{HOST}:0"]
    command += ["--url", f"http://{HOST}:{store.http_port}"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            yield _address(process, output.fileno())
        finally:
            process.terminate()
            process.wait(30)


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
    """Return the processor time that the broker's process took since its start."""
    with open(f"/proc/{store.process.pid}/stat") as file:  # noqa: PTH123
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def microseconds_each(store: Store, publisher: Publisher, seconds: float) -> float:
    """Return processor time of the broker for each message, over some seconds."""
    began, sent = processor_seconds(store), publisher.sent
    time.sleep(seconds)
    return (processor_seconds(store) - began) * 1e6 / (publisher.sent - sent)


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


def costs(store: Store, publisher: Publisher, *, rounds: int, seconds: float) -> dict[str, float]:
    """Return microseconds of the broker for each message: without a console, and with each page."""
    taken: dict[str, list[float]] = {"no console": [], **{name: [] for name in OPEN}}
    for _ in range(rounds):
        taken["no console"].append(microseconds_each(store, publisher, seconds))
        with console(store) as base, browser_page() as page:
            for name, path in OPEN.items():
                page.goto(base + path)
                time.sleep(1)
                taken[name].append(microseconds_each(store, publisher, seconds))
    return {name: statistics.median(each) for name, each in taken.items()}


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each page, and for each cost."""
    topics, clients, rate = (500, 20, 5_000) if quick else (TOPICS, CLIENTS, RATE)
    rows: list[dict[str, Any]] = []
    with (
        penstock_store() as store,
        crowd(store.port, clients),
        Publisher(store.port, topics=topics, rate=rate) as publisher,
    ):
        wanted = 2 * topics
        while publisher.sent < wanted or publisher.sent < rate * 10 * (not quick):
            time.sleep(0.1)
        with console(store) as base:
            page_seconds(base, "/", 1)  # modules are loaded
            for name, path in PAGES.items():
                seconds = page_seconds(base, path, 1 if quick else 5)
                rows.append({"measure": "page", "name": name, "seconds": seconds})
        if not quick:
            found = costs(store, publisher, rounds=3, seconds=6)
            alone = found["no console"]
            rows += [
                {
                    "measure": "cost", "name": name, "microseconds_each": each,
                    "percent": 100 * (each / alone - 1), "rate": rate, "topics": topics,
                    "clients": clients,
                }
                for name, each in found.items()
            ]  # fmt: skip
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
        else:
            print(
                f"{row['name']}: {row['microseconds_each']:.2f} microseconds of the broker for a"
                f" message, {row['percent']:+.1f} %"
            )
    if arguments.save:
        print(f"saved to {save('console', results)}")
    slow = [row for row in results if row.get("seconds", 0.0) > PAGE_SECONDS_MAX]
    dear = [row for row in results if row.get("percent", 0.0) > COST_PERCENT_MAX]
    for row in (*slow, *dear):
        print(f"below target: {row['name']}", file=sys.stderr)
    return 1 if (slow or dear) and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
