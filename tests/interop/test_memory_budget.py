"""A broker without memory says so in the words of each protocol, and goes on when there is some."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.limits import DETECT_BYTES_MAX, KIB, MIB
from penstock.memory import MemoryBudget, Purpose
from penstock.protocols import PROTOCOLS
from tests.conformance.fleximq.client import Client as FleximqPeer
from tests.support import herald_bytes as hb
from tests.support import lamamq_bytes as lm
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, SUBSCRIBE, Client, Rheos

BUDGET = 32 * MIB
FRAME = 4 * MIB
RHEOS = Rheos(2)
JOIN = fx.frame(fx.JOIN, 0)[:-8] + struct.pack(">Q", FRAME)


@contextlib.contextmanager
def small(data: Path | None = None, **options: object) -> Iterator[LiveBroker]:
    """A broker with a small budget; when its clients have left, nothing is held."""
    memory = MemoryBudget(BUDGET, address_share=1.0)
    with LiveBroker(memory=memory, data=data, options=GatewayOptions(**options)) as broker:  # type: ignore[arg-type]
        yield broker
        broker.until(lambda: not memory.left(), seconds_max=15)


def unfinished(size: int) -> bytes:
    """The start of a PUBLISH of Rheos v2 that has `size` bytes of data; half of them are there."""
    head = struct.pack("<BI16sBHI", 0xFA, size + 7, bytes(range(16)), 3, 1, size) + b"a"
    return head + bytes(size // 2)


def use_up(broker: LiveBroker, left: int) -> "contextlib.ExitStack":
    """Draw all of the budget except `left` bytes; closing the result returns it."""
    memory = broker.server.broker.memory
    stack = contextlib.ExitStack()
    usable = BUDGET - BUDGET // 8
    stack.enter_context(memory.draw(Purpose.OUTPUT, usable - memory.used - left))
    return stack


def elsewhere(broker: LiveBroker) -> socket.socket:
    """A connection from another address, whose system buffer is small."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * KIB)
    made.settimeout(10)
    made.bind(("127.0.0.2", 0))
    made.connect(broker.address)
    return made


# --- Before the handshake -------------------------------------------------------------------------


@pytest.mark.parametrize("pinned", [False, True])
def test_a_long_join_of_fleximq_is_refused_with_413(*, pinned: bool) -> None:
    protocol = PROTOCOLS["fleximq"] if pinned else None
    with small(protocol=protocol) as broker, FleximqPeer(broker.address, join=False) as client:
        client.send(JOIN + bytes(DETECT_BYTES_MAX))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send(bytes(DETECT_BYTES_MAX))
            client.send(bytes(DETECT_BYTES_MAX))
        assert client.frame().header["status"] == 413
        account = broker.server.broker.memory
        assert account.used < 1 * MIB


def test_a_frame_of_rheos_needs_no_handshake_where_anonymous_clients_are_allowed() -> None:
    with small() as broker, Client(broker, RHEOS) as client:
        client.request(PUBLISH, b"unknown", bytes(3 * MIB))
        client.expect_failed()  # not for its size: the topic does not exist
        client.must(CREATE, b"a")
        client.must(PUBLISH, b"a", bytes(3 * MIB))


def test_a_frame_of_rheos_is_refused_at_its_header_where_they_are_not() -> None:
    with (
        small(anonymous=None, protocol=PROTOCOLS["rheos2"]) as broker,
        Client(broker, RHEOS) as client,
    ):
        client.send(unfinished(FRAME)[:100])
        client.expect_failed()
        client.expect_close()


# --- Without memory -------------------------------------------------------------------------------


def test_a_client_whose_frame_finds_no_memory_is_not_read_until_there_is_some() -> None:
    with small() as broker, Client(broker, RHEOS) as client, Client(broker, RHEOS) as other:
        client.must(CREATE, b"a")
        other.must(SUBSCRIBE, b"a")
        memory = broker.server.broker.memory
        with use_up(broker, 600 * KIB):
            client.request(PUBLISH, b"a", bytes(2 * MIB))
            broker.until(lambda: memory.waiting == 1)
            client.expect_nothing()
            other.request(PUBLISH, b"a", b"small messages go on")
            other.sort(acks=1, deliveries=1)
        assert client.ack().code != FAILED
        assert len(other.delivery().payload) == 2 * MIB
        broker.until(lambda: not memory.waiting)


def evicted(broker: LiveBroker) -> None:
    """Cut all that wait for memory, as after their deadline."""
    memory = broker.server.broker.memory
    broker.until(lambda: memory.waiting)

    def evict() -> None:
        for _, queue in memory._waiters.queues():
            for account in list(queue):
                account.holder.evict()

    broker.call(evict)


def test_a_frame_that_waits_for_too_long_is_refused_in_the_words_of_its_protocol() -> None:
    with (
        small() as broker,
        Client(broker, RHEOS) as rheos,
        FleximqPeer(broker.address) as fleximq,
        lm.client(broker) as lama,
        hb.publisher(broker) as herald,
    ):
        rheos.must(CREATE, b"a")
        with use_up(broker, 300 * KIB):
            rheos.send(unfinished(FRAME))
            evicted(broker)
            rheos.expect_failed()
            rheos.expect_close()
            fleximq.send(
                fx.frame(fx.PUB, fleximq.number, fx.topic("a"), bytes(FRAME))[: FRAME // 2]
            )
            evicted(broker)
            assert fleximq.frame().header["status"] == 503
            fleximq.expect_close()
            push = lm.push(1, b"a", bytes(1))
            lama.send(push[:-5] + struct.pack(">I", FRAME) + bytes(FRAME // 2))
            evicted(broker)
            lama.expect_answer(0, error=1)
            lama.expect_close()
            herald.send(struct.pack("<HBI", 0xCAFE, 0x10, 1 << 20) + bytes((1 << 20) - 100))
            evicted(broker)
            assert herald.receive(8)[2] == 0xFF  # ERROR
            herald.expect_close()


def test_a_frame_that_could_never_be_held_is_refused_at_once() -> None:
    with small() as broker, Client(broker, RHEOS) as client:
        client.must(CREATE, b"a")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send(unfinished(16 * MIB - 7))
            client.send(bytes(7 * MIB))
        client.expect_failed()


# --- Output ---------------------------------------------------------------------------------------


def test_without_a_log_messages_that_find_no_memory_are_dropped_and_counted() -> None:
    settings = BrokerSettings(hold_seconds_max=0.0)
    memory = MemoryBudget(BUDGET, address_share=1.0)
    with (
        LiveBroker(memory=memory, settings=settings) as broker,
        Client(broker, RHEOS) as publisher,
        elsewhere(broker) as slow,
    ):
        publisher.must(CREATE, b"a")
        slow.sendall(RHEOS.request(SUBSCRIBE, b"a"))
        broker.until(lambda: len(broker.server.broker.sessions) == 2)
        with use_up(broker, 8 * MIB):
            for _ in range(16):
                publisher.must(PUBLISH, b"a", bytes(1 * MIB))
            assert memory.used < BUDGET + 8 * MIB
            counters = broker.server.broker.counters
            assert counters.messages_dropped[PROTOCOLS["rheos2"]] > 0


def test_with_a_log_a_subscriber_without_memory_gets_every_message_later(tmp_path: Path) -> None:
    with (
        small(tmp_path) as broker,
        Client(broker, RHEOS) as publisher,
        Client(broker, RHEOS) as slow,
    ):
        slow.socket.close()
        slow.socket = elsewhere(broker)
        publisher.must(CREATE, b"a")
        slow.must(SUBSCRIBE, b"a")
        memory = broker.server.broker.memory
        got: list[bytes] = []
        with use_up(broker, 8 * MIB):
            for number in range(32):
                publisher.must(PUBLISH, b"a", b"%02d" % number + bytes(1 * MIB))
                if number % 2:  # a client that reads nothing for long is cut when memory is short
                    got.append(slow.delivery().payload[:2])
            assert memory.used < BUDGET + 4 * MIB
            broker.until(lambda: any(each.feeds for each in broker.server.broker.sessions))
        got += [slow.delivery().payload[:2] for _ in range(16)]
        assert got == [b"%02d" % number for number in range(32)]
