"""The connection of a program that the broker started: its standard input and output.

The connection takes both over for good. From then on what the program prints goes to its standard
error, which the broker logs, so that `print` cannot damage the stream.
"""

import asyncio
import os
import sys
from typing import Final, Protocol, cast

from penstock.client.address import Address
from penstock.client.errors import Unreachable
from penstock.transport.stdio import CLIENT_ID_VARIABLE

__all__ = ["StdioLink", "open_stdio"]

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


class Receiver(Protocol):
    """Receives the bytes of a link, see `links.Receiver`."""

    def received(self, data: bytes) -> None:
        """Process received bytes."""

    def lost(self, reason: str) -> None:
        """Handle the end of the connection. No call follows."""


_taken: list[Address] = []


async def open_stdio(address: Address, receiver: Receiver) -> "StdioLink":
    """Open the link; raise Unreachable.

    The process must be a program of a broker, and must not have had such a link before.
    """
    if CLIENT_ID_VARIABLE not in os.environ:
        reason = "this program was not started by a broker; list it as a [[program]] there"
        raise Unreachable(str(address), reason)
    if _taken:
        raise Unreachable(str(address), "standard input and output were used before")
    link = StdioLink(receiver)
    sys.stdout.flush()
    descriptors = os.dup(_STDIN), os.dup(_STDOUT)
    pipes = os.fdopen(descriptors[0], "rb", 0), os.fdopen(descriptors[1], "wb", 0)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_write_pipe(lambda: _Output(link), pipes[1])
        await loop.connect_read_pipe(lambda: _Input(link), pipes[0])
    except ValueError as error:  # a file or a terminal, not a pipe
        for pipe in pipes:
            pipe.close()
        reason = f"standard input and output are not pipes of a broker ({error})"
        raise Unreachable(str(address), reason) from None
    _taken.append(address)
    os.dup2(_STDERR, _STDOUT)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _STDIN)
    os.close(null)
    return link


class StdioLink:
    """A `links.Link` over standard input and output."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.input: asyncio.ReadTransport | None = None
        self.output: asyncio.WriteTransport | None = None
        self.drained = asyncio.Event()
        self.drained.set()
        self._lost = False

    def received(self, data: bytes) -> None:
        """Pass on bytes from the broker."""
        self._receiver.received(data)

    def ended(self, reason: str) -> None:
        """Close both pipes and report the end, once."""
        if self._lost:
            return
        self._lost = True
        self.drained.set()
        if self.input is not None:
            self.input.close()
        if self.output is not None:
            self.output.close()
        self._receiver.lost(reason)

    # --- See links.Link ---------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See Link."""
        if self.output is not None and not self._lost:
            self.output.write(data)

    async def drain(self) -> None:
        """See Link."""
        await self.drained.wait()

    def pause(self) -> None:
        """See Link."""
        if self.input is not None and self.input.is_reading():
            self.input.pause_reading()

    def resume(self) -> None:
        """See Link."""
        if self.input is not None and not self.input.is_closing():
            self.input.resume_reading()

    def close(self) -> None:
        """See Link."""
        if self.output is not None:
            self.output.close()

    def abort(self) -> None:
        """See Link."""
        if self.output is not None:
            self.output.abort()
        self.ended("aborted")


class _Input(asyncio.Protocol):
    def __init__(self, link: StdioLink) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.input = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._link.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.input = None
        self._link.ended(str(exc) if exc else "closed by the broker")


class _Output(asyncio.BaseProtocol):
    def __init__(self, link: StdioLink) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.output = cast("asyncio.WriteTransport", transport)

    def pause_writing(self) -> None:
        self._link.drained.clear()

    def resume_writing(self) -> None:
        self._link.drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.output = None
        self._link.ended(str(exc) if exc else "the client was closed")
