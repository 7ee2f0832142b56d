"""Publishers of every protocol that remember what they were told, and what a log must hold of it.

Every message has a number that its publisher gives once: whoever was not told how a message fared
goes on with the next number. So a value that stands in the log twice was kept twice.
"""

import contextlib
import dataclasses
import random
import re
import socket
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.live import Peer
from tests.support.rheos_bytes import (
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    RHEOS1,
    RHEOS2,
    SUCCESS,
    Rheos,
    offset_of,
)

MARK = re.compile(rb"<([a-z0-9-]+):(\d+)>")
SECONDS_MAX = 10.0


def until(condition: Callable[[], object], what: str, *, seconds_max: float = SECONDS_MAX) -> None:
    """Wait for a condition; it must come true in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


def value_of(publisher: str, number: int, *, size: int | None = None) -> bytes:
    """A message that says whose it is, and shows if a byte of it is missing or another's."""
    if size is None:
        size = 20_000 if number % 499 == 0 else number * 7919 % 400
    return b"<%b:%d>" % (publisher.encode(), number) + bytes([97 + number % 26]) * size


class Gone(ConnectionError):
    """The broker is not there any more."""


class Publisher:
    """One client at a time, and all that was ever said to it. A protocol says how it speaks."""

    acknowledged_protocol = True

    def __init__(
        self, name: str, *, topic: str | None = None, value_size: int | None = None
    ) -> None:
        self.name = name
        self.topic = topic
        self.value_size = value_size
        self.next_number = 0
        self.acknowledged: dict[int, bytes] = {}  # with the ids that came, where there are any
        self.failed: set[int] = set()
        self.waiting: deque[int] = deque()
        self.errors = 0  # failures that do not say of which message
        self.pongs = 0
        self._socket: socket.socket | None = None
        self._data = b""

    # --- What a protocol brings

    def shake_hands(self) -> None:
        """Do what comes before the first publish."""

    def frame(self, number: int, topic: str, value: bytes) -> bytes:
        raise NotImplementedError

    def take(self, data: bytes) -> int:
        """Take all whole answers; return where the rest begins."""
        raise NotImplementedError

    ping = b""

    # --- A connection

    def connect(self, address: tuple[str, int]) -> None:
        self.disconnect()
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.shake_hands()

    def disconnect(self) -> None:
        """Leave; nobody will tell how those fared that wait."""
        self.waiting.clear()
        self._data = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def half_close(self) -> None:
        """Say that nothing more will come."""
        assert self._socket is not None
        self._socket.shutdown(socket.SHUT_WR)

    def publish(self, count: int) -> list[int]:
        """Send messages, all at once, and wait for nothing; return their numbers."""
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count
        if self.acknowledged_protocol:
            self.waiting += numbers
        self.write(
            b"".join(
                self.frame(
                    number,
                    self.topic or f"load/{self.name}/{number % 3}",
                    value_of(self.name, number, size=self.value_size),
                )
                for number in numbers
            )
        )
        return numbers

    def read_until(self, condition: Callable[[], object]) -> None:
        """Take answers until something is so."""
        while not condition():
            self.read()

    def settle(self) -> None:
        """All that was sent is answered, or, where nothing is, taken."""
        if self.acknowledged_protocol:
            self.read_until(lambda: not self.waiting)
        else:
            wanted = self.pongs + 1
            self.write(self.ping)
            self.read_until(lambda: self.pongs >= wanted)

    def outcome(self, count: int) -> tuple[int, int]:
        """Publish and wait for the answers; return how many were acknowledged and how many failed."""
        before = len(self.acknowledged), len(self.failed)
        self.publish(count)
        self.settle()
        return len(self.acknowledged) - before[0], len(self.failed) - before[1]

    def read(self) -> None:
        """Take the answers that come next; raise Gone at the end."""
        assert self._socket is not None
        more = self._socket.recv(262_144)
        if not more:
            raise Gone(self.name)
        data = self._data + more
        self._data = data[self.take(data) :]

    def write(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """The next bytes of a handshake."""
        assert self._socket is not None
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise Gone(self.name)
            data += more
        return data

    def answered(self, *, success: bool, identifier: bytes = b"") -> None:
        """Take note of the answer to the oldest message that waits for one."""
        number = self.waiting.popleft()
        if success:
            self.acknowledged[number] = identifier
        else:
            self.failed.add(number)


class RheosPublisher(Publisher):
    """Makes its topics first; one that was made once must not be made again."""

    rheos: Rheos

    def __init__(
        self, name: str, *, topic: str | None = None, value_size: int | None = None
    ) -> None:
        super().__init__(name, topic=topic, value_size=value_size)
        self.identity = uuid.uuid5(uuid.NAMESPACE_URL, name).bytes
        self.created: set[str] = set()

    def shake_hands(self) -> None:
        for topic in (
            [self.topic] if self.topic else [f"load/{self.name}/{each}" for each in range(3)]
        ):
            self.write(self.rheos.request(CREATE, topic.encode(), client=self.identity))
            code, identifier = self._answer(self.receive(self.rheos.ack_bytes))
            assert offset_of(identifier) == NO_MESSAGE
            assert code == FAILED or topic not in self.created, f"{topic} was forgotten"
            self.created.add(topic)

    def frame(self, number: int, topic: str, value: bytes) -> bytes:  # noqa: ARG002
        return self.rheos.request(PUBLISH, topic.encode(), value, client=self.identity)

    def take(self, data: bytes) -> int:
        size = self.rheos.ack_bytes
        end = len(data) // size * size
        for start in range(0, end, size):
            code, identifier = self._answer(data[start : start + size])
            assert (code == FAILED) == (offset_of(identifier) == NO_MESSAGE)
            self.answered(success=code == SUCCESS, identifier=identifier)
        return end

    def _answer(self, data: bytes) -> tuple[int, bytes]:
        assert data[0] == 0xAC, data.hex(" ")
        return (data[17], data[1:17]) if self.rheos.version == 1 else (data[1], data[2:18])


class Rheos1Publisher(RheosPublisher):
    rheos = RHEOS1


class Rheos2Publisher(RheosPublisher):
    rheos = RHEOS2


class LamamqPublisher(Publisher):
    def shake_hands(self) -> None:
        self.write(lama.authentication(self.name.encode()))
        assert self.receive(4) == lama.OFFER
        self.write(lama.CHOICE)

    def frame(self, number: int, topic: str, value: bytes) -> bytes:
        return lama.push(number, topic.encode(), value)

    def take(self, data: bytes) -> int:
        position = 0
        while position + 5 <= len(data):
            number, error = struct.unpack_from(">IB", data, position)
            end = position + 5
            if error:
                if end + 4 > len(data):
                    break
                end += 4 + int.from_bytes(data[end : end + 4], "big")
                if end > len(data):
                    break
            assert self.waiting[0] == number, "answers come in the order of the pushes"
            self.answered(success=not error)
            position = end
        return position


class HeraldPublisher(Publisher):
    acknowledged_protocol = False
    ping = herald.PING

    def __init__(self, name: str, *, channel: int = 7, value_size: int | None = None) -> None:
        super().__init__(name, topic=f"channel/{channel}", value_size=value_size)
        self.channel = channel

    def shake_hands(self) -> None:
        self.write(herald.handshake_pub(self.channel, self.name.encode()))
        assert self.receive(16)[:8] == struct.pack("<HBIB", 0xCAFE, 0x03, 9, 0)

    def frame(self, number: int, topic: str, value: bytes) -> bytes:  # noqa: ARG002
        return herald.publish(self.channel, value)

    def take(self, data: bytes) -> int:
        position = 0
        while position + 7 <= len(data):
            magic, opcode, size = struct.unpack_from("<HBI", data, position)
            assert magic == 0xCAFE
            assert opcode in {0x04, 0x21, 0xFF}, f"{opcode:02x}"  # DISCONNECT at a stop
            if position + 7 + size > len(data):
                break
            position += 7 + size
            self.pongs += opcode == 0x21
            self.errors += opcode == 0xFF
        return position


class FleximqPublisher(Publisher):
    acknowledged_protocol = False
    number = 0

    @property
    def ping(self) -> bytes:  # type: ignore[override]
        return fx.frame(fx.PING, self.number, fx.keepalive(1_700_000_000_000))

    def shake_hands(self) -> None:
        self.write(fx.frame(fx.JOIN, 0))
        base = self.receive(26)
        rest = self.receive(fx.header_length(base) + 8)
        reply = fx.parse(base + rest + self.receive(int.from_bytes(rest[-8:], "big")))
        assert (reply.type, reply.header) == (fx.REP, {"status": 200})
        self.number = reply.client_id

    def frame(self, number: int, topic: str, value: bytes) -> bytes:  # noqa: ARG002
        return fx.frame(fx.PUB, self.number, fx.topic(topic), fx.pack(value))

    def take(self, data: bytes) -> int:
        position = 0
        while position + 26 <= len(data):
            start = position + 26 + fx.header_length(data[position : position + 26])
            if start + 8 > len(data):
                break
            end = start + 8 + int.from_bytes(data[start : start + 8], "big")
            if end > len(data):
                break
            found = fx.parse(data[position:end])
            assert found.type == fx.PONG or (found.type, found.header["status"]) == (fx.NOTIF, 503)
            self.pongs += found.type == fx.PONG
            self.errors += found.type == fx.NOTIF
            position = end
        return position


def one_of_each() -> list[Publisher]:
    """A publisher of every protocol."""
    return [
        Rheos1Publisher("rheos1"),
        Rheos2Publisher("rheos2"),
        LamamqPublisher("lamamq"),
        HeraldPublisher("herald"),
        FleximqPublisher("fleximq"),
    ]


class Load:
    """Publishers in threads of their own, who publish until the broker is gone or they are told."""

    def __init__(self, publishers: Sequence[Publisher], *, seed: int = 0) -> None:
        self.publishers = publishers
        self._chances = [random.Random(f"{seed} {each.name}") for each in publishers]
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        self._enough = threading.Event()

    def start(self, address: tuple[str, int]) -> None:
        self._enough.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(publisher, chance, address), daemon=True)
            for publisher, chance in zip(self.publishers, self._chances, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait for the end of the broker."""
        for thread in self._threads:
            thread.join(3 * SECONDS_MAX)
            assert not thread.is_alive(), "a publisher waits for ever"
        self._threads = []
        if self._faults:
            raise self._faults[0]

    def stop(self) -> None:
        """Send nothing more, and wait for the answers."""
        self._enough.set()
        self.wait()

    @property
    def answers(self) -> int:
        """How many messages were acknowledged."""
        return sum(len(each.acknowledged) for each in self.publishers)

    def _run(self, publisher: Publisher, chance: random.Random, address: tuple[str, int]) -> None:
        try:
            publisher.connect(address)
            while not self._enough.is_set():
                publisher.publish(chance.choice((1, 10, 100, 300)))
                if publisher.acknowledged_protocol:
                    bound = chance.choice((0, 100, 500))
                    publisher.read_until(lambda: len(publisher.waiting) <= bound)  # noqa: B023
                else:
                    publisher.settle()
            publisher.settle()
        except (Gone, ConnectionError):
            pass
        except BaseException as fault:  # noqa: BLE001 - told to whoever waits
            self._faults.append(fault)
        finally:
            publisher.disconnect()


# --- What is there --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A message as Arrow reads it."""

    offset: int
    value: bytes
    message_id: uuid.UUID


def segments(data: Path) -> list[Path]:
    """The segments of a log, in order."""
    return sorted((data / "log" / "0").glob("*.arrows"))


def rows_of(data: Path) -> list[Row]:
    """All messages of a log that was closed, read by pyarrow alone."""
    found: list[Row] = []
    for path in segments(data):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                columns = (
                    batch.column(name).to_pylist() for name in ("offset", "value", "message_id")
                )
                found += [
                    Row(offset, value, uuid.UUID(text))
                    for offset, value, text in zip(*columns, strict=True)
                ]
    return found


def check_kept(
    rows: Iterable[Row],
    publishers: Iterable[Publisher],
    *,
    from_start: bool = True,
    cut_off: bool = True,
) -> int:
    """All that was acknowledged is there, whole, in order, once, under the id that was told.

    What failed is not, unless it could not be `cut_off`. Unless `from_start`, what is older than the oldest that is there may have
    been removed. Return how many messages there are.
    """
    kept: dict[str, dict[int, Row]] = {each.name: {} for each in publishers}
    last = dict.fromkeys(kept, -1)
    last_offset = -1
    for row in rows:
        assert row.offset > last_offset, "offsets grow"
        last_offset = row.offset
        mark = MARK.match(row.value)
        assert mark is not None, row.value[:80]
        name, number = mark[1].decode(), int(mark[2])
        assert number > last[name], f"{name}: {number} behind {last[name]}"
        last[name] = number
        kept[name][number] = row
        assert offset_of(row.message_id.bytes) == row.offset
    for publisher in publishers:
        found = kept[publisher.name]
        size = publisher.value_size
        for number, row in found.items():
            assert row.value == value_of(publisher.name, number, size=size), "not whole"
            failed = cut_off and number in publisher.failed
            assert not failed, f"{publisher.name}: {number} was said to have failed"
        oldest = 0 if from_start else min(found, default=0)
        told = {number for number in publisher.acknowledged if number >= oldest}
        missing = sorted(told - found.keys())
        assert not missing, (
            f"{publisher.name}: {len(missing)} of {len(told)} lost, first {missing[:3]}"
        )
        for number, identifier in publisher.acknowledged.items():
            if identifier and number in found:
                assert found[number].message_id.bytes == identifier
    return sum(map(len, kept.values()))


def replayed(
    address: tuple[str, int], count: int, patterns: Sequence[bytes] = (b"#",)
) -> list[bytes]:
    """The marks of `count` messages that a client is sent who asks for all of history."""
    found: list[bytes] = []
    with Peer(address, seconds_max=SECONDS_MAX) as peer:
        peer.send(lama.authentication(b"reader"))
        assert peer.receive(4) == lama.OFFER
        peer.send(lama.CHOICE)
        for number, pattern in enumerate(patterns):
            peer.send(lama.subscribe(number, pattern + b"@earliest"))
        rest = b""
        while len(found) < count:
            more = peer.socket.recv(1 << 20)
            assert more, f"the end after {len(found)} of {count}"
            rest += more
            end = 0
            for mark in MARK.finditer(rest):
                found.append(mark[0])
                end = mark.end()
            rest = rest[max(end, len(rest) - 64) :]
        with contextlib.suppress(TimeoutError):  # and none beyond
            peer.socket.settimeout(0.1)
            found += (mark[0] for mark in MARK.finditer(peer.socket.recv(1 << 20)))
    return found


def marks(rows: Iterable[Row]) -> list[bytes]:
    """What `replayed` must return."""
    return [row.value[: row.value.index(b">") + 1] for row in rows]
