"""A member of a group as a process: `python -m tests.crash.group_member PROTOCOL URL…`.

It writes a line for each message: `seen VALUE SECONDS` with the monotonic time, and `done VALUE`
when it has acknowledged it. Values that end in `!>` are refused. The client library connects again, to
the other URLs too; each time it has joined, the process writes `joined`. It leaves at SIGTERM.

The clients of Rheos and herald acknowledge nothing: their system does. Such a member reads through
`AcknowledgedBytes`, so that a test knows which bytes the system has acknowledged, though it is killed.
PENSTOCK_TEST_FOLDER and PENSTOCK_TEST_CONTROL are for that.
"""

import asyncio
import contextlib
import io
import itertools
import os
import re
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from penstock.client import (
    Backoff,
    Client,
    ClientEvent,
    ConnectFailed,
    PeerError,
    Refused,
    State,
    StateChanged,
    TimedOut,
    connect,
)
from penstock.client.options import ProtocolName

CHANNEL = 7
GROUP = "billing"
PATTERN = f"channel/{CHANNEL}"
ORDERED_GROUP = "steps"
ORDERED_PATTERN = "steps/#"
ACKNOWLEDGES = ("fleximq", "lamamq")
"""Protocols whose members tell what they have done; of others, the system does."""
VALUE = re.compile(rb"<[0-9.]+!?>")
LOOK_SECONDS = 0.2
READ_BYTES = 64 * 1024
_LENGTH = struct.Struct("<I")
_HOST = "127.0.0.1"


class AcknowledgedBytes:
    """A relay in the process of a member that stores bytes of the broker before it reads them.

    It looks at the bytes (MSG_PEEK), appends them to a file, and only then takes them from the
    system. A copy of the socket goes to the test, which finds what the system had acknowledged and
    the process had not taken. So all bytes are known that the system has acknowledged.
    """

    def __init__(self, url: str, folder: Path, control: socket.socket) -> None:
        address = urlsplit(url)
        self._broker = (str(address.hostname), int(str(address.port)))
        self._folder = folder
        self._control = control
        self._count = 0
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((_HOST, 0))
        self.url = f"tcp://{_HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                broker = socket.create_connection(self._broker, timeout=5)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self._count += 1
            name = f"{os.getpid()}-{self._broker[1]}-{self._count}"
            socket.send_fds(self._control, [name.encode()], [broker.fileno()])
            thread = threading.Thread(target=self._relay, args=(client, broker, name))
            self._threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket, broker: socket.socket, name: str) -> None:
        """Relay until one side ends; then store what the system still has."""
        with (
            client,
            broker,
            (self._folder / name).open("wb", buffering=0) as file,
            selectors.DefaultSelector() as selector,
            contextlib.suppress(OSError),
        ):
            selector.register(client, selectors.EVENT_READ)
            selector.register(broker, selectors.EVENT_READ)
            ended = False
            while not ended:
                for key, _ in selector.select():
                    if key.fileobj is client:
                        ended = not _copy(client.recv, broker)
                    elif not ended:
                        ended = not _copy(lambda _: self._take(broker, file), client)
            # A socket that reads no more acknowledges no more: what it has is all.
            broker.shutdown(socket.SHUT_RDWR)
            while self._take(broker, file):
                pass

    @staticmethod
    def _take(broker: socket.socket, file: io.FileIO) -> bytes:
        data = broker.recv(READ_BYTES, socket.MSG_PEEK)
        if data:
            file.write(_LENGTH.pack(len(data)) + data)
            broker.recv(len(data))
        return data

    def wait(self) -> None:
        """Wait until the bytes of all connections are stored."""
        for thread in self._threads:
            thread.join()


def _copy(read: Callable[[int], bytes], to: socket.socket) -> bool:
    """Read bytes and send them; return False at the end of one side."""
    try:
        data = read(READ_BYTES)
        to.sendall(data)
    except OSError:
        return False
    return bool(data)


def acknowledged_bytes(stored: bytes, left: bytes) -> bytes:
    """Return all bytes of a connection: those that were stored, and those that the system had."""
    found: list[bytes] = []
    while len(stored) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(stored)
        found.append(stored[_LENGTH.size : _LENGTH.size + size])
        stored = stored[_LENGTH.size + size :]
    if found and left.startswith(found[-1]):  # it was stored, and not taken
        found.pop()
    return b"".join([*found, left])


def tell(kind: str, *values: object) -> None:
    sys.stdout.write(" ".join(map(str, (kind, *values))) + "\n")
    sys.stdout.flush()


def member_of(urls: list[str], protocol: ProtocolName) -> Client:
    """Return a client that writes each time that it has joined: a member is connected then.

    Only the first time, a client of herald connects before it subscribes.
    """
    connected = itertools.count()

    def observe(event: ClientEvent) -> None:
        is_connected = isinstance(event, StateChanged) and event.state is State.CONNECTED
        if is_connected and (next(connected) or protocol != "herald"):
            tell("joined")

    quick = Backoff(seconds_max=0.5)
    return connect(urls, protocol=protocol, timeout=5, backoff=quick, on_event=observe)


async def consume(client: Client, ended: asyncio.Event, *, is_ordered: bool) -> None:
    """Process messages until `ended`."""
    acknowledges = client.protocol.label in ACKNOWLEDGES
    pattern, group = (ORDERED_PATTERN, ORDERED_GROUP) if is_ordered else (PATTERN, GROUP)
    async with client.consume(pattern, group=group, is_ordered=is_ordered) as messages:
        while not ended.is_set():
            try:
                taken = await messages.take(LOOK_SECONDS)
            except TimedOut:
                continue
            for message in taken:
                value = message.value.decode()
                tell("seen", value, time.monotonic())
                if acknowledges and value.endswith("!>"):
                    await message.nack("poison")
                elif await message.ack() and acknowledges:
                    tell("done", value)


async def listen(client: Client, ended: asyncio.Event) -> None:
    """Do the same with a channel of herald, which the broker binds to the group."""
    async with client, client.subscribe(CHANNEL) as stream:
        tell("joined")
        while not ended.is_set():
            with contextlib.suppress(TimedOut):
                message = await stream.get(LOOK_SECONDS)
                tell("seen", message.value.decode(), time.monotonic())


async def run(protocol: ProtocolName, urls: list[str], *, is_ordered: bool) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    while not ended.is_set():
        client = member_of(urls, protocol)
        try:
            if protocol == "herald":
                await listen(client, ended)
            else:
                await consume(client, ended, is_ordered=is_ordered)
        except (ConnectFailed, PeerError, Refused):
            urls = [*urls[1:], urls[0]]  # a herald client begins at one node, and stays there
            await asyncio.sleep(0.1)


def main(protocol: ProtocolName, *urls: str) -> None:
    relays: list[AcknowledgedBytes] = []
    if protocol not in ACKNOWLEDGES:
        folder = Path(os.environ["PENSTOCK_TEST_FOLDER"])
        control = socket.socket(fileno=int(os.environ["PENSTOCK_TEST_CONTROL"]))
        relays = [AcknowledgedBytes(url, folder, control) for url in urls]
    addresses = [relay.url for relay in relays] or list(urls)
    asyncio.run(run(protocol, addresses, is_ordered="PENSTOCK_TEST_ORDERED" in os.environ))
    for relay in relays:
        relay.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
