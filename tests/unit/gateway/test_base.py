"""The base of all gateways: what waits for memory, for hooks or for a proof goes on."""

from collections.abc import Callable

import pytest

from penstock.core.access import Principal
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind, Hook
from penstock.core.sessions import Session
from penstock.gateway import base
from penstock.gateway.detector import handler_for
from penstock.gateway.herald import HeraldGateway
from penstock.gateway.options import GatewayOptions
from penstock.limits import LARGE_READ_BYTES
from penstock.memory import MemoryBudget, Purpose
from penstock.middleware import HookStrategy
from penstock.protocols.herald import HERALD
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.herald_bytes import frame, handshake_pub, handshake_sub, publish
from tests.support.kept_log import KeptLog

MIB = 1 << 20
PING, PONG = frame(0x20), frame(0x21)


def test_a_connection_beyond_its_share_goes_on_with_the_frames_it_has_sent() -> None:
    """Once broken: frames behind the first waited until the client sent more."""
    broker = Broker(log=MemoryLog(), clock=FakeClock(), memory=MemoryBudget(MIB))
    broker.topics.bind_channel(7, "channel/7")
    link = RecordingLink()
    link.account = broker.memory.open("address")
    options = GatewayOptions(protocol=HERALD, order="little")
    link.handler = handler_for(broker, link, options)
    link.handler.received(memoryview(handshake_sub(b"\x07")))
    link.read()
    assert not link.account.force(Purpose.INPUT, 2 * MIB)
    waiting = 3 * PING
    for _ in range(3):
        taken = link.handler.received(memoryview(waiting))
        waiting = waiting[taken:]
        assert link.paused == bool(waiting), "nothing offers the link's bytes again"
        broker.timers.run_due()
        assert not link.paused
    assert not waiting
    assert link.read() == 3 * PONG


class UnprovenRecordingLink(RecordingLink):
    """A link whose address is not proven yet."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[Callable[[], None]] = []

    def when_proven(self, action: Callable[[], None]) -> None:
        self.actions.append(action)


def test_channels_that_wait_for_a_hook_are_kept_while_others_are_proven() -> None:
    """Once broken: a later SUBSCRIBE replaced the channels of the handshake that waited."""
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    for channel in range(1, 5):
        broker.topics.bind_channel(channel, f"channel/{channel}")
    watching = broker.open(
        Encoding(HERALD, "little"), RecordingLink(), name="m", principal=Principal("m")
    )
    middleware = FakeMiddleware(watching)
    broker.hooks.register(
        Hook("h", middleware, kind=EventKind.SUBSCRIBE, strategy=HookStrategy.WAIT_OR_REFUSE)
    )
    link = UnprovenRecordingLink()
    link.handler = handler_for(broker, link, GatewayOptions(protocol=HERALD, order="little"))
    data = handshake_sub(b"\x01\x02") + frame(0x11, b"\x03") + frame(0x11, b"\x04")
    data += frame(0x12, b"\x04")
    assert link.handler.received(memoryview(data)) == len(data)
    for action in link.actions:
        action()
    while middleware.calls:
        broker.hooks.calls.answered(middleware.calls.pop(), None)
    assert isinstance(link.handler, HeraldGateway)
    assert link.handler.session is not None
    assert list(link.handler.session.subscriptions) == [f"channel/{n}" for n in (1, 2, 3)]
    assert not link.paused


class FakeMiddleware:
    """Keeps the identifiers of calls."""

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.calls: list[int] = []

    def call(self, identifier: int, _hook: str, _event: Event) -> bool:
        self.calls.append(identifier)
        return True

    def given_up(self, identifier: int) -> None:
        pass


def test_a_gateway_yields_to_the_event_loop_after_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    broker.topics.bind_channel(7, "channel/7")
    link = RecordingLink()
    link.handler = handler_for(broker, link, GatewayOptions(protocol=HERALD, order="little"))
    link.handler.received(memoryview(handshake_sub(b"\x07")))
    link.read()
    waiting = 3 * PING
    assert link.handler.received(memoryview(waiting)) == len(waiting)
    assert link.read() == 3 * PONG
    monkeypatch.setattr(base, "TURN_SECONDS_MAX", -1.0)
    for _ in range(3):
        broker.turn.end()
        taken = link.handler.received(memoryview(waiting))
        assert (taken, link.paused) == (len(PING), True)
        waiting = waiting[taken:]
        broker.timers.run_due()
        assert not link.paused
    assert link.read() == 3 * PONG


def joined(broker: Broker) -> RecordingLink:
    """A herald client, with its handshake done."""
    broker.topics.bind_channel(7, "channel/7")
    link = RecordingLink()
    link.handler = handler_for(broker, link, GatewayOptions(protocol=HERALD, order="little"))
    link.handler.received(memoryview(handshake_sub(b"\x07")))
    link.read()
    return link


def test_what_is_put_off_to_a_later_turn_is_not_processed_in_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    link = joined(broker)
    broker.turn.end()
    monkeypatch.setattr(broker.turn, "defers", lambda *_, **__: True)
    assert link.handler.received(memoryview(PING)) == 0
    assert (link.paused, link.read()) == (True, b"")
    assert broker.turn.deferred_bytes == len(PING)
    monkeypatch.undo()
    broker.timers.run_due()
    assert not link.paused
    assert link.handler.received(memoryview(PING)) == len(PING)
    assert link.read() == PONG
    assert broker.turn.deferred_bytes == 0


@pytest.mark.parametrize("more", [0, 1])
def test_a_large_read_waits_while_the_log_is_behind(more: int) -> None:
    log = KeptLog()
    broker = Broker(log=log, clock=FakeClock())
    link = joined(broker)
    log.crowded = True
    pings = PING * (LARGE_READ_BYTES // len(PING) + 1)
    taken = link.handler.received(memoryview(pings)[: LARGE_READ_BYTES + more])
    assert (taken == 0, link.paused) == (bool(more), bool(more))


@pytest.mark.parametrize("forbidden", [False, True])
def test_rules_that_change_while_hooks_judge_a_message_hold(*, forbidden: bool) -> None:
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    broker.topics.bind_channel(7, "channel/7")
    watching = broker.open(
        Encoding(HERALD, "little"), RecordingLink(), name="m", principal=Principal("m")
    )
    middleware = FakeMiddleware(watching)
    broker.hooks.register(
        Hook("h", middleware, kind=EventKind.PUSH, strategy=HookStrategy.WAIT_OR_REFUSE)
    )
    link = RecordingLink()
    link.handler = handler_for(broker, link, GatewayOptions(protocol=HERALD, order="little"))
    link.handler.received(memoryview(handshake_pub(7)))
    assert isinstance(link.handler, HeraldGateway)
    assert link.handler.session is not None
    principal = link.handler.session.principal = Principal("p")
    link.handler.received(memoryview(publish(7, b"x")))
    if forbidden:
        principal.set_rules([], default=False)
    (call,) = middleware.calls
    broker.hooks.calls.answered(call, None)
    assert broker.counters.messages_refused[HERALD] == forbidden
    assert broker.log.next_offset == (not forbidden)
