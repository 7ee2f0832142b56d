"""The asyncio shell against a broker that does what the test says."""

import asyncio
import gc
from pathlib import Path

import pytest

import penstock
from penstock.client import (
    Backoff,
    ClientClosed,
    ClientEvent,
    ConnectFailed,
    ConnectionLost,
    ErrorReported,
    Refused,
    State,
    StateChanged,
    TimedOut,
    Unsupported,
)
from tests.support import herald_bytes as herald
from tests.unit.client.scripted import ACK, Scripted, frame, message, obliging, run

QUICK = Backoff(seconds_min=0.01, seconds_max=0.05)


async def until(condition: object, *, seconds: float = 5) -> None:
    """Wait on a condition with a deadline."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


# --- Begin and end --------------------------------------------------------------------------------


def test_nobody_at_the_address_is_a_clear_error() -> None:
    async def test() -> None:
        client = penstock.connect("tcp://127.0.0.1:1", protocol="herald")
        with pytest.raises(ConnectFailed, match=r"tcp://127\.0\.0\.1:1: connection refused"):
            await client.open()
        assert client.state is State.CLOSED
        with pytest.raises(ConnectFailed):
            await client.publish(7, b"")

    run(test())


def test_no_socket_file_is_a_clear_error(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(ConnectFailed):
            await penstock.connect(f"ipc://{tmp_path}/no.sock", protocol="fleximq").open()

    run(test())


def test_a_refused_handshake_says_why() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame(reader)
        writer.write(herald.frame(0x03, b"\x08" + bytes(8)))
        await writer.drain()

    async def test() -> None:
        async with Scripted(script) as url:
            with pytest.raises(Refused, match="UNAUTHORIZED"):
                await penstock.connect(url, protocol="herald").open()

    run(test())


def test_a_broker_that_says_nothing_runs_out_of_time() -> None:
    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test() -> None:
        async with Scripted(script) as url:
            with pytest.raises(TimedOut, match=r"connect got no answer within 0\.05 s"):
                await penstock.connect(url, protocol="herald", timeout=0.05).open()

    run(test())


def test_a_broker_of_another_kind_is_a_clear_error() -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def test() -> None:
        async with Scripted(script) as url:
            with pytest.raises(ConnectFailed, match="broke the protocol"):
                await penstock.connect(url, protocol="herald").open()

    run(test())


def test_a_client_is_used_once_and_only_while_it_is_open() -> None:
    async def test() -> None:
        async with Scripted(obliging) as url:
            client = penstock.connect(url, protocol="herald")
            with pytest.raises(ClientClosed):
                await client.publish(7, b"")
            async with client:
                stream = await client.subscribe(7)
            assert [item async for item in stream] == []
            with pytest.raises(ClientClosed):
                await client.publish(7, b"")
            with pytest.raises(ClientClosed):
                await client.open()
            await client.close()

    run(test())


def test_a_client_says_goodbye() -> None:
    heard: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode, _ = await frame(reader)
            heard.append(opcode)
            if opcode == 0x02:
                writer.write(ACK)
            if opcode == 0x04:
                return

    async def test() -> None:
        async with Scripted(script) as url:
            async with penstock.connect(url, protocol="herald"):
                pass
            await until(lambda: heard == [0x02, 0x04])

    run(test())


# --- Flow -----------------------------------------------------------------------------------------


def flood(count: int, sent: list[int]) -> Scripted:
    """Sends `count` messages of 1,000 bytes behind a subscription; notes what it got rid of."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        while True:
            opcode, _ = await frame(reader)
            if opcode in (0x01, 0x02):
                writer.write(ACK)
            elif opcode == 0x20:
                writer.write(herald.PONG)
            elif opcode == 0x11:
                writer.write(herald.PONG)  # ahead of the flood: the script reads no more
                for number in range(count):
                    writer.write(message(7, b"%08d" % number + bytes(992)))
                    await writer.drain()
                    sent.append(number)

    return Scripted(script)


def test_a_full_queue_stops_the_reading_and_nothing_is_lost() -> None:
    sent: list[int] = []
    count = 20_000  # 20 MB: more than the system's buffers take

    async def test() -> None:
        async with (
            flood(count, sent) as url,
            penstock.connect(url, protocol="herald", queue_max=100) as client,
        ):
            stream = await client.subscribe(7)
            await until(lambda: len(stream.queue) == 100)
            before = -1
            while len(sent) != before:  # until the system's buffers take no more
                before = len(sent)
                await asyncio.sleep(0.2)
            assert len(sent) < count
            assert len(stream.queue) == 100
            for number in range(count):
                item = await stream.get(timeout=5)
                assert item.value[:8] == b"%08d" % number

    run(test())


def test_who_waits_for_an_answer_reads_on_behind_a_full_queue() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode, _ = await frame(reader)
            if opcode == 0x02:
                writer.write(ACK)
            elif opcode == 0x11:
                writer.write(b"".join(message(7, b"%d" % number) for number in range(50)))
            elif opcode == 0x20:
                writer.write(herald.PONG)

    async def test() -> None:
        async with (
            Scripted(script) as url,
            penstock.connect(url, protocol="herald", queue_max=10, timeout=5) as client,
        ):
            stream = await client.subscribe(7)
            for number in range(50):
                item = await stream.get(timeout=5)
                assert item.value == b"%d" % number
                await client.ping()

    run(test())


def test_a_stream_that_nobody_holds_does_not_hold_up_the_others() -> None:
    sent: list[int] = []

    async def test() -> None:
        async with (
            flood(2000, sent) as url,
            penstock.connect(url, protocol="herald", queue_max=10) as client,
        ):
            async for _ in client.subscribe(7):
                break
            gc.collect()
            await until(lambda: len(sent) == 2000)

    run(test())


def test_values_that_wait_are_taken_at_once() -> None:
    sent: list[int] = []

    async def test() -> None:
        async with flood(500, sent) as url, penstock.connect(url, protocol="herald") as client:
            stream = await client.subscribe(7)
            taken = []
            while len(taken) < 500:
                taken += await stream.take(timeout=5)
            assert [item.value[:8] for item in taken] == [b"%08d" % n for n in range(500)]
            with pytest.raises(TimedOut):
                await stream.get(timeout=0.01)

    run(test())


def test_one_delivery_reaches_every_subscription_it_is_for() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode, body = await frame(reader)
            if opcode in (0x01, 0x02):
                writer.write(ACK)
            elif opcode == 0x20:
                writer.write(herald.PONG)
            elif opcode == 0x10:
                writer.write(message(body[0], body[1:]))

    async def test() -> None:
        async with Scripted(script) as url, penstock.connect(url, protocol="herald") as client:
            one, two, other = [await client.subscribe(channel) for channel in (7, "channel/7", 8)]
            await client.publish(7, b"seven")
            await client.publish(8, b"eight")
            assert (await one.get(5)).value == (await two.get(5)).value == b"seven"
            assert (await other.get(5)).value == b"eight"
            await one.close()
            await client.publish(7, b"again")
            assert (await two.get(5)).value == b"again"
            assert [item async for item in one] == []
            await client.unsubscribe(7)
            assert [item async for item in two] == []

    run(test())


# --- Loss -----------------------------------------------------------------------------------------


def test_what_was_not_answered_when_the_connection_went_is_the_callers_to_decide() -> None:
    scripts = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal scripts
        scripts += 1
        if scripts > 1:
            await obliging(reader, writer)
            return
        await frame(reader)
        writer.write(ACK)
        await frame(reader)  # HANDSHAKE_PUB, which is not answered

    async def test() -> None:
        events: list[ClientEvent] = []
        async with (
            Scripted(script) as url,
            penstock.connect(
                url, protocol="herald", backoff=QUICK, on_event=events.append
            ) as client,
        ):
            with pytest.raises(ConnectionLost):
                await client.publish(7, b"a")
            await client.publish(7, b"b")  # waits for the next connection
            assert client.state is State.CONNECTED
        await until(lambda: len(events) == 5)
        assert [event.state for event in events if isinstance(event, StateChanged)] == [
            State.CONNECTING,
            State.CONNECTED,
            State.RECONNECTING,
            State.CONNECTED,
            State.CLOSED,
        ]

    run(test())


def test_without_reconnecting_the_loss_reaches_every_iterator() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame(reader)
        writer.write(ACK)
        for _ in range(3):
            await frame(reader)
        writer.write(herald.PONG + herald.PONG + message(7, b"last"))
        await writer.drain()

    async def test() -> None:
        async with (
            Scripted(script) as url,
            penstock.connect(url, protocol="herald", reconnect=False) as client,
        ):
            stream = await client.subscribe(7)
            assert (await stream.get(5)).value == b"last"
            with pytest.raises(ConnectionLost):
                await stream.get(5)
            with pytest.raises(ConnectionLost):
                await client.ping()
            assert client.state is State.CLOSED

    run(test())


def test_attempts_end_at_their_bound() -> None:
    async def test() -> None:
        closing = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await frame(reader)
            writer.write(ACK)
            await closing.wait()

        backoff = Backoff(seconds_min=0.01, seconds_max=0.01, attempts_max=2)
        scripted = Scripted(script)
        url = await scripted.__aenter__()
        async with penstock.connect(url, protocol="herald", backoff=backoff) as client:
            await scripted.__aexit__()
            await until(lambda: client.state is State.CLOSED)
            with pytest.raises(ConnectFailed):
                await client.subscribe(7).get(5)

    run(test())


def test_a_refusal_that_will_not_change_ends_the_attempts() -> None:
    scripts = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal scripts
        scripts += 1
        await frame(reader)
        writer.write(ACK if scripts == 1 else herald.frame(0x03, b"\x08" + bytes(8)))
        await writer.drain()

    async def test() -> None:
        async with (
            Scripted(script) as url,
            penstock.connect(url, protocol="herald", backoff=QUICK) as client,
        ):
            await until(lambda: client.state is State.CLOSED)
            with pytest.raises(Refused, match="UNAUTHORIZED"):
                await client.ping()
            assert scripts == 2

    run(test())


def test_an_operation_while_there_is_no_connection_runs_out_of_time() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame(reader)
        writer.write(ACK)
        await writer.drain()

    async def test() -> None:
        async with Scripted(script) as url:
            slow = Backoff(seconds_min=5, jitter=0)
            async with penstock.connect(
                url, protocol="herald", backoff=slow, timeout=0.1
            ) as client:
                await until(lambda: client.state is State.RECONNECTING)
                with pytest.raises(TimedOut, match="publish"):
                    await client.publish(7, b"")

    run(test())


def test_a_broker_that_stops_answering_is_left() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame(reader)
        writer.write(ACK)
        await reader.read()

    async def test() -> None:
        events: list[ClientEvent] = []
        async with (
            Scripted(script) as url,
            penstock.connect(
                url, protocol="herald", keepalive=0.05, on_event=events.append, backoff=QUICK
            ),
        ):
            await until(
                lambda: StateChanged(State.RECONNECTING, "no answer to keep-alive") in events
            )

    run(test())


def test_an_error_that_no_call_waits_for_is_reported() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode, _ = await frame(reader)
            if opcode in (0x01, 0x02):
                writer.write(ACK)
            elif opcode == 0x10:
                writer.write(herald.error(4))

    async def test() -> None:
        events: list[ClientEvent] = []
        async with (
            Scripted(script) as url,
            penstock.connect(url, protocol="herald", on_event=events.append) as client,
        ):
            await client.publish(7, b"")
            await until(lambda: any(isinstance(event, ErrorReported) for event in events))
            (error,) = [event.error for event in events if isinstance(event, ErrorReported)]
            assert isinstance(error, Refused)
            assert error.text == "RATE_LIMIT_EXCEEDED"

    run(test())


def test_a_subscription_that_is_not_restored_ends_with_the_refusal() -> None:
    scripts = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal scripts
        scripts += 1
        await frame(reader)
        writer.write(ACK)
        for _ in range(3):
            await frame(reader)
        if scripts == 1:
            writer.write(herald.PONG + herald.PONG)
            await writer.drain()
            return
        writer.write(herald.PONG + herald.error(8) + herald.PONG)
        await reader.read()

    async def test() -> None:
        async with (
            Scripted(script) as url,
            penstock.connect(url, protocol="herald", backoff=QUICK) as client,
        ):
            stream = await client.subscribe(7)
            with pytest.raises(Refused, match="UNAUTHORIZED"):
                await stream.get(5)
            assert client.state is State.CONNECTED

    run(test())


def test_what_the_protocol_has_not_is_refused_by_the_client() -> None:
    async def test() -> None:
        async with Scripted(obliging) as url, penstock.connect(url, protocol="herald") as client:
            with pytest.raises(Unsupported, match="herald has no request"):
                await client.request(1, "/time")
            with pytest.raises(Unsupported, match="herald has no serve"):
                client.serve("/", lambda _: None)
            with pytest.raises(Unsupported, match="herald has no notifications"):
                client.notifications()
            with pytest.raises(Unsupported, match="herald has no create_topic"):
                await client.create_topic(7)
            with pytest.raises(Unsupported, match="herald has no middleware"):
                await client.middleware("m", lambda _: None)
            with pytest.raises(Unsupported, match="herald has no publish"):
                await client.publish(7, payload={"a": 1})

    run(test())
