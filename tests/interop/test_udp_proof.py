"""A datagram with a forged sender: its victim gets no more bytes than the forger spent."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.server.listener import DatagramListener
from penstock.transport.addresses import parse_address
from tests.support import herald_bytes as herald
from tests.support.live import LiveBroker

PING, PONG, ACK, MESSAGE = herald.frame(0x20), herald.frame(0x21), 0x03, 0x13
CHANNEL = 7
HISTORY = 300


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker whose channel 7 has 300 KB of history, which its subscribers over UDP get."""
    data: Path = tmp_path_factory.mktemp("log")
    with LiveBroker(data=data) as broker:
        with herald.publisher(broker, CHANNEL) as publisher:
            publisher.send(herald.publish(CHANNEL, bytes(1000)) * HISTORY)
            publisher.settle()
        options = GatewayOptions(herald_replay={CHANNEL: "@earliest"})
        broker.udp = broker.call(  # type: ignore[attr-defined]
            lambda: DatagramListener(
                broker.server.broker, parse_address("udp://127.0.0.1:0"), options=options
            )
        )
        broker.run(broker.udp.start)  # type: ignore[attr-defined]
        broker.server._listeners.append(broker.udp)  # type: ignore[attr-defined]
        yield broker


@contextlib.contextmanager
def caller(live: Any) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.connect((live.udp.address.host, live.udp.address.port))
        yield made


def drain(caller: socket.socket, *, seconds: float) -> list[bytes]:
    """Return the datagrams that arrive within a time."""
    got, ends = [], time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        caller.settimeout(left)
        with contextlib.suppress(TimeoutError):
            got.append(caller.recv(65_536))
    return got


def is_proven(live: Any, caller: socket.socket) -> bool:
    name = caller.getsockname()
    return bool(live.call(lambda: live.udp.endpoint.is_proven(name)))


@pytest.mark.parametrize("client_id", [b"", b"panel-4", b"x" * 255])
def test_an_address_that_does_not_answer_gets_no_more_than_it_sent(
    live: Any, client_id: bytes
) -> None:
    with caller(live) as forged:
        handshake = herald.handshake_sub(bytes([CHANNEL]), client_id)
        sent = 0
        for datagram in (handshake, herald.subscribe(3), PING, b"\xfe\xca", handshake + handshake):
            forged.send(datagram)
            sent += len(datagram)
            got = drain(forged, seconds=0.1)
            sent -= sum(map(len, got))
            assert sent >= 0, [each.hex(" ") for each in got]
            assert not any(each[2] == MESSAGE for each in got)


@pytest.mark.parametrize("pongs", [1, 3])
def test_pongs_sent_blindly_prove_nothing(live: Any, pongs: int) -> None:
    with caller(live) as forged:
        forged.send(herald.handshake_sub(bytes([CHANNEL]), b"x" * 100))
        ends = time.monotonic() + 1.0
        got = []
        while time.monotonic() < ends:
            forged.send(PONG * pongs)
            got += drain(forged, seconds=0.15)
        assert not any(each[2] == MESSAGE for each in got)
        assert not is_proven(live, forged)


@pytest.mark.parametrize("client_id", [b"panel-4", b"x" * 60])
def test_a_client_that_answers_pings_gets_its_acknowledgment_and_all_history(
    live: Any, client_id: bytes
) -> None:
    with caller(live) as honest:
        honest.send(herald.handshake_sub(bytes([CHANNEL]), client_id))
        honest.settimeout(10)
        acknowledged = messages = 0
        while messages < HISTORY:
            data = honest.recv(65_536)
            if data.startswith(PING):
                for _ in range(len(data) // len(PING)):
                    honest.send(PONG)
                continue
            acknowledged += data[2] == ACK
            while data:
                length = 7 + int.from_bytes(data[3:7], "little")
                messages += data[2] == MESSAGE
                data = data[length:]
        assert acknowledged == 1
        honest.send(herald.DISCONNECT)


def test_a_publisher_need_not_read_to_publish(live: Any) -> None:
    counters = live.server.broker.counters
    before = live.call(lambda: sum(counters.messages_received.values()))
    with caller(live) as sensor:
        sensor.send(herald.handshake_pub(9) + herald.publish(9, b"21.5"))
        sensor.send(herald.publish(9, b"21.6"))
        live.until(lambda: sum(counters.messages_received.values()) == before + 2)


@pytest.mark.parametrize("follows", [herald.handshake_pub(9, b"p"), herald.publish(9, b"21.5")])
def test_a_short_handshake_is_acknowledged_when_it_is_repeated(live: Any, follows: bytes) -> None:
    with caller(live) as sensor:
        sensor.send(herald.handshake_pub(9, b"p"))  # 10 bytes; the acknowledgment has 16
        assert drain(sensor, seconds=0.1) == []
        sensor.send(follows)
        sensor.settimeout(5)
        assert sensor.recv(65_536)[:8] == herald.frame(ACK, bytes(9))[:8]
        sensor.send(herald.DISCONNECT)
