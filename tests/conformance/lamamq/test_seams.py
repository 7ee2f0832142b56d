"""LamaMQ where kernel, decoder and receive buffer meet: a gateway fed by hand, cut by cut."""

import pytest

from penstock.conform.lamamq.encoding import CHOICE, OFFER, answer, authentication, push, subscribe
from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind
from penstock.gateway.lamamq import LamamqGateway
from penstock.gateway.lamamq_middleware import LamaMiddleware
from penstock.gateway.options import GatewayOptions
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink


class Fed:
    """A gateway on a link that keeps what is not taken, as a transport does."""

    def __init__(self) -> None:
        self.link = RecordingLink()
        self.broker = Broker(log=MemoryLog(), clock=FakeClock())
        self.gateway = LamamqGateway(self.broker, self.link, GatewayOptions(), order="big")
        self._rest = b""
        assert self.feed(authentication()) == OFFER
        assert self.feed(CHOICE) == b""

    def feed(self, data: bytes) -> bytes:
        """Hand on bytes behind what waits; return what is answered."""
        data = self._rest + data
        self._rest = data[self.gateway.received(memoryview(data)) :]
        return self.link.read()


def test_what_was_missing_of_a_push_says_nothing_about_the_message_behind_it() -> None:
    large = push(1, b"large", bytes(100_000))
    for cut in (5, 20, 60, len(large) - 1):
        fed = Fed()
        assert fed.feed(large[:cut]) == b""
        assert fed.feed(large[cut:]) == answer(1)
        assert fed.feed(subscribe(2, b"x")) == answer(2)


def test_answers_do_not_depend_on_where_the_stream_is_cut() -> None:
    stream = push(1, b"a", b"x") + subscribe(2, b"b/#") + push(3, b"a", b"y") + push(4, b"", b"z")
    whole = Fed().feed(stream)
    assert whole.startswith(answer(1) + answer(2) + answer(3))
    for cut in range(len(stream) + 1):
        fed = Fed()
        assert fed.feed(stream[:cut]) + fed.feed(stream[cut:]) == whole


def test_a_run_of_pushes_is_published_as_one_batch() -> None:
    fed = Fed()
    stream = b"".join(push(n, b"topic", b"%d" % n) for n in range(1000))
    assert fed.feed(stream) == b"".join(answer(n) for n in range(1000))
    assert len(fed.link.written) == 0
    fed.gateway.received(memoryview(stream))
    assert len(fed.link.written) == 1


def test_ids_of_calls_that_nobody_waits_for_are_bounded_and_the_oldest_go_first() -> None:
    fed = Fed()
    session, decoder = fed.gateway.session, fed.gateway.decoder
    assert session is not None
    middleware = LamaMiddleware(fed.broker, session, "big", decoder, calls_late_max=3)
    event = Event(EventKind.DISCONNECT, "c", "c", HERALD)
    assert middleware.call(100, "h", event)  # waited for, and so never forgotten
    for identifier in range(5):
        assert middleware.call(identifier, "h", event)
        middleware.given_up(identifier)
    assert decoder.awaited == {0x8000_0000 | identifier for identifier in (100, 2, 3, 4)}
    assert not middleware.answered(0x8000_0001, None)
    assert middleware.answered(0x8000_0002, None)
    assert not middleware.answered(0x8000_0002, None)


def test_a_middleware_that_does_not_read_is_not_called() -> None:
    fed = Fed()
    session = fed.gateway.session
    assert session is not None
    middleware = LamaMiddleware(fed.broker, session, "big", fed.gateway.decoder)
    fed.link.buffered = fed.broker.settings.out_buffer_bytes_max + 1
    event = Event(EventKind.DISCONNECT, "c", "c", HERALD)
    assert not middleware.call(1, "h", event)
    assert fed.link.read() == b""
    assert session.dropped == 1
    assert fed.broker.counters.messages_dropped[LAMAMQ] == 1


@pytest.mark.parametrize(
    ("value", "is_text", "kind"),
    [(b"", False, "EMPTY"), (b"", True, "STRING"), (b"x", True, "STRING"), (b"x", False, "BUFFER")],
)
def test_a_call_has_the_payload_type_of_its_message(
    value: bytes,
    is_text: bool,  # noqa: FBT001
    kind: str,
) -> None:
    fed = Fed()
    session = fed.gateway.session
    assert session is not None
    middleware = LamaMiddleware(fed.broker, session, "big", fed.gateway.decoder)
    event = Event(EventKind.PUSH, "t", "c", HERALD, value=value, value_is_text=is_text)
    message = middleware._message("h", event)
    assert (message.payload_type.name, message.payload) == (kind, value)
