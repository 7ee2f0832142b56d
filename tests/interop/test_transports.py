"""Every transport to every other, through one live broker; what is cut leaves nothing behind."""

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from penstock.core.broker import Broker, BrokerSettings
from penstock.errors import BadAddress, BrokerFull, CannotListen, MemoryExhausted
from penstock.memory import MemoryBudget, Purpose
from penstock.server.clock import SystemClock
from penstock.server.connections import ConnectionLimit
from penstock.server.listener import DatagramListener, Listener, StdioListener, new_listener
from penstock.storage.memory import MemoryLog
from penstock.transport.addresses import parse_address
from penstock.transport.stdio import Program, ProgramLink
from tests.support import fleximq_bytes as fleximq
from tests.support import herald_bytes as herald
from tests.support.live import LiveBroker

TLS = Path(__file__).parents[1] / "support" / "tls"
STREAMS = ("tcp", "tls", "ipc", "udp", "ws")
SECONDS = 5.0


# --- A broker with every listener -----------------------------------------------------------------


class Everywhere(LiveBroker):
    """A live broker that also listens at any address."""

    def add(self, listener: Listener) -> Any:
        async def start() -> None:
            await listener.start()
            self.server._listeners.append(listener)  # type: ignore[arg-type]

        self.run(start)
        return listener

    def listen(self, url: str, **options: Any) -> Any:
        async def make() -> Any:
            address = parse_address(url)
            return new_listener(address, self.server.broker, self.server._buffer, **options)

        return self.add(self.run(make))

    @property
    def sessions(self) -> int:
        return int(self.call(lambda: len(self.server.broker.sessions)))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pk", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Everywhere]:
    with Everywhere() as broker:
        files = f"certificate={TLS / 'localhost.pem'}&key={TLS / 'localhost.key'}"
        broker.listeners = {  # type: ignore[attr-defined]
            "tcp": broker.listen("tcp://127.0.0.1:0"),
            "tls": broker.listen(f"tls://127.0.0.1:0?{files}"),
            "ipc": broker.listen(f"ipc://{folder}/broker.sock"),
            "udp": broker.listen("udp://127.0.0.1:0"),
            "ws": broker.listen("ws://127.0.0.1:0/h?protocol=herald"),
        }
        yield broker


# --- herald peers over each transport --------------------------------------------------------------


class Stream:
    """Bytes over a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(SECONDS)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def more(self) -> bytes:
        return self.socket.recv(65_536)

    def cut(self) -> None:
        self.socket.close()


class Datagrams(Stream):
    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def join(self, handshake: bytes, listener: Any, *, order: str) -> bytes:
        """Send a handshake until it is acknowledged and, for a subscriber, the address is proven.

        Return the acknowledgment. Every PING is answered.
        """
        ping, pong = herald.frame(0x20, order=order), herald.frame(0x21, order=order)
        name, ack, due = self.socket.getsockname(), b"", 0.0
        ends = time.monotonic() + SECONDS
        while not ack or (handshake[2] == 2 and not listener.endpoint.is_proven(name)):
            assert time.monotonic() < ends, "the broker does not acknowledge the handshake"
            if not ack and time.monotonic() > due:
                self.send(handshake)
                due = time.monotonic() + 0.3
            self.socket.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                data = self.more()
                if data.startswith(ping):
                    self.send(pong * (len(data) // len(ping)))
                else:
                    ack = data
        self.socket.settimeout(SECONDS)
        return ack


class Messages:
    """Bytes over a WebSocket, in messages of three bytes."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), 3):
            self.connection.send(data[start : start + 3])

    def more(self) -> bytes:
        message = self.connection.recv(timeout=SECONDS)
        assert isinstance(message, bytes)
        return message

    def cut(self) -> None:
        with contextlib.suppress(OSError):  # the broker was first
            self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def websocket(url: str) -> ClientConnection:
    return connect(url, compression=None).__enter__()


def dial(listener: Any) -> Any:
    address = listener.address
    where = (address.host, address.port)
    match address.scheme:
        case "tcp":
            return Stream(socket.create_connection(where, SECONDS))
        case "tls":
            context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
            plain = socket.create_connection(where, SECONDS)
            return Stream(context.wrap_socket(plain, server_hostname="localhost"))
        case "ipc":
            caller = socket.socket(socket.AF_UNIX)
            caller.settimeout(SECONDS)
            caller.connect(address.path)
            return Stream(caller)
        case "udp":
            caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            caller.settimeout(SECONDS)
            caller.connect(where)
            return Datagrams(caller)
        case _:
            return Messages(websocket(listener.url))


class Peer:
    """A herald client over any transport."""

    def __init__(self, listener: Any, handshake: bytes, *, order: str = "<") -> None:
        self.order = order
        self.link = dial(listener)
        self._rest = b""
        if isinstance(self.link, Datagrams):
            ack = self.link.join(handshake, listener, order=order)
        else:
            self.send(handshake)
            ack = self.frame()
        assert ack[:8] == struct.pack(f"{order}HBIB", 0xCAFE, 0x03, 9, 0), ack.hex(" ")

    def send(self, data: bytes) -> None:
        self.link.send(data)

    def frame(self) -> bytes:
        """The next whole frame."""
        while True:
            if len(self._rest) >= 7:
                (length,) = struct.unpack_from(f"{self.order}I", self._rest, 3)
                if len(self._rest) >= 7 + length:
                    found, self._rest = self._rest[: 7 + length], self._rest[7 + length :]
                    return found
            more = self.link.more()
            assert more, "the connection ended"
            self._rest += more

    def message(self) -> tuple[int, bytes]:
        """The next frame is a MESSAGE: its channel and its message."""
        found = self.frame()
        assert found[2] == 0x13, found.hex(" ")
        return found[7], found[16:]

    def settle(self) -> None:
        """Everything sent so far has been acted on."""
        self.send(herald.frame(0x20, order=self.order))
        assert self.frame() == herald.frame(0x21, order=self.order)


@contextlib.contextmanager
def peer(listener: Any, handshake: bytes, *, order: str = "<") -> Iterator[Peer]:
    made = Peer(listener, handshake, order=order)
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            made.send(herald.frame(0x04, order=order))
        made.link.cut()


# --- Bridges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", STREAMS)
@pytest.mark.parametrize("by", STREAMS)
def test_a_message_crosses_from_every_transport_to_every_other(live: Any, by: str, to: str) -> None:
    values = [bytes(range(256)), b"", b"x" * 1300, "héraut".encode()]
    order = ">"
    with (
        peer(live.listeners[to], herald.handshake_sub(order=order), order=order) as receiver,
        peer(live.listeners[by], herald.handshake_pub(7)) as sender,
    ):
        for value in values:
            sender.send(herald.publish(7, value))
        sender.settle()
        assert [receiver.message() for _ in values] == [(7, value) for value in values]


@pytest.mark.parametrize("to", STREAMS)
def test_many_messages_of_one_read_arrive_whole_and_in_order(live: Any, to: str) -> None:
    with (
        peer(live.listeners[to], herald.handshake_sub(b"\x08")) as receiver,
        peer(live.listeners["tcp"], herald.handshake_pub(8)) as sender,
    ):
        values = [b"%d" % number * (number % 50) for number in range(600)]
        sender.send(b"".join(herald.publish(8, value) for value in values))
        assert [receiver.message()[1] for _ in values] == values


@pytest.mark.parametrize("scheme", ["tcp", "tls", "ipc", "ws"])
def test_a_large_message_crosses_streams(live: Any, scheme: str) -> None:
    value = bytes(i % 251 for i in range(1_000_000))
    with (
        peer(live.listeners[scheme], herald.handshake_sub(b"\x09")) as receiver,
        peer(live.listeners["ipc"], herald.handshake_pub(9)) as sender,
    ):
        writing = threading.Thread(target=sender.send, args=(herald.publish(9, value),))
        writing.start()
        assert receiver.message() == (9, value)
        writing.join(SECONDS)


# --- Cut connections ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "ipc", "ws"])
@pytest.mark.parametrize("moment", ["in a handshake", "subscribed", "in a frame"])
def test_a_cut_connection_leaves_nothing_behind(live: Any, scheme: str, moment: str) -> None:
    listener = live.listeners[scheme]
    live.until(lambda: listener.connections == 0)
    before = live.sessions
    if moment == "in a handshake":
        link = dial(listener)
        link.send(herald.handshake_sub()[:5])
        live.until(lambda: listener.connections == 1)
        link.cut()
    else:
        made = Peer(listener, herald.handshake_sub(b"\x01\x02"))
        assert live.sessions == before + 1
        if moment == "in a frame":
            made.send(herald.subscribe(3)[:-1])
        made.link.cut()
    live.until(lambda: listener.connections == 0)
    live.until(lambda: len(live.server.broker.sessions) == before)


@pytest.mark.parametrize("scheme", ["tcp", "tls", "ipc", "ws", "udp"])
def test_a_disconnect_ends_the_session(live: Any, scheme: str) -> None:
    listener = live.listeners[scheme]
    live.until(lambda: listener.connections == 0)
    made = Peer(listener, herald.handshake_sub())
    assert live.call(lambda: listener.connections) == 1
    made.send(herald.DISCONNECT)
    live.until(lambda: listener.connections == 0)
    made.link.cut()


def test_plain_bytes_at_a_tls_listener_are_no_connection(live: Any) -> None:
    listener = live.listeners["tls"]
    with socket.create_connection((listener.address.host, listener.address.port), SECONDS) as bare:
        bare.sendall(herald.handshake_pub())
        bare.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            while bare.recv(4096):
                pass
    assert live.call(lambda: listener.connections) == 0


# --- UDP ----------------------------------------------------------------------------------------


def test_a_udp_frame_before_the_handshake_is_invalid(live: Any) -> None:
    caller = dial(live.listeners["udp"])
    caller.send(herald.publish(7, b"x"))
    assert caller.more() == herald.error(1)
    caller.send(herald.DISCONNECT)
    caller.cut()


def test_a_partial_udp_frame_is_malformed_and_the_session_goes_on(live: Any) -> None:
    with (
        peer(live.listeners["udp"], herald.handshake_sub(b"\x0a")) as receiver,
        peer(live.listeners["udp"], herald.handshake_pub(10)) as sender,
    ):
        sender.send(herald.publish(10, b"whole") + herald.publish(10, b"half")[:-1])
        assert sender.frame() == herald.error(7)
        sender.send(herald.publish(10, b"next"))
        assert receiver.message() == (10, b"whole")
        assert receiver.message() == (10, b"next")


def test_an_idle_udp_session_ends_and_is_told(live: Any) -> None:
    async def make() -> DatagramListener:
        address = parse_address("udp://127.0.0.1:0")
        return DatagramListener(live.server.broker, address, session_seconds_max=1.0)

    listener = live.add(live.run(make))
    before = live.sessions
    made = Peer(listener, herald.handshake_sub(order=">"), order=">")
    assert live.sessions == before + 1
    assert made.frame() == herald.frame(0x04, order=">")
    live.until(lambda: listener.connections == 0)
    assert live.sessions == before
    made.link.cut()


def test_a_message_too_large_for_udp_is_counted_and_others_arrive(live: Any) -> None:
    counters = live.server.broker.counters
    before = live.call(lambda: sum(counters.messages_undeliverable.values()))
    with (
        peer(live.listeners["udp"], herald.handshake_sub(b"\x0b")) as receiver,
        peer(live.listeners["tcp"], herald.handshake_pub(11)) as sender,
    ):
        largest = bytes(65_507 - 16)
        sender.send(herald.publish(11, bytes(65_507 - 15)) + herald.publish(11, largest))
        assert receiver.message() == (11, largest)
    assert live.call(lambda: sum(counters.messages_undeliverable.values())) == before + 1


# --- fleximq over WebSocket -------------------------------------------------------------------------


class Fleximq:
    """A fleximq client over a WebSocket."""

    def __init__(self, url: str, size: int) -> None:
        self.connection = websocket(url)
        self._size = size
        self._rest = b""
        self.send(fleximq.frame(fleximq.JOIN, 0))
        joined = self.frame()
        assert joined.type == fleximq.REP
        assert joined.header["status"] == 200
        self.client_id = joined.client_id

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), self._size):
            self.connection.send(data[start : start + self._size])

    def frame(self) -> fleximq.Frame:
        while True:
            if len(self._rest) >= 26:
                end = 26 + fleximq.header_length(self._rest)
                if len(self._rest) >= end + 8:
                    end += 8 + int.from_bytes(self._rest[end : end + 8], "big")
                    if len(self._rest) >= end:
                        found, self._rest = self._rest[:end], self._rest[end:]
                        return fleximq.parse(found)
            more = self.connection.recv(timeout=SECONDS)
            assert isinstance(more, bytes)
            self._rest += more


@pytest.mark.parametrize("size", [1, 7, 34, 1_000, 1_000_000])
def test_fleximq_crosses_a_websocket_in_messages_of_any_size(live: Any, size: int) -> None:
    listener = live.listen("ws://127.0.0.1:0/ws")
    one, two = Fleximq(listener.url, size), Fleximq(listener.url, size)
    two.send(fleximq.frame(fleximq.SUB, two.client_id, fleximq.topic("a/b")))
    two.send(fleximq.frame(fleximq.PING, two.client_id, fleximq.keepalive(1)))
    assert two.frame().type == fleximq.PONG
    values = [fleximq.pack({"n": number}) for number in range(30)]
    one.send(
        b"".join(
            fleximq.frame(fleximq.PUB, one.client_id, fleximq.topic("a/b"), value)
            for value in values
        )
    )
    got = [two.frame() for _ in values]
    assert [frame.payload for frame in got] == values
    assert {frame.header["topic"] for frame in got} == {"a/b"}
    one.connection.close()
    two.connection.close()
    live.until(lambda: listener.connections == 0)


def test_a_websocket_message_is_one_fleximq_message(live: Any) -> None:
    listener = live.listen("ws://127.0.0.1:0/ws")
    client = Fleximq(listener.url, 1_000_000)
    client.send(fleximq.frame(fleximq.SUB, client.client_id, fleximq.topic("whole")))
    values = [fleximq.pack(bytes(size)) for size in (*range(100), 300_000, 1)]
    client.send(
        b"".join(
            fleximq.frame(fleximq.PUB, client.client_id, fleximq.topic("whole"), value)
            for value in values
        )
    )
    for value in values:
        message = client.connection.recv(timeout=SECONDS)
        assert isinstance(message, bytes)
        assert fleximq.parse(message).payload == value
    client.connection.close()
    live.until(lambda: listener.connections == 0)


def test_a_websocket_port_answers_healthz(live: Any) -> None:
    listener = live.listeners["ws"]
    with socket.create_connection((listener.address.host, listener.address.port), SECONDS) as bare:
        bare.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        bare.settimeout(SECONDS)
        answer = b""
        while more := bare.recv(4096):
            answer += more
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nok\n")


# --- STDIO ------------------------------------------------------------------------------------------

CHILD = """
import os, struct, sys

def frame(kind, header, payload=b""):
    identifier = int(os.environ["PENSTOCK_CLIENT_ID"])
    head = b"\\x81\\xa5topic" + bytes([0xA0 | len(header)]) + header
    return (struct.pack(">BBI", 1, kind, identifier) + bytes(16)
            + struct.pack(">I", len(head)) + head + struct.pack(">Q", len(payload)) + payload)

def read(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data

os.write(1, frame(6, b"ask") + frame(5, b"ready", b"\\xc3"))
while True:
    base = read(26)
    read(struct.unpack(">I", base[22:])[0])
    payload = read(struct.unpack(">Q", read(8))[0])
    os.write(1, frame(5, b"answer", payload))
"""


def test_a_program_speaks_fleximq_over_its_pipes(live: Any) -> None:
    door = live.listen("ws://127.0.0.1:0/ws")
    client = Fleximq(door.url, 1_000)
    for name in ("ready", "answer"):
        client.send(fleximq.frame(fleximq.SUB, client.client_id, fleximq.topic(name)))
    client.send(fleximq.frame(fleximq.PING, client.client_id, fleximq.keepalive(1)))
    assert client.frame().type == fleximq.PONG

    async def make() -> StdioListener:
        program = Program("child", (sys.executable, "-S", "-c", CHILD))
        return StdioListener(live.server.broker, [program])

    listener = live.add(live.run(make))
    assert listener.url == "stdio://child"
    ready = client.frame()
    assert ready.header["topic"] == "ready"
    assert ready.client_id >= 1000
    question = fleximq.pack("what is it?")
    client.send(fleximq.frame(fleximq.PUB, client.client_id, fleximq.topic("ask"), question))
    answer = client.frame()
    assert (answer.header["topic"], answer.payload) == ("answer", question)
    assert answer.client_id == ready.client_id
    # One that is killed comes back as another client.
    link = live.call(lambda: next(iter(listener._links)))
    live.call(link.abort)
    again = client.frame()
    assert again.header["topic"] == "ready"
    assert again.client_id > ready.client_id
    live.run(lambda: listener.close(seconds_max=2))
    assert live.call(lambda: listener.connections) == 0
    client.connection.close()


def test_programs_are_killed_at_once(live: Any) -> None:
    async def make() -> StdioListener:
        program = Program("child", (sys.executable, "-S", "-c", CHILD))
        return StdioListener(live.server.broker, [program])

    listener = live.add(live.run(make))
    live.until(lambda: [each for each in listener._links if each._running])
    link = live.call(lambda: next(iter(listener._links)))
    live.server.kill_programs()
    live.until(lambda: link not in listener._links)
    live.run(lambda: listener.close(seconds_max=2))


JOINING_CHILD = """
import os, struct, sys

def read(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or sys.exit(0)
    return data

def join(header):
    os.write(1, bytes.fromhex("0100") + bytes(20) + struct.pack(">I", len(header)) + header + bytes(8))
    base = read(26)
    head = read(struct.unpack(">I", base[22:])[0])
    return base + head + read(8)

plain = join(b"")
correlated = join(bytes.fromhex("81a672657172657082a474797065a772657175657374a26964a26a31"))
number = struct.pack(">I", int(os.environ["PENSTOCK_CLIENT_ID"]))
answer = b"\\xc4" + bytes([len(plain) + len(correlated)]) + plain + correlated
head = b"\\x81\\xa5topic\\xa6joined"
os.write(1, b"\\x01\\x05" + number + bytes(16) + struct.pack(">I", len(head)) + head
         + struct.pack(">Q", len(answer)) + answer)
read(1)
"""


def test_a_program_that_joins_is_answered_with_the_id_it_has(live: Any) -> None:
    door = live.listen("ws://127.0.0.1:0/ws")
    client = Fleximq(door.url, 1_000)
    client.send(fleximq.frame(fleximq.SUB, client.client_id, fleximq.topic("joined")))
    client.send(fleximq.frame(fleximq.PING, client.client_id, fleximq.keepalive(1)))
    assert client.frame().type == fleximq.PONG

    async def make() -> StdioListener:
        program = Program("child", (sys.executable, "-S", "-c", JOINING_CHILD))
        return StdioListener(live.server.broker, [program])

    listener = live.add(live.run(make))
    found = client.frame()
    status = fleximq.status(200)
    plain = fleximq.frame(fleximq.REP, found.client_id, status)
    correlated = fleximq.frame(fleximq.REP, found.client_id, fleximq.correlation("j1") | status)
    assert found.value == plain + correlated
    live.run(lambda: listener.close(seconds_max=2))
    client.connection.close()


# --- Starting and stopping -------------------------------------------------------------------------


def test_an_ipc_listener_removes_its_file_on_a_clean_stop(folder: Path) -> None:
    path = folder / "app" / "clean.sock"
    with Everywhere() as broker:
        listener = broker.listen(f"ipc://{path}")
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o600
        made = Peer(listener, herald.handshake_pub())
        assert made.link.socket.getpeername() == str(path)
    assert not path.exists()
    made.link.cut()


def test_a_broker_that_was_killed_leaves_a_file_that_is_replaced(folder: Path) -> None:
    path = folder / "killed.sock"
    source = (
        "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX);"
        f"s.bind({str(path)!r}); s.listen(); print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-S", "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:  # noqa: S603
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        with Everywhere() as broker:
            with pytest.raises(CannotListen, match="another process listens there"):
                broker.listen(f"ipc://{path}")
            child.kill()
            child.wait(SECONDS)
            assert path.is_socket()
            with peer(broker.listen(f"ipc://{path}"), herald.handshake_pub()) as made:
                made.settle()


@pytest.mark.parametrize("scheme", ["tcp", "udp", "ws"])
def test_an_address_in_use_is_said_so(live: Any, scheme: str) -> None:
    port = live.listeners[scheme].address.port
    with pytest.raises(CannotListen, match="another process listens there; stop it or choose"):
        live.listen(f"{scheme}://127.0.0.1:{port}")


def test_an_address_that_is_not_ours_is_said_so(live: Any) -> None:
    with pytest.raises(CannotListen, match="this machine has no such address"):
        live.listen("tcp://192.0.2.1:7000")


def test_tls_without_a_certificate_does_not_start(live: Any) -> None:
    for scheme in ("tls", "wss"):
        with pytest.raises(BadAddress, match="needs certificate and key"):
            live.listen(f"{scheme}://127.0.0.1:0")


@pytest.mark.parametrize("scheme", ["tcp", "ws", "udp"])
def test_one_connection_too_many_is_not_let_in(live: Any, scheme: str) -> None:
    connection_limit = ConnectionLimit(1)
    listener = live.listen(
        f"{scheme}://127.0.0.1:0?protocol=herald", connection_limit=connection_limit
    )
    first = Peer(listener, herald.handshake_pub())
    second = None
    with contextlib.suppress(Exception):
        second = dial(listener)
        second.send(herald.handshake_pub())
    failed = live.server.broker.counters.connections_failed
    live.until(lambda: failed["too many connections"] > 0)
    first.settle()
    assert live.call(lambda: (listener.connections, connection_limit.connections)) == (1, 1)
    first.send(herald.DISCONNECT)
    live.until(lambda: connection_limit.connections == 0)
    with peer(listener, herald.handshake_pub()) as third:
        third.settle()
    if second is not None:
        second.cut()
    first.link.cut()
    live.call(failed.clear)


def test_a_program_too_many_is_not_let_in(live: Any) -> None:
    async def check() -> None:
        listener = StdioListener(live.server.broker, [], connection_limit=ConnectionLimit(0))
        before = len(live.server.broker.sessions)
        with pytest.raises(BrokerFull):
            listener.opened(None, Program("x", ("x",)))  # type: ignore[arg-type]
        assert len(live.server.broker.sessions) == before

    live.run(check)


def test_a_program_without_memory_leaves_no_session(live: Any) -> None:
    """Once broken: its session stayed, one for each restart, and it ran without a handler."""

    async def check() -> None:
        broker = Broker(log=MemoryLog(), clock=SystemClock(), memory=MemoryBudget(1 << 20))
        listener = StdioListener(broker, [])
        link = ProgramLink(listener, Program("x", ("x",)))
        broker.memory.level(Purpose.LOG, 1 << 20)
        with pytest.raises(MemoryExhausted):
            link.open()
        assert len(broker.sessions) == listener.connections == 0
        full = StdioListener(
            Broker(log=MemoryLog(), clock=SystemClock(), settings=BrokerSettings(sessions_max=0)),
            [],
        )
        link = ProgramLink(full, Program("x", ("x",)))
        with pytest.raises(BrokerFull):
            link.open()
        assert full.connections == full._connection_limit.connections == 0

    live.run(check)


def test_options_of_an_address_reach_its_clients(live: Any) -> None:
    quiet = live.listen("tcp://127.0.0.1:0?protocol=herald&order=big&echo=false")
    with peer(quiet, herald.handshake_pub(12, order=">"), order=">") as own:
        own.send(herald.handshake_sub(b"\x0c", order=">"))
        assert own.frame()[2] == 0x03
        own.send(herald.publish(12, b"mine", order=">"))
        with peer(live.listeners["tcp"], herald.handshake_pub(12)) as other:
            own.settle()
            other.send(herald.publish(12, b"other's"))
            assert own.message() == (12, b"other's")
    closed = live.listen("tcp://127.0.0.1:0?anonymous=false")
    link = dial(closed)
    link.send(herald.handshake_pub())
    assert link.more() == herald.frame(0x03, b"\x08" + bytes(8))  # UNAUTHORIZED
    link.cut()


def test_a_stop_ends_all_transports_in_time(folder: Path) -> None:
    with Everywhere() as broker:
        listeners = [
            broker.listen("tcp://127.0.0.1:0"),
            broker.listen(f"ipc://{folder}/stop.sock"),
            broker.listen("udp://127.0.0.1:0"),
            broker.listen("ws://127.0.0.1:0/h?protocol=herald"),
        ]
        peers = [
            Peer(listener, herald.handshake_sub(client_id=b"%d" % number))
            for number, listener in enumerate(listeners)
        ]
        stream, ipc, datagrams, _ = peers
        started = time.monotonic()
    assert time.monotonic() - started < 4
    for each in (stream, ipc, datagrams):
        assert each.frame() == herald.DISCONNECT
    assert stream.link.more() == b""
    assert ipc.link.more() == b""
    assert [listener.connections for listener in listeners] == [0] * 4
    for made in peers:
        made.link.cut()
