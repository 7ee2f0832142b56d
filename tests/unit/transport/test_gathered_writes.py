"""Frames that refer to received values keep their place among other writes."""

import asyncio
import ssl

import pytest

from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD
from penstock.transport.tls import server_context
from tests.support.agreement import kernel_encode
from tests.unit.kernels.test_gathered import gather, scanned
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_half_close import Streams
from tests.unit.transport.test_tls import CERTIFICATE, KEY

ORDER: ByteOrder = "big"
SIZES = [9000] * 500


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_the_order_of_writes_is_kept(run: Run, tls: bool) -> None:  # noqa: FBT001
    batch, topics = scanned(HERALD, ORDER, SIZES)
    copied = kernel_encode(HERALD, ORDER, batch, topics)
    expected = b"a" + copied + copied + b"b" + copied + b"c"

    async def check() -> None:
        streams = Streams(Echo)
        context = server_context(CERTIFICATE, KEY) if tls else None
        async with streams.listening(context) as address:
            reader, writer = await asyncio.open_connection(
                *address, ssl=trusting() if tls else None
            )
            await until(lambda: streams.links)
            (link,) = streams.links
            link.write(b"a")
            link.write_gathered(gather(HERALD, ORDER, batch, topics))
            link.write_gathered(gather(HERALD, ORDER, batch, topics))
            link.write(b"b")
            await asyncio.sleep(0.01)
            link.write_gathered(gather(HERALD, ORDER, batch, topics))
            link.write(b"c")
            assert await reader.readexactly(len(expected)) == expected
            assert (link.written, link.buffered) == (len(expected), 0)
            link.close()
            link.write_gathered(gather(HERALD, ORDER, batch, topics))
            assert await reader.read() == b""
            writer.close()

    run(check())


def test_the_first_frames_of_an_idle_connection_are_not_copied(run: Run) -> None:
    batch, topics = scanned(HERALD, ORDER, [9000] * 4)

    async def check() -> None:
        streams = Streams(Echo)
        async with streams.listening() as address:
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: streams.links)
            frames = gather(HERALD, ORDER, batch, topics)
            streams.links[0].write_gathered(frames)
            batch.clear()
            with pytest.raises(RuntimeError, match="released"):
                frames.copied()
            assert len(await reader.readexactly(len(frames))) == len(frames)
            writer.close()

    run(check())
