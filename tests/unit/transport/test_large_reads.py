"""A connection that reads alone, and whose input is quick to process, reads large pieces."""

import asyncio
import time
from typing import Any

from penstock.limits import LARGE_READ_BYTES, LARGE_READ_SECONDS_MAX, RECEIVE_BUFFER_BYTES
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_half_close import Streams, connected

SENT = 8 * LARGE_READ_BYTES


class Taking(Echo):
    """Takes everything, for `seconds` each time, and notes how much that was."""

    seconds = 0.0

    def __init__(self, link: Any) -> None:
        super().__init__(link)
        self.sizes: list[int] = []

    def received(self, data: memoryview) -> int:
        self.sizes.append(len(data))
        until_time = time.perf_counter() + self.seconds
        while time.perf_counter() < until_time:
            pass
        return len(data)


class Slow(Taking):
    """Takes more time than input that is quick to process."""

    seconds = 10 * LARGE_READ_SECONDS_MAX


async def sizes_of(handler: type[Taking], *, narrow: bool = False) -> list[int]:
    """The sizes of the pieces that a handler is given; the whole input waits for it."""
    streams = Streams(handler)
    streams.buffer.narrow(narrow)
    async with streams.listening() as address, connected(address) as (_, writer):
        await until(lambda: streams.handlers)
        (link,), (taking,) = streams.links, streams.handlers
        for _ in range(10):
            link.pause()
            writer.write(bytes(SENT))
            await asyncio.sleep(0.02)
            link.resume()
            await writer.drain()
            await until(lambda: sum(taking.sizes) % SENT == 0)
            if max(taking.sizes) > RECEIVE_BUFFER_BYTES:
                break
        return list(taking.sizes)


def test_quick_input_is_read_in_large_pieces(run: Run) -> None:
    async def check() -> None:
        sizes = await sizes_of(Taking)
        assert RECEIVE_BUFFER_BYTES < max(sizes) <= LARGE_READ_BYTES

    run(check())


def test_slow_input_is_not(run: Run) -> None:
    async def check() -> None:
        assert max(await sizes_of(Slow)) <= RECEIVE_BUFFER_BYTES

    run(check())


def test_nothing_is_while_memory_is_short(run: Run) -> None:
    async def check() -> None:
        assert max(await sizes_of(Taking, narrow=True)) < RECEIVE_BUFFER_BYTES

    run(check())


def test_nor_is_what_two_connections_send_in_turns(run: Run) -> None:
    async def check() -> None:
        streams = Streams(Taking)
        buffer = streams.buffer
        first, second = object(), object()
        assert [buffer.reads_alone(reader) for reader in (first, second, first, first)] == [
            False,
            False,
            False,
            True,
        ]

    run(check())
