"""Incomplete frames stay in the shared read buffer until another connection reads."""

import asyncio
import contextlib
import random
import ssl
from typing import Any

import pytest

from penstock.transport.tls import server_context
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_gathered_writes import trusting
from tests.unit.transport.test_half_close import Streams, connected
from tests.unit.transport.test_tls import CERTIFICATE, KEY


class Frames(Echo):
    """Takes whole frames of `step` bytes, at most `most` at a time; sends nothing back."""

    def __init__(self, link: Any, step: int, most: int) -> None:
        super().__init__(link, step)
        self.most = most

    def received(self, data: memoryview) -> int:
        size = min(len(data) // self.step, self.most) * self.step
        self.taken += data[:size]
        return size


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_connections_that_read_in_turns_do_not_mix_their_frames(
    run: Run,
    tls: bool,  # noqa: FBT001
) -> None:
    steps = [7, 100, 5_000, 10_000, 70_000]

    async def check() -> None:
        rng = random.Random(3)
        kinds = iter([(step, most) for step in steps for most in (1, 1 << 20)])
        streams = Streams(lambda link: Frames(link, *next(kinds)))
        context = server_context(CERTIFICATE, KEY) if tls else None
        async with streams.listening(context) as address, contextlib.AsyncExitStack() as stack:
            peers: list[tuple[Any, Any, Any, bytearray]] = []
            for number in range(2 * len(steps)):
                client: ssl.SSLContext | None = trusting() if tls else None
                _, writer = await asyncio.open_connection(*address, ssl=client)
                stack.callback(writer.transport.abort)
                await until(lambda: len(streams.links) > number)  # noqa: B023
                peers.append((writer, streams.links[-1], streams.handlers[-1], bytearray()))
            for _ in range(600):
                writer, link, handler, sent = rng.choice(peers)
                data = rng.randbytes(rng.choice([1, 10, 1_500, 3 * handler.step]))
                sent += data
                writer.write(data)
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
                if rng.random() < 0.1:
                    link.pause()
                    await asyncio.sleep(0)
                    link.resume()
            for writer, _, handler, sent in peers:
                last = rng.randbytes(handler.step - len(sent) % handler.step)
                sent.extend(last)
                writer.write(last)
            async with asyncio.timeout(20):
                for _, link, handler, sent in peers:
                    while len(handler.taken) < len(sent):
                        before = len(handler.taken)
                        link.pause()
                        link.resume()  # a handler that takes one frame gets the next
                        await asyncio.sleep(0 if len(handler.taken) > before else 0.001)
                    assert handler.taken == sent

    run(check())


def test_a_frame_in_pieces_stays_where_it_was_read(run: Run) -> None:
    async def check() -> None:
        streams = Streams(lambda link: Echo(link, 10_000))
        async with (
            streams.listening() as address,
            connected(address) as (_, writer),
            connected(address) as (_, other),
        ):
            await until(lambda: len(streams.links) == 2)
            first, second = streams.links
            if first.peer != "{}:{}".format(*writer.get_extra_info("sockname")):
                first, second = second, first
            buffer = streams.buffer
            frame = random.Random(1).randbytes(10_000)
            for size in (1_000, 2_500, 6_000):
                writer.write(frame[len(first.waiting()) : size])
                await until(lambda: len(first.waiting()) == size)  # noqa: B023
                assert buffer.resident is first
                assert buffer.resident_at == 0
                assert buffer.whole[:size] == frame[:size]
            writer.write(frame[6_000:] + frame[:3_000])
            await until(lambda: len(first.waiting()) == 3_000)
            assert buffer.resident_at == 10_000
            other.write(b"x" * 20_000)  # it overwrites all of that
            await until(lambda: len(second._handler.taken) == 20_000)
            assert buffer.resident is None
            assert first.waiting() == frame[:3_000]
            writer.write(frame[3_000:] + frame[:8_000])
            await until(lambda: len(first.waiting()) == 8_000)
            writer.write(frame[8_000:])  # to the front, over a part of itself
            await until(lambda: len(first._handler.taken) == 30_000)
            assert first._handler.taken == 3 * frame

    run(check())


def test_a_connection_that_ends_leaves_the_buffer(run: Run) -> None:
    async def check() -> None:
        streams = Streams(lambda link: Echo(link, 100))
        async with streams.listening() as address:
            async with connected(address) as (_, writer):
                writer.write(bytes(50))
                await until(lambda: streams.buffer.resident is not None)
            await until(lambda: not streams.links)
            assert streams.buffer.resident is None

    run(check())
