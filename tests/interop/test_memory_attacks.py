"""Attackers that pin memory: the process stays within its budget, and honest clients go on."""

import base64
import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest

from penstock.conform.fleximq import encoding as fx
from tests.support.budgeted import MIB, BudgetedBroker
from tests.support.live import Peer
from tests.support.rheos_bytes import CREATE, PUBLISH, SUBSCRIBE, Client, Rheos

BUDGET = 128 * MIB
BASE = 48 * MIB
"""Memory above the budget: copies that exist for a moment, and fragments of the allocator."""
RHEOS = Rheos(2)
FRAME = 15 * MIB
UNFINISHED = struct.pack("<BI16sBHI", 0xFA, FRAME, bytes(range(16)), 3, 1, FRAME - 7)
CHUNK = bytes(256 * 1024)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BudgetedBroker]:
    with BudgetedBroker(tmp_path_factory.mktemp("memory"), bytes_max=BUDGET) as made:
        yield made


@pytest.fixture
def broker(running: BudgetedBroker) -> BudgetedBroker:
    running.reset_peak()
    return running


def connect(address: tuple[str, int], number: int = 0) -> socket.socket:
    """Connect from one of eight addresses of attackers."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.bind((f"127.0.0.{2 + number % 8}", 0))
    made.connect(address)
    return made


class Flood:
    """Sends to each socket as much as it takes, in a thread, until the block ends."""

    def __init__(self, sockets: list[socket.socket], *, bytes_max: int) -> None:
        self._left = dict.fromkeys(sockets, bytes_max)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        for each in self._left:
            each.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in self._left:
                each.settimeout(0)
                selector.register(each, selectors.EVENT_WRITE)
            while not self._done.is_set():
                for key, _ in selector.select(0.05):
                    self._send(selector, key.fileobj)

    def _send(self, selector: selectors.BaseSelector, each: socket.socket) -> None:  # type: ignore[override]
        try:
            sent = each.send(CHUNK[: min(len(CHUNK), self._left[each])])
        except BlockingIOError:
            return
        except OSError:
            selector.unregister(each)
            return
        self.sent += sent
        self._left[each] -= sent
        if not self._left[each]:
            selector.unregister(each)


class Honest:
    """A publisher and a subscriber whose messages must be complete and in order."""

    def __init__(self, broker: BudgetedBroker, topic: bytes) -> None:
        self.publisher = Client(broker.address, RHEOS)
        self.subscriber = Client(broker.address, RHEOS)
        self.publisher.socket.settimeout(20)
        self.subscriber.socket.settimeout(20)
        self._topic = topic
        self._count = 0
        self.publisher.ask(CREATE, topic)
        self.subscriber.must(SUBSCRIBE, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.publisher.socket.close()
        self.subscriber.socket.close()

    def exchange(self, count: int, size: int = 100) -> None:
        """Publish messages; each is acknowledged, and the subscriber gets all of them in order."""
        for _ in range(count):
            value = b"%08d" % self._count + bytes(size)
            self._count += 1
            self.publisher.must(PUBLISH, self._topic, value)
            assert self.subscriber.delivery().payload == value


def check(broker: BudgetedBroker) -> None:
    """The process has stayed within its budget."""
    peak = broker.peak_bytes - broker.base_bytes
    assert peak < BUDGET + BASE, f"{peak / MIB:.0f} MiB above the start"


def exchange_during(honest: Honest, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        honest.exchange(5)
        time.sleep(0.05)


# --- Input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("addresses", [1, 8])
def test_unfinished_frames_stay_within_the_budget(broker: BudgetedBroker, addresses: int) -> None:
    with Honest(broker, b"honest/frames") as honest:
        sockets = [connect(broker.address, number % addresses) for number in range(100)]
        for each in sockets:
            each.sendall(UNFINISHED)
        with Flood(sockets, bytes_max=FRAME - 100 * 1024) as flood:
            exchange_during(honest, 1.5)
            assert flood.sent > 16 * MIB
            assert broker.metrics()["penstock_memory_drawn_bytes"] < BUDGET + 16 * MIB
            honest.exchange(10, size=1 * MIB)
        check(broker)


def test_frames_before_the_handshake_hold_little(broker: BudgetedBroker) -> None:
    """A fleximq JOIN with a payload of 15 MiB is refused long before it is there."""
    sockets = [connect(broker.address, number) for number in range(64)]
    for each in sockets:
        each.sendall(fx.frame(fx.JOIN, 0)[:-8] + struct.pack(">Q", FRAME))
    with Flood(sockets, bytes_max=FRAME) as flood, Honest(broker, b"honest/join") as honest:
        exchange_during(honest, 0.5)
        assert flood.sent < 64 * 8 * MIB
        for each in sockets:
            each.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                answer = each.recv(4096)
                assert answer == b"" or b"handshake of 135169 bytes" in answer
    check(broker)


def masked(size: int) -> bytes:
    """The header of a binary WebSocket message."""
    return bytes((0x82, 0x80 | 127)) + struct.pack(">Q", size) + bytes(4)


def open_websocket(broker: BudgetedBroker, number: int) -> socket.socket:
    made = connect(broker.web, number)
    key = base64.b64encode(os.urandom(16)).decode()
    made.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {broker.web[0]}:{broker.web[1]}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b"101" in made.recv(1024)
    return made


def test_websocket_messages_before_the_handshake_hold_little(broker: BudgetedBroker) -> None:
    sockets = [open_websocket(broker, number) for number in range(30)]
    for each in sockets:
        each.sendall(masked(FRAME))
    with Flood(sockets, bytes_max=FRAME - 1) as flood, Honest(broker, b"honest/ws") as honest:
        exchange_during(honest, 0.5)
        assert flood.sent < 30 * 8 * MIB
    check(broker)


# --- Output ---------------------------------------------------------------------------------------


def test_replays_that_are_not_read_stay_within_the_budget(broker: BudgetedBroker) -> None:
    with Honest(broker, b"honest/replay") as honest:
        honest.exchange(24, size=1 * MIB)
        with contextlib.ExitStack() as stack:
            for number in range(60):
                attacker = stack.enter_context(connect(broker.address, number))
                attacker.sendall(RHEOS.request(SUBSCRIBE, b"honest/replay@earliest"))
            exchange_during(honest, 1.0)
            check(broker)
            with Client(broker.address, RHEOS) as late:
                late.socket.settimeout(20)
                late.request(SUBSCRIBE, b"honest/replay@earliest")
                _, messages = late.sort(acks=1, deliveries=24)
                assert [each.payload[:8] for each in messages] == [b"%08d" % n for n in range(24)]


def test_subscribers_that_do_not_read_stay_within_the_budget(broker: BudgetedBroker) -> None:
    with Honest(broker, b"honest/live") as honest, contextlib.ExitStack() as stack:
        for number in range(60):
            attacker = stack.enter_context(connect(broker.address, number))
            attacker.sendall(RHEOS.request(SUBSCRIBE, b"honest/live"))
        for _ in range(4):
            honest.exchange(8, size=1 * MIB)
        check(broker)


# --- HTTP -----------------------------------------------------------------------------------------


def answers_during(honest: Honest, sockets: list[socket.socket]) -> list[bytes]:
    """Return the refusals that come first; none if all connections are closed without any."""
    opened = set(sockets)
    while opened:
        exchange_during(honest, 0.05)
        answers = []
        for each in list(opened):
            with contextlib.suppress(BlockingIOError):
                try:
                    answers.append(each.recv(4096))
                except ConnectionResetError:
                    answers.append(b"")
                if not answers[-1]:
                    opened.discard(each)
        refused = [each for each in answers if each.startswith(b"HTTP/1.1 503 ")]
        if refused:
            return refused
    return []


def test_bodies_that_find_no_memory_are_refused_with_503(broker: BudgetedBroker) -> None:
    size = 4 * MIB
    head = (
        f"POST /api/publish HTTP/1.1\r\nHost: {broker.web[0]}:{broker.web[1]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
    refused: list[bytes] = []
    with Honest(broker, b"honest/http") as honest, contextlib.ExitStack() as floods:
        for _ in range(10):  # a client that sends on may lose the answer
            sockets = [connect(broker.web, number) for number in range(60)]
            for each in sockets:
                each.sendall(head)
            floods.enter_context(Flood(sockets, bytes_max=size - 1))
            refused = answers_during(honest, sockets)
            if refused:
                break
            floods.close()
        # The broker's count tells of answers that were all lost.
        assert refused or broker.metrics()['penstock_http_requests_total{status="503"}']
        assert all(b"retry-after: 1\r\n" in each.lower() for each in refused)
        assert all(b"memory-exhausted" in each for each in refused)
        with contextlib.closing(Peer(broker.web).socket) as health:
            health.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert health.recv(4096).startswith(b"HTTP/1.1 200 ")
    check(broker)


def test_a_declared_body_above_the_limit_is_refused_at_once(broker: BudgetedBroker) -> None:
    with contextlib.closing(Peer(broker.web).socket) as client:
        client.sendall(
            f"POST /api/publish HTTP/1.1\r\nHost: {broker.web[0]}:{broker.web[1]}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100000000\r\n\r\n".encode()
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_when_all_clients_have_left_nothing_is_held(broker: BudgetedBroker) -> None:
    """Connections that were not read are closed at their deadline at the latest."""
    broker.until_returned()
    with Honest(broker, b"honest/last") as honest:
        honest.exchange(10, size=1 * MIB)
    broker.until_returned()
