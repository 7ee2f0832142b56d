"""Writes of a connection that follow another one in the same turn of the loop are sent together."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from penstock._kernels.gathered import Gathered
from penstock.core.turns import LoopTurn
from penstock.limits import LATE_WRITE_BYTES_MAX, LATE_WRITE_SECONDS_MAX
from penstock.protocols.herald import HERALD
from penstock.transport.late_writes import LateWrites
from penstock.transport.tls import server_context
from tests.support.agreement import kernel_encode
from tests.unit.kernels.test_gathered import gather, scanned
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_gathered_writes import trusting
from tests.unit.transport.test_half_close import Streams
from tests.unit.transport.test_tls import CERTIFICATE, KEY


class Noting:
    """A transport that keeps a record of its writes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Open(NamedTuple):
    """A connection, and the record of its writes."""

    streams: Streams
    reader: asyncio.StreamReader
    link: Any
    noting: Noting


@contextlib.asynccontextmanager
async def opened(*, tls: bool = False) -> AsyncIterator[Open]:
    streams = Streams(Echo)
    context = server_context(CERTIFICATE, KEY) if tls else None
    async with streams.listening(context) as address:
        reader, writer = await asyncio.open_connection(*address, ssl=trusting() if tls else None)
        await until(lambda: streams.links)
        (link,) = streams.links
        noting = link._transport = Noting(link._transport)
        try:
            yield Open(streams, reader, link, noting)
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_the_first_write_goes_at_once_and_further_ones_together(run: Run, tls: bool) -> None:  # noqa: FBT001
    async def check() -> None:
        async with opened(tls=tls) as (_streams, reader, link, noting):
            for piece in (b"a", b"bc", b"d", b"e"):
                link.write(piece)
            assert noting.writes == [b"a"]
            assert link.written == 5
            assert link.buffered >= 4
            assert not link.congested
            assert await reader.readexactly(5) == b"abcde"
            assert noting.writes == [b"a", b"bcde"]
            assert link.buffered == 0
            link.write(b"f")
            assert noting.writes[2:] == [b"f"]

    run(check())


def test_a_new_turn_begins_with_a_write_at_once(run: Run) -> None:
    async def check() -> None:
        async with opened() as (streams, _reader, link, noting):
            for _ in range(3):
                link.write(b"x")
                streams.buffer.late_writes.flush()  # as at the end of each turn
            assert noting.writes == [b"x"] * 3

    run(check())


def test_many_late_bytes_are_sent_before_the_turn_ends(run: Run) -> None:
    async def check() -> None:
        async with opened() as (_streams, reader, link, noting):
            part = bytes(LATE_WRITE_BYTES_MAX // 2)
            for _ in range(4):
                link.write(part)
            assert sum(map(len, noting.writes)) == 4 * len(part)
            assert await reader.readexactly(4 * len(part)) == part * 4

    run(check())


def test_a_gathered_write_goes_behind_late_ones(run: Run) -> None:
    batch, topics = scanned(HERALD, "big", [9000] * 10)
    frames = kernel_encode(HERALD, "big", batch, topics)

    async def check() -> None:
        async with opened() as (_streams, reader, link, _noting):
            link.write(b"a")
            link.write(b"b")
            gathered: Gathered = gather(HERALD, "big", batch, topics)
            link.write_gathered(gathered)
            link.write(b"c")
            assert await reader.readexactly(len(frames) + 3) == b"ab" + frames + b"c"

    run(check())


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_late_writes_are_sent_before_the_end(run: Run, tls: bool) -> None:  # noqa: FBT001
    async def check() -> None:
        async with opened(tls=tls) as (_streams, reader, link, _noting):
            link.write(b"a")
            link.write(b"b")
            link.close()
            assert await reader.read() == b"ab"

    run(check())


def test_late_writes_of_an_aborted_connection_are_dropped(run: Run) -> None:
    async def check() -> None:
        async with opened() as (streams, _reader, link, noting):
            link.write(b"a")
            link.write(b"b")
            link.abort()
            streams.buffer.late_writes.flush()
            await until(lambda: not streams.links)
            assert noting.writes == [b"a"]
            assert link.buffered == 0

    run(check())


def test_a_turn_flushes_at_its_end_and_when_it_is_long() -> None:
    turn = LoopTurn()
    ends: list[Any] = []
    flushes: list[float] = []
    turn.schedule = ends.append
    now = 100.0
    turn.flush = lambda: flushes.append(now)
    assert not turn.defers(now, 1)
    now += LATE_WRITE_SECONDS_MAX / 2
    turn.defers(now, 1)
    assert not flushes
    now = 100.0 + LATE_WRITE_SECONDS_MAX * 1.1
    turn.defers(now, 1)
    turn.defers(now, 1)
    assert flushes == [now]
    now += LATE_WRITE_SECONDS_MAX / 2
    (end,) = ends
    end()
    assert flushes[1:] == [now]


def test_a_connection_that_writes_while_it_is_flushed_waits_for_the_next_turn(run: Run) -> None:
    late = LateWrites()
    flushed: list[int] = []

    class Writing:
        def flush(self) -> None:
            flushed.append(late.turn)
            if len(flushed) < 3:
                late.add(self)

    async def check() -> None:
        late.add(Writing())
        await until(lambda: len(flushed) == 3)
        assert flushed == [1, 2, 3]

    run(check())
