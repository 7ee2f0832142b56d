"""What middleware refuses, and a client that waits for it; the middleware itself is a stand-in."""

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.encoding import frame
from penstock.core.hooks import Event, EventKind, Hook
from penstock.core.sessions import Session
from penstock.gateway.options import GatewayOptions
from penstock.middleware import HookStrategy
from tests.conformance.fleximq.client import Client
from tests.support.live import LiveBroker


class Judge:
    """A middleware whose calls the test answers."""

    def __init__(self, live: LiveBroker, session: Session) -> None:
        self._live = live
        self.session = session
        self.calls: queue.Queue[tuple[int, Event]] = queue.Queue()

    def call(self, identifier: int, hook: str, event: Event) -> bool:
        assert hook == "judge"
        self.calls.put((identifier, event))
        return True

    def given_up(self, identifier: int) -> None:
        """Nobody waits any more."""

    def verdict(self, refusal: str | None) -> Event:
        """Answer the next call; return what it was about."""
        identifier, event = self.calls.get(timeout=5)
        self._live.call(lambda: self._live.server.broker.hooks.calls.answered(identifier, refusal))
        return event


@contextmanager
def judged(
    live: LiveBroker, kind: EventKind, *, timeout_ms: int = 5000, topic: str | None = None
) -> Iterator[Judge]:
    """A hook of one kind, of a client that has joined."""
    hooks = live.server.broker.hooks
    with Client(live.address) as client:
        session = live.server.broker.sessions.get(client.number)
        assert session is not None
        judge = Judge(live, session)
        hook = Hook(
            "judge",
            judge,
            kind=kind,
            strategy=HookStrategy.WAIT_OR_REFUSE,
            timeout_ms=timeout_ms,
            topics=frozenset({topic} if topic else ()),
        )
        live.call(lambda: hooks.register(hook))
        yield judge
        live.call(lambda: hooks.unregister(session, "judge"))


def test_a_join_that_middleware_refuses_is_605_and_closes(broker: LiveBroker) -> None:
    with judged(broker, EventKind.CONNECT) as judge, Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, fx.request("j")))
        judge.verdict("not today")
        reply = client.frame()
        assert (reply.client_id, reply.value) == (0, "not today")
        assert reply.header == fx.correlation("j") | fx.status(605)
        client.expect_close()


def test_a_join_that_middleware_lets_pass_is_answered_then(broker: LiveBroker) -> None:
    with judged(broker, EventKind.CONNECT) as judge, Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, fx.request("j")))
        judge.verdict(None)
        reply = client.frame()
        assert reply.header == fx.correlation("j") | fx.status(200)
        client.number = reply.client_id
        client.settle()


def test_a_subscription_that_middleware_refuses_is_603(broker: LiveBroker) -> None:
    with judged(broker, EventKind.SUBSCRIBE) as judge, Client(broker.address) as client:
        client.say(fx.SUB, fx.topic("hook/no"))
        client.say(fx.SUB, fx.topic("hook/yes"))
        assert judge.verdict("no").subject == "hook/no"
        assert client.expect_notice(603) == "no"
        judge.verdict(None)
        client.say(fx.PUB, fx.topic("hook/no"))
        client.expect(client.say(fx.PUB, fx.topic("hook/yes")))
        client.settle()


def publishes(client: Client, *fields: dict[str, object]) -> Callable[[bytes], bytes]:
    return lambda payload: client.say(fx.PUB, fx.topic("hook/t"), *fields, payload=payload)


def test_a_message_that_middleware_refuses_is_403_routed_or_not(broker: LiveBroker) -> None:
    with judged(broker, EventKind.PUSH, topic="hook/t") as judge, Client(broker.address) as client:
        client.subscribe("hook/t")
        for publish in (publishes(client), publishes(client, fx.routing((client.number, "")))):
            publish(fx.pack(b"raw"))
            assert judge.verdict("no").value == b"raw"
            assert client.expect_notice(403) == "no"
            sent = publish(fx.pack(b"more"))
            judge.verdict(None)
            assert client.frame() == fx.parse(sent)
        client.settle()


def test_a_message_that_middleware_does_not_judge_in_time_is_504(broker: LiveBroker) -> None:
    with (
        judged(broker, EventKind.PUSH, topic="hook/t", timeout_ms=50),
        Client(broker.address) as client,
    ):
        for publish in (publishes(client), publishes(client, fx.routing((client.number, "")))):
            publish(b"\x01")
            client.expect_notice(504)
        client.settle()


def test_a_client_that_waits_for_middleware_is_not_called_silent() -> None:
    options = GatewayOptions(
        frame_limits={"fleximq_keepalive_interval_ms": 100, "fleximq_keepalive_misses_max": 100}
    )
    with (
        LiveBroker(options=options) as live,
        Client(live.address) as client,
        judged(live, EventKind.SUBSCRIBE, timeout_ms=800),
    ):
        client.say(fx.SUB, fx.topic("hook/slow"))
        pings = 0  # from before the subscription came in
        while (found := client.frame()).type == fx.PING:
            pings += 1
        assert pings < 5
        assert found.header["status"] == 503
        assert client.frame().type == fx.PING  # looked after again
