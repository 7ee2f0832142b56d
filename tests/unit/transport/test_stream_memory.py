"""Streams draw the memory of unfinished frames from a budget, and return it."""

import asyncio
from typing import Any

import pytest

from penstock.memory import MemoryBudget, Purpose
from penstock.transport.stream import _FREE_BYTES
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_half_close import Streams, connected

MIB = 1 << 20


class Unfinished(Echo):
    """Waits for a frame that is larger than all memory; answers and closes when it gets none."""

    def __init__(self, link: Any) -> None:
        super().__init__(link, 1 << 30)
        self.starvations = 0

    def starved(self) -> None:
        self.starvations += 1
        self.link.write(b"no memory")
        self.link.close()


class Budgeted(Streams):
    def __init__(self, bytes_max: int) -> None:
        super().__init__(Unfinished)
        self.memory = MemoryBudget(bytes_max)

    def opened(self, link: Any, *arguments: Any) -> Any:
        link.account = self.memory.open("127.0.0.1")
        link.account.holder = link
        return super().opened(link, *arguments)


@pytest.mark.parametrize("size", [4, 64])
def test_a_frame_that_never_fits_is_refused_and_its_memory_returned(run: Run, size: int) -> None:
    async def check() -> None:
        owner = Budgeted(size * MIB)
        async with owner.listening() as address, connected(address) as (reader, writer):
            writer.write(bytes(size * MIB))
            async with asyncio.timeout(5):
                assert await reader.read(9) == b"no memory"
            assert owner.handlers[0].starvations == 1
            assert len(owner.handlers[0].taken) == 0
        await until(lambda: not owner.links)
        assert owner.memory.left() == {}

    run(check())


def test_a_short_rest_of_a_frame_draws_no_memory(run: Run) -> None:
    async def check() -> None:
        owner = Budgeted(64 * MIB)
        async with owner.listening() as address, connected(address) as (_, writer):
            writer.write(bytes(_FREE_BYTES))
            await until(lambda: owner.links and len(owner.links[0]._rest) == _FREE_BYTES)
            assert owner.links[0].account.sizes[Purpose.INPUT] == 0
            writer.write(b"!")
            await until(lambda: owner.links[0].account.sizes[Purpose.INPUT] > _FREE_BYTES)

    run(check())


def test_a_connection_that_ends_returns_its_memory(run: Run) -> None:
    async def check() -> None:
        owner = Budgeted(64 * MIB)
        async with owner.listening() as address:
            async with connected(address) as (_, writer):
                writer.write(bytes(MIB))
                await until(lambda: owner.links and owner.links[0].account.held > MIB)
                assert owner.memory.left() != {}
            await until(lambda: not owner.links)
            assert owner.memory.left() == {}
            assert owner.handlers[0].starvations == 0

    run(check())
