"""Middleware has a say in what Rheos clients do; their answers keep the order of the requests."""

import pytest

from penstock.conform.rheos.encoding import CREATE, FAILED, PUBLISH, SUBSCRIBE, SUCCESS, Rheos
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind, Hook
from penstock.core.sessions import Session
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.middleware import HookStrategy
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink


class Judge:
    """A middleware that is asked, and answers when a test says so."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.asked: list[tuple[int, Event]] = []

    def call(self, identifier: int, hook: str, event: Event) -> bool:  # noqa: ARG002
        self.asked.append((identifier, event))
        return True

    def given_up(self, identifier: int) -> None:
        pass


class Court:
    """A broker without sockets, one Rheos connection, and a middleware."""

    def __init__(self, rheos: Rheos) -> None:
        self.rheos = rheos
        self.broker = Broker(log=MemoryLog(), clock=FakeClock())
        session = self.broker.open(
            Encoding(LAMAMQ, "big"), RecordingLink(), name="judge", principal=ANYONE
        )
        self.judge = Judge(session)
        self.link = RecordingLink()
        self.link.handler = handler_for(self.broker, self.link, GatewayOptions())
        self._rest = b""

    def watch(self, kind: EventKind) -> None:
        self.broker.hooks.register(
            Hook(kind, self.judge, kind=kind, strategy=HookStrategy.WAIT_OR_REFUSE, timeout_ms=1000)
        )

    def send(self, *requests: tuple[int, bytes]) -> None:
        self._rest += b"".join(self.rheos.request(*one) for one in requests)
        self._feed()

    def answer(self, refusal: str | None) -> None:
        """Answer the oldest question; what waited at the client's link is read on."""
        identifier, _ = self.judge.asked.pop(0)
        self.broker.hooks.calls.answered(identifier, refusal)
        self._feed()

    def codes(self) -> list[int]:
        data, size = self.link.read(), self.rheos.ack_bytes
        at = 17 if self.rheos.version == 1 else 1
        return [data[start + at] for start in range(0, len(data), size)]

    def _feed(self) -> None:
        if not self.link.paused:
            self._rest = self._rest[self.link.handler.received(memoryview(self._rest)) :]


@pytest.fixture
def court(rheos: Rheos) -> Court:
    return Court(rheos)


def test_a_client_is_let_in_when_middleware_agrees_and_its_first_request_is_done_then(
    court: Court,
) -> None:
    court.watch(EventKind.CONNECT)
    court.send((CREATE, b"a"), (PUBLISH, b"a"), (PUBLISH, b"b"))
    assert court.codes() == []
    assert court.judge.asked[0][1].client == "00112233-4455-6677-8899-aabbccddeeff"
    court.answer(None)
    assert court.codes() == [SUCCESS, SUCCESS, FAILED]
    assert court.judge.asked == []


def test_a_client_that_middleware_does_not_want_gets_failed_and_the_end(court: Court) -> None:
    court.watch(EventKind.CONNECT)
    court.send((CREATE, b"a"), (CREATE, b"b"))
    court.answer("no")
    assert court.codes() == [FAILED]
    assert court.link.closed
    assert court.broker.topics.find("a") is None


@pytest.mark.parametrize(("refusal", "code"), [(None, SUCCESS), ("no", FAILED)])
def test_a_publish_waits_for_the_verdict_and_what_follows_waits_for_it(
    court: Court, refusal: str | None, code: int
) -> None:
    court.watch(EventKind.PUSH)
    court.send((CREATE, b"a"), (PUBLISH, b"a"), (CREATE, b"b"))
    assert court.codes() == [SUCCESS]
    assert [event.subject for _, event in court.judge.asked] == ["a"]
    court.answer(refusal)
    assert court.codes() == [code, SUCCESS]


def test_middleware_is_not_asked_about_a_topic_that_does_not_exist(court: Court) -> None:
    court.watch(EventKind.PUSH)
    court.watch(EventKind.SUBSCRIBE)
    court.send((PUBLISH, b"a"), (SUBSCRIBE, b"a"))
    assert court.codes() == [FAILED, FAILED]
    assert court.judge.asked == []


@pytest.mark.parametrize(("refusal", "code"), [(None, SUCCESS), ("no", FAILED)])
def test_a_subscription_waits_for_the_verdict(court: Court, refusal: str | None, code: int) -> None:
    court.watch(EventKind.SUBSCRIBE)
    court.send((CREATE, b"a"), (SUBSCRIBE, b"a"), (CREATE, b"a"))
    assert court.codes() == [SUCCESS]
    court.answer(refusal)
    assert court.codes() == [code, FAILED]
    assert len(court.broker.router.subscribers("a")) == (1 if refusal is None else 0)


def test_a_client_whose_answers_drain_does_not_overtake_the_verdict(court: Court) -> None:
    court.watch(EventKind.PUSH)
    court.send((CREATE, b"a"), (PUBLISH, b"a"), (CREATE, b"b"))
    court.link.handler.drained()
    assert court.link.paused
    assert court.codes() == [SUCCESS]
    court.answer(None)
    assert court.codes() == [SUCCESS, SUCCESS]
