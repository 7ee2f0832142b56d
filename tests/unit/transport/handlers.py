"""Handlers for tests of transports: they know no protocol."""

import asyncio
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], seconds_max: float = 5.0) -> None:
    """Wait for a condition; raise TimeoutError after `seconds_max`."""
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(0.005)


class Echo:
    """See ports.Handler: sends back what it takes, in pieces of `step` bytes; keeps a record."""

    def __init__(self, link: Any, step: int = 1) -> None:
        self.link = link
        self.step = step
        self.taken = bytearray()
        self.drained_count = 0
        self.lost_for: list[str] = []

    established = True

    def received(self, data: memoryview) -> int:
        assert not self.lost_for
        size = len(data) - len(data) % self.step
        self.taken += data[:size]
        if size:
            self.link.write(bytes(data[:size]))
        return size

    def drained(self) -> None:
        self.drained_count += 1

    def ended(self) -> None:
        self.link.close()

    def lost(self, reason: str) -> None:
        self.lost_for.append(reason)


class Broken(Echo):
    """A handler that fails at the first byte."""

    def received(self, data: memoryview) -> int:
        raise RuntimeError(f"{len(data)} bytes too many")


def one_broken(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a factory of one Broken handler, then of handlers that `kind` makes."""
    kinds = [Broken]

    def make(link: Any) -> Any:
        return (kinds.pop() if kinds else kind)(link)

    return make


class Owner:
    """The owner of connections in tests; `new_handler` makes their handlers."""

    congested_bytes = 1 << 20
    out_bytes_max = 1 << 22

    def __init__(self, new_handler: Callable[[Any], Any] = Echo) -> None:
        self.new_handler = new_handler
        self.links: list[Any] = []
        self.handlers: list[Any] = []
        self.failures: list[Exception] = []
        self.refusals: list[str] = []
        self.unsent = (0, 0)

    def opened(self, link: Any, *_: Any) -> Any:
        self.links.append(link)
        self.handlers.append(self.new_handler(link))
        return self.handlers[-1]

    def closed(self, link: Any) -> None:
        self.links.remove(link)

    def failed(self, link: Any, error: Exception) -> None:
        assert link in self.links
        self.failures.append(error)

    def refused(self, peer: str, reason: str, *, connection: int) -> None:
        assert peer
        assert connection
        self.refusals.append(reason)

    def datagram_dropped(self, reason: str) -> None:
        self.refusals.append(reason)

    def frames_dropped(self, *, messages: int, too_large: int) -> None:
        self.unsent = (self.unsent[0] + messages, self.unsent[1] + too_large)

    def entered(self, connection: Any) -> bool:  # noqa: ARG002
        return True

    def left(self, connection: Any) -> None:
        pass

    def http(self, arrival: Any) -> None:
        """Send back what was received, and close."""
        arrival.transport.write(b"not for the WebSocket: " + bytes(arrival.received))
        arrival.transport.close()
