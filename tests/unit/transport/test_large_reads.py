"""A connection that reads alone, and whose input is quick to process, reads large pieces."""

import asyncio
import time
from typing import Any, cast

import pytest

from penstock.limits import LARGE_READ_BYTES, LARGE_READ_SECONDS_MAX, RECEIVE_BUFFER_BYTES
from penstock.transport.stream import LargeReads, StreamConnection
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


class _Reader:
    """Counts in `reading` the connections that may read."""

    def __init__(self, reading: list["_Reader"]) -> None:
        self.reading = reading
        reading.append(self)

    def pause(self) -> None:
        self.reading.remove(self)

    def resume(self) -> None:
        self.reading.append(self)


@pytest.mark.parametrize(("is_shared", "at_once"), [(False, 3), (True, 1)])
def test_large_frames_are_read_one_at_a_time_while_others_use_the_loop(
    is_shared: bool,  # noqa: FBT001
    at_once: int,
) -> None:
    async def check() -> None:
        reads = LargeReads(per_turn_max=3)
        reads.is_shared = lambda: is_shared
        reading: list[_Reader] = []
        readers = [_Reader(reading) for _ in range(7)]
        for each in readers:
            reads.wait(cast("StreamConnection", each))
        assert not reading
        seen = []
        while len(reading) < len(readers):
            before = len(reading)
            await asyncio.sleep(0)
            if len(reading) > before:
                seen.append(len(reading) - before)
        assert max(seen) == at_once
        assert reading == readers

    asyncio.run(check())
