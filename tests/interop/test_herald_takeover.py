"""herald clients that connect again: nothing is lost that their system did not acknowledge."""

import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.herald import HeraldSubscribers
from penstock.ports import AcknowledgedLink
from penstock.transport.addresses import parse_address
from tests.support import herald_bytes as herald
from tests.support.live import LiveBroker

CHANNEL, COUNT, SIZE = 7, 3000, 1000
TLS = Path(__file__).parents[1] / "support" / "tls"
FRAME = 16 + SIZE


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as broker:
        yield broker


def connect(
    live: LiveBroker, client_id: bytes, channels: bytes, *, tls_port: int | None = None
) -> herald.HeraldPeer:
    """A subscriber whose system takes little before it is read."""
    peer = herald.HeraldPeer(live)
    peer.socket.close()
    peer.socket = socket.socket()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    peer.socket.settimeout(5)
    peer.socket.connect(live.address if tls_port is None else ("127.0.0.1", tls_port))
    if tls_port is not None:
        context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
        peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
    return peer.join(herald.handshake_sub(channels, client_id))


def listen_with_tls(live: LiveBroker) -> int:
    """Open a port with TLS; return its number."""
    files = f"certificate={TLS}/localhost.pem&key={TLS}/localhost.key"
    address = parse_address(f"tls://127.0.0.1:0?{files}")
    return int(live.run(lambda: live.server.listen(address)).port)


def publish_numbers(live: LiveBroker, first: int, count: int) -> None:
    """Publish in small pieces; the broker notes the positions of subscribers after each."""
    frames = [
        herald.publish(CHANNEL, b"%010d" % number * (SIZE // 10))
        for number in range(first, first + count)
    ]
    with herald.publisher(live, CHANNEL) as sender:
        for start in range(0, count, 20):
            sender.send(b"".join(frames[start : start + 20]))
            sender.settle()
            live.call(lambda: note_positions(live))


def note_positions(live: LiveBroker) -> None:
    for gateway in live.server.broker.shared(HeraldSubscribers).values():
        gateway._note()


def numbers(peer: Any, last: int) -> list[int]:
    """Read messages up to the number `last`."""
    found = []
    while not found or found[-1] < last:
        found.append(int(peer.message()[2][:10]))
    return found


def written(live: LiveBroker, peer: herald.HeraldPeer) -> int:
    session = live.server.broker.sessions.get(peer.session_id)
    return 0 if session is None else session.messages_sent


def all_acknowledged(live: LiveBroker, peer: herald.HeraldPeer) -> bool:
    session = live.server.broker.sessions.get(peer.session_id)
    assert session is not None
    link = session.link
    assert isinstance(link, AcknowledgedLink)
    return link.acknowledged() == link.written


def test_a_client_takes_over_from_what_its_system_acknowledged(live: LiveBroker) -> None:
    with connect(live, b"panel", bytes([CHANNEL])) as older:
        publish_numbers(live, 0, COUNT)
        live.until(lambda: written(live, older) > 500)
        with connect(live, b"panel", b"") as newer:
            got = numbers(newer, COUNT - 1)
        (arrived,) = struct.unpack("i", fcntl.ioctl(older.socket, termios.FIONREAD, bytes(4)))
        assert got == list(range(got[0], COUNT))
        assert 0 < got[0] <= arrived // FRAME


def test_a_client_that_received_all_gets_nothing_twice(live: LiveBroker) -> None:
    with connect(live, b"panel", bytes([CHANNEL])) as older:
        publish_numbers(live, 0, 20)
        assert numbers(older, 19) == list(range(20))
        live.until(lambda: all_acknowledged(live, older))  # the system delays acknowledgments
        with connect(live, b"panel", b"") as newer:
            older.expect(herald.DISCONNECT)
            older.expect_close()
            publish_numbers(live, 20, 5)
            assert numbers(newer, 24) == list(range(20, 25))


def test_a_client_that_closed_and_received_all_gets_nothing_twice(live: LiveBroker) -> None:
    with connect(live, b"panel", bytes([CHANNEL])) as older:
        publish_numbers(live, 0, 20)
        assert numbers(older, 19) == list(range(20))
        live.until(lambda: all_acknowledged(live, older))
    live.until(lambda: not len(live.server.broker.sessions))
    publish_numbers(live, 20, 5)
    with connect(live, b"panel", b"") as newer:
        assert numbers(newer, 24) == list(range(20, 25))


def test_a_client_that_was_reset_gets_what_was_on_its_way(live: LiveBroker) -> None:
    with connect(live, b"panel", bytes([CHANNEL])) as older:
        publish_numbers(live, 0, COUNT)
        live.until(lambda: written(live, older) > 500)
        (arrived,) = struct.unpack("i", fcntl.ioctl(older.socket, termios.FIONREAD, bytes(4)))
        older.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    live.until(lambda: not len(live.server.broker.sessions))
    with connect(live, b"panel", b"") as newer:
        got = numbers(newer, COUNT - 1)
    assert got == list(range(got[0], COUNT))
    assert 0 < got[0] <= arrived // FRAME


def test_over_tls_a_client_takes_over_from_what_its_system_acknowledged(live: LiveBroker) -> None:
    """TLS has buffers that cannot be seen: only what was sent before a quiet moment counts."""
    port, first = listen_with_tls(live), 20
    with connect(live, b"panel", bytes([CHANNEL]), tls_port=port) as older:
        publish_numbers(live, 0, first)
        assert numbers(older, first - 1) == list(range(first))
        live.until(lambda: all_acknowledged(live, older))
        live.call(lambda: note_positions(live))
        publish_numbers(live, first, COUNT - first)
        live.until(lambda: written(live, older) > 500)
        with connect(live, b"panel", b"", tls_port=port) as newer:
            got = numbers(newer, COUNT - 1)
        (arrived,) = struct.unpack("i", fcntl.ioctl(older.socket, termios.FIONREAD, bytes(4)))
        assert got == list(range(got[0], COUNT))
        assert first <= got[0] <= first + arrived // FRAME


def test_over_tls_a_client_that_received_all_gets_nothing_twice(live: LiveBroker) -> None:
    port = listen_with_tls(live)
    with connect(live, b"panel", bytes([CHANNEL]), tls_port=port) as older:
        publish_numbers(live, 0, 20)
        assert numbers(older, 19) == list(range(20))
        live.until(lambda: all_acknowledged(live, older))
        live.call(lambda: note_positions(live))
        with connect(live, b"panel", b"", tls_port=port) as newer:
            publish_numbers(live, 20, 5)
            assert numbers(newer, 24) == list(range(20, 25))


def test_another_clients_id_takes_over_nothing(live: LiveBroker) -> None:
    with (
        connect(live, b"panel", bytes([CHANNEL])) as one,
        connect(live, b"panel-2", bytes([CHANNEL])) as two,
        connect(live, b"", bytes([CHANNEL])) as three,
        connect(live, b"", bytes([CHANNEL])) as four,
    ):
        publish_numbers(live, 0, 1)
        for peer in (one, two, three, four):
            assert numbers(peer, 0) == [0]
            peer.settle()
