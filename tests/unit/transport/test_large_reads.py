"""Connections in the middle of large frames take turns."""

import asyncio
from typing import Any

from penstock.transport.stream import LargeReads
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_half_close import Streams, connected

MIB = 1 << 20


class Reading:
    """A connection that only counts how often it may read."""

    def __init__(self) -> None:
        self.paused = False
        self.reads = 0

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.reads += 1


def test_a_few_connections_read_in_each_turn_of_the_loop(run: Run) -> None:
    async def check() -> None:
        turns: Any = LargeReads(per_turn_max=2)
        connections = [Reading() for _ in range(5)]
        for each in connections:
            turns.wait(each)
        assert all(each.paused for each in connections)
        seen = []
        for _ in range(4):
            await asyncio.sleep(0)
            seen.append(sum(each.reads for each in connections))
        assert seen[:3] == [2, 4, 5] or seen[1:] == [2, 4, 5]
        assert not any(each.paused for each in connections)

    run(check())


class Whole(Echo):
    """Takes a frame of 3 MiB when it is complete."""

    def __init__(self, link: Any) -> None:
        super().__init__(link, 3 * MIB)


def test_large_frames_of_many_connections_arrive_whole(run: Run) -> None:
    async def check() -> None:
        owner = Streams(Whole)
        frames = [bytes([number]) * (3 * MIB) for number in range(20)]

        async def send(frame: bytes) -> None:
            async with connected(address) as (reader, writer):
                writer.write(frame)
                async with asyncio.timeout(20):
                    assert await reader.readexactly(len(frame)) == frame

        async with owner.listening() as address:
            await asyncio.gather(*map(send, frames))
        await until(lambda: not owner.links)

    run(check())
