"""Datagrams of whole frames, sessions by address; bytes from tests/support/herald_bytes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.transport.udp import DatagramEndpoint, split_frames
from tests.support.herald_bytes import (
    DISCONNECT,
    error,
    frame,
    handshake_pub,
    handshake_sub,
    publish,
)
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, Owner, one_broken, until

MALFORMED = 7
PING, PONG = frame(0x20), frame(0x21)


class Frames(Echo):
    """Echoes whole frames, as herald's gateway takes them."""

    def received(self, data: memoryview) -> int:
        position = 0
        order = "little" if self.link.order == "little" else "big"
        while len(data) - position >= 7:
            end = position + 7 + int.from_bytes(data[position + 3 : position + 7], order)
            if end > len(data):
                break
            self.taken += data[position:end]
            self.link.write(bytes(data[position:end]))
            position = end
        return position


class Caller(asyncio.DatagramProtocol):
    """A peer that keeps what it gets."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:  # noqa: ARG002
        self.got.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        pass

    def send(self, data: bytes) -> None:
        self.transport.sendto(data)

    async def receive(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.got.get()


class Endpoint(DatagramEndpoint):
    local_address = ("", 0)


@asynccontextmanager
async def endpoint(owner: Owner, **options: Any) -> AsyncIterator[Endpoint]:
    made = Endpoint(owner, **{"proof_bits": 0, **options})  # trusts addresses, unless a test says
    made.local_address = await made.listen("127.0.0.1", 0)
    try:
        yield made
    finally:
        async with asyncio.timeout(10):  # it does not wait for `seconds_max` without a reason
            await made.close(seconds_max=60)
        await until(lambda: not owner.links)


@asynccontextmanager
async def caller(to: Endpoint) -> AsyncIterator[Caller]:
    made = Caller()
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: made, remote_addr=to.local_address)
    try:
        yield made
    finally:
        made.transport.close()


# --- Cutting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "sign"), [("little", "<"), ("big", ">")])
def test_frames_share_datagrams_up_to_1400_bytes(order: Any, sign: str) -> None:
    frames = [publish(7, bytes(size), order=sign) for size in (0, 1, 690, 680, 1392, 5, 1400, 3)]
    datagrams, too_large = split_frames(b"".join(frames), order=order)
    assert too_large == 0
    assert b"".join(datagrams) == b"".join(frames)
    # 8+9+698, 688; 1,400 on its own; 13; 1,408 on its own; 11
    assert [len(datagram) for datagram in datagrams] == [715, 688, 1400, 13, 1408, 11]


def test_a_frame_larger_than_any_datagram_is_left_out() -> None:
    fits, not_fits = publish(7, bytes(65_507 - 8)), publish(7, bytes(65_508 - 8))
    small = publish(7, b"x")
    datagrams, too_large = split_frames(small + not_fits + small + fits + not_fits, order="little")
    assert too_large == 2
    assert datagrams == [small, small, fits]


def test_a_small_run_is_one_datagram() -> None:
    assert split_frames(DISCONNECT, order="little") == ([DISCONNECT], 0)


# --- Sessions ---------------------------------------------------------------------------------


def test_two_addresses_have_a_session_each(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one, caller(made) as two:
            one.send(handshake_pub(1))
            two.send(handshake_pub(2, order=">"))
            assert await one.receive() == handshake_pub(1)
            assert await two.receive() == handshake_pub(2, order=">")
            one.send(publish(1, b"a") + publish(1, b"b"))
            assert await one.receive() == publish(1, b"a")
            assert await one.receive() == publish(1, b"b")
            assert len(made) == 2
            assert [link.order for link in owner.links] == ["little", "big"]
            assert two.got.empty()

    run(check())


def test_a_partial_frame_at_the_end_is_malformed_and_forgotten(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            whole = publish(7, b"whole")
            for cut in range(1, len(whole)):
                one.send(whole + whole[:cut])
                assert await one.receive() == whole
                assert await one.receive() == error(MALFORMED)
                one.send(whole)  # not the other half
                assert await one.receive() == whole
            assert len(made) == 1

    run(check())


def test_a_first_datagram_that_is_not_herald_begins_no_session(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            for data in (b"", b"\xfe", b"\xfe\xcb" + bytes(5), b"\xfa" + bytes(30)):
                one.send(data)
            one.send(handshake_pub())
            assert await one.receive() == handshake_pub()
            assert len(owner.handlers) == 1
            # An empty datagram may not be reported by every loop.
            assert set(owner.refusals) == {"not a herald frame"}

    run(check())


def test_a_session_ends_when_its_address_is_idle(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner, session_seconds_max=0.3) as made, caller(made) as busy:
            async with caller(made) as idle:
                idle.send(publish(7, b"once"))
                assert await idle.receive() == publish(7, b"once")
                first = owner.handlers[0]
                while not first.lost_for:
                    busy.send(publish(7, b"often"))
                    assert await busy.receive() == publish(7, b"often")
                    await asyncio.sleep(0.02)
                assert await idle.receive() == DISCONNECT
                assert len(made) == 1
                assert owner.handlers[1].lost_for == []
            await until(lambda: not made)
            assert await busy.receive() == DISCONNECT

    run(check())


def test_at_the_limit_further_addresses_are_not_heard(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with (
            endpoint(owner, sessions_max=1) as made,
            caller(made) as one,
            caller(made) as two,
        ):
            one.send(DISCONNECT)
            assert await one.receive() == DISCONNECT
            two.send(DISCONNECT)
            await until(lambda: owner.refusals)
            assert owner.refusals == ["too many sessions"]
            assert two.got.empty()
            owner.links[0].close()
            await until(lambda: not made)
            two.send(frame(0x20))
            assert await two.receive() == frame(0x20)

    run(check())


def test_sessions_end_also_after_a_time_without_any(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner, session_seconds_max=0.05) as made:
            for count in (1, 2, 3):
                async with caller(made) as one:
                    one.send(DISCONNECT)
                    await until(lambda: made)
                    await until(lambda: not made and not owner.links)
                    assert len(owner.handlers) == count

    run(check())


def test_one_address_cannot_take_all_sessions(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with (
            endpoint(owner, sessions_per_address_max=2) as made,
            caller(made) as one,
            caller(made) as two,
            caller(made) as three,
        ):
            for each in (one, two, three):
                each.send(frame(0x20))
            await until(lambda: owner.refusals)
            assert owner.refusals == ["too many sessions of one address"]
            assert len(made) == 2
            for link in list(owner.links):  # the count is given back
                link.close()
            await until(lambda: not made)
            assert not made._sessions_by_host, "nothing is kept of an address without a session"
            three.send(frame(0x20))
            assert await three.receive() == frame(0x20)

    run(check())


def test_a_session_that_ends_gives_its_address_one_place(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with (
            endpoint(owner, sessions_per_address_max=2) as made,
            caller(made) as one,
            caller(made) as two,
            caller(made) as three,
            caller(made) as four,
        ):
            for each in (one, two):
                each.send(PING)
                assert await each.receive() == PING
            assert {link.host for link in owner.links} == {"127.0.0.1"}
            assert {link.measure() for link in owner.links} == {0}
            owner.links[0].close()
            await until(lambda: len(made) == 1)
            three.send(PING)
            assert await three.receive() == PING
            four.send(PING)
            await until(lambda: owner.refusals)
            assert len(made) == 2

    run(check())


def test_a_silent_session_without_proof_gives_way_to_a_new_one(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        options = {"sessions_max": 2, "unproven_seconds": 0.05, "proof_bits": 20}
        async with (
            endpoint(owner, **options) as made,
            caller(made) as one,
            caller(made) as two,
            caller(made) as three,
        ):
            one.send(frame(0x20))
            two.send(frame(0x20))
            await until(lambda: len(made) == 2)
            three.send(frame(0x20))  # too early: both others were active just now
            await until(lambda: owner.refusals == ["too many sessions"])
            await asyncio.sleep(0.1)
            two.send(frame(0x20))
            assert await two.receive() == frame(0x20)
            three.send(frame(0x20))
            assert await three.receive() == frame(0x20)
            assert [bool(each.lost_for) for each in owner.handlers] == [True, False, False]

    run(check())


def test_a_session_that_the_handler_closes_is_gone_at_once(run: Run) -> None:
    class Closing(Frames):
        def received(self, data: memoryview) -> int:
            super().received(data)
            self.link.close()
            self.link.write(b"never")
            return len(data)

    async def check() -> None:
        owner = Owner(Closing)
        async with endpoint(owner) as made, caller(made) as one:
            for count in range(1, 4):
                one.send(frame(0x20))
                assert await one.receive() == frame(0x20)
                await until(lambda: not owner.links)
                assert [len(handler.lost_for) for handler in owner.handlers] == [1] * count
            assert one.got.empty()  # no DISCONNECT: the peer's own datagram caused the close
            assert not made

    run(check())


def test_a_handler_that_breaks_takes_one_session_with_it(run: Run) -> None:
    async def check() -> None:
        owner = Owner(one_broken(Frames))
        async with endpoint(owner) as made, caller(made) as bad, caller(made) as good:
            bad.send(frame(0x20))
            await until(lambda: owner.failures)
            good.send(frame(0x20))
            assert await good.receive() == frame(0x20)
            assert len(made) == 1
            assert owner.handlers[0].lost_for == ["closed"]

    run(check())


def test_while_paused_datagrams_wait_and_what_is_too_much_is_dropped(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(frame(0x20))
            await one.receive()
            link = owner.links[0]
            link.pause()
            link.pause()
            large = publish(7, bytes(30_000))
            for _ in range(4):  # of which 64 KiB hold two
                one.send(large)
            await until(lambda: len(owner.refusals) == 2)
            assert owner.refusals == ["session is paused"] * 2
            link.resume()
            assert one.got.empty()
            link.resume()
            assert [await one.receive() for _ in range(2)] == [large] * 2
            one.send(frame(0x20))
            assert await one.receive() == frame(0x20)

    run(check())


def test_a_datagram_that_a_pause_cut_short_goes_on_where_it_was(run: Run) -> None:
    class Pausing(Frames):
        def received(self, data: memoryview) -> int:
            self.link.pause()
            return super().received(data[:8])

    async def check() -> None:
        owner = Owner(Pausing)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(b"".join(publish(channel, b"") for channel in range(5)))
            for channel in range(5):
                assert await one.receive() == publish(channel, b"")
                await asyncio.sleep(0)
                assert one.got.empty()
                owner.links[0].resume()

    run(check())


def test_a_handshake_that_comes_again_gets_the_same_answer_and_nothing_else(run: Run) -> None:
    class Acknowledging(Echo):
        def received(self, data: memoryview) -> int:
            self.taken += data
            if data[2] in {1, 2}:
                self.link.write(frame(0x03, b"\0" + bytes([len(self.taken)] * 8)))
            return len(data)

    async def check() -> None:
        owner = Owner(Acknowledging)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(handshake_sub(b"\x01\x02"))
            answer = await one.receive()
            one.send(handshake_sub(b"\x01\x02"))
            assert await one.receive() == answer
            one.send(handshake_sub(b"\x01\x02") + publish(1, b"x"))
            assert await one.receive() == answer
            one.send(handshake_pub(9))  # another role is another handshake
            assert await one.receive() != answer
            one.send(handshake_sub(b"\x01\x02"))
            assert await one.receive() == answer
            taken = handshake_sub(b"\x01\x02") + publish(1, b"x") + handshake_pub(9)
            assert owner.handlers[0].taken == taken
            assert len(owner.handlers) == 1

    run(check())


def test_another_handshake_of_the_same_role_is_a_client_that_started_again(run: Run) -> None:
    acknowledgment = frame(0x03, bytes(9))

    class Accepting(Quiet):
        def received(self, data: memoryview) -> int:
            if data[2] == 2:
                self.link.write(acknowledgment)
            return super().received(data)

    async def check() -> None:
        owner = Owner(Accepting)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(handshake_sub(b"\x01", b"first"))
            assert await one.receive() == acknowledgment
            one.send(publish(1, b"x"))
            one.send(handshake_sub(b"\x01", b"second"))
            assert await one.receive() == acknowledgment
            first, second = owner.handlers
            assert first.lost_for == ["replaced"]
            assert first.taken.endswith(publish(1, b"x"))
            assert second.taken == handshake_sub(b"\x01", b"second")
            assert len(made) == 1

    run(check())


def test_a_refused_handshake_is_not_answered_from_memory(run: Run) -> None:
    class Refusing(Echo):
        def received(self, data: memoryview) -> int:
            self.taken += data
            self.link.write(frame(0x03, b"\x08" + bytes(8)))
            return len(data)

    async def check() -> None:
        owner = Owner(Refusing)
        async with endpoint(owner) as made, caller(made) as one:
            for count in (1, 2):
                one.send(handshake_pub())
                await one.receive()
                assert owner.handlers[0].taken == handshake_pub() * count

    run(check())


def test_what_fits_no_datagram_is_counted(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(frame(0x20))
            await one.receive()
            owner.links[0].write(publish(7, bytes(70_000)) + frame(0x21))
            assert await one.receive() == frame(0x21)
            assert owner.unsent == (0, 1)

    run(check())


def test_a_full_out_buffer_drops_and_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transport.udp.UDP_OUT_BUFFER_BYTES_MAX", -1)

    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(frame(0x20))
            await until(lambda: owner.unsent == (1, 0))
            owner.links[0].write(publish(7, bytes(100)) * 30)
            assert owner.unsent == (31, 0)

    run(check())


@pytest.mark.parametrize(("buffered", "dropped"), [(99, 0), (100, 0), (101, 1)])
def test_a_datagram_is_sent_up_to_a_full_out_buffer(
    run: Run, monkeypatch: pytest.MonkeyPatch, buffered: int, dropped: int
) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one:
            one.send(PING)
            assert await one.receive() == PING
            monkeypatch.setattr("penstock.transport.udp.UDP_OUT_BUFFER_BYTES_MAX", 100)
            monkeypatch.setattr(Endpoint, "buffered", buffered)
            owner.links[0].write(PONG)
            assert owner.unsent == (dropped, 0)
            if not dropped:
                assert await one.receive() == PONG

    run(check())


def test_an_address_that_is_gone_does_no_harm(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as good:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
                gone.sendto(frame(0x20), made.local_address)
                await until(lambda: made)
            for _ in range(3):
                owner.links[0].write(frame(0x21))
            good.send(frame(0x20))
            assert await good.receive() == frame(0x20)

    run(check())


def test_a_stop_tells_every_session(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Frames)
        async with endpoint(owner) as made, caller(made) as one, caller(made) as late:
            one.send(handshake_pub(order=">"))
            await one.receive()
            made.stop_accepting()
            late.send(handshake_pub())
            await until(lambda: owner.refusals)
            one.send(frame(0x20, order=">"))  # open sessions continue
            assert await one.receive() == frame(0x20, order=">")
            await made.close(seconds_max=1)
            assert await one.receive() == frame(0x04, order=">")
            await until(lambda: not owner.links)
            assert late.got.empty()

    run(check())


class Quiet(Frames):
    """Takes everything, and answers nothing."""

    def received(self, data: memoryview) -> int:
        self.taken += data
        return len(data)


async def prove(peer: Caller) -> None:
    """Answer PINGs until the address is proven: one round is enough for one bit."""
    peer.send(publish(7, bytes(50)))
    peer.send(PONG * ((await peer.receive()).count(PING)))


def test_requests_that_wait_for_the_proof_are_limited_and_done_in_order(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.transport.udp.UDP_UNPROVEN_REQUESTS_MAX", 2)

    async def check() -> None:
        owner = Owner(Quiet)
        async with endpoint(owner, proof_bits=1) as made, caller(made) as one:
            one.send(frame(0x04))
            await until(lambda: owner.links)
            done: list[int] = []
            for number in range(3):
                owner.links[0].when_proven(lambda number=number: done.append(number))
            assert owner.refusals == ["address not proven"]
            await prove(one)
            await until(lambda: done)
            assert done == [0, 1]
            owner.links[0].when_proven(lambda: done.append(3))
            assert done == [0, 1, 3], "a proven address does not wait"

    run(check())


def test_a_request_that_breaks_ends_its_session(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Quiet)
        async with endpoint(owner, proof_bits=1) as made, caller(made) as one:
            one.send(frame(0x04))
            await until(lambda: owner.links)
            done: list[int] = []
            owner.links[0].when_proven(lambda: int("x"))
            owner.links[0].when_proven(lambda: done.append(1))
            await prove(one)
            await until(lambda: owner.failures)
            await until(lambda: not owner.links)
            assert done == []

    run(check())


def test_answers_that_an_unproven_address_may_not_have_are_dropped_and_counted(run: Run) -> None:
    async def check() -> None:
        owner = Owner(Quiet)
        async with endpoint(owner, proof_bits=20) as made, caller(made) as one:
            one.send(frame(0x04))
            await until(lambda: owner.links)
            owner.links[0].write(publish(7, bytes(100)) * 20)
            assert owner.unsent == (20, 0)
            assert one.got.empty()

    run(check())
