"""Whatever the encoder writes the decoders read back; whatever else comes is a WireError."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import fleximq, messagepack
from penstock.wire.decoder import Rejected
from penstock.wire.fleximq import (
    ApiKeyAuth,
    BasicAuth,
    Header,
    KeepAlive,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    TokenAuth,
)
from tests.support.streams import decode_all
from tests.unit.wire.fleximq.frames import raw_frame

TEXTS = st.text(max_size=20)
U32S = st.integers(0, 2**32 - 1)
U64S = st.integers(0, 2**64 - 1)
STATUSES = st.none() | st.integers(0, 65_535)
CLIENT_IDS = st.integers(1, 2**32 - 1)
ENTRIES = st.builds(Routing, U32S, TEXTS)
ONE_ENTRY = st.tuples(ENTRIES)
MANY_ENTRIES = st.lists(ENTRIES, min_size=1, max_size=5).map(tuple)
IDS = st.text(min_size=1, max_size=30)
REQUESTS = st.builds(ReqRep, st.just(ReqRepType.REQUEST), IDS)
CORRELATIONS = st.builds(ReqRep, st.just(ReqRepType.CORRELATION), IDS)
AUTHS = (
    st.builds(TokenAuth, TEXTS) | st.builds(BasicAuth, TEXTS, TEXTS) | st.builds(ApiKeyAuth, TEXTS)
)
HEADERS = {
    MessageType.JOIN: st.builds(Header, reqrep=st.none() | REQUESTS, auth=st.none() | AUTHS),
    MessageType.REQ: st.builds(Header, routing=ONE_ENTRY, reqrep=REQUESTS, status=STATUSES),
    MessageType.REP: st.builds(Header, routing=ONE_ENTRY, reqrep=CORRELATIONS, status=STATUSES),
    MessageType.NOTIF: st.builds(Header, routing=MANY_ENTRIES, status=STATUSES),
    MessageType.BCAST: st.builds(Header, status=STATUSES),
    MessageType.PUB: st.builds(
        Header, routing=st.none() | MANY_ENTRIES, topic=TEXTS, status=STATUSES
    ),
    MessageType.SUB: st.builds(Header, topic=TEXTS),
    MessageType.UNSUB: st.builds(Header, topic=TEXTS),
    MessageType.PING: st.builds(
        Header, keepalive=st.builds(KeepAlive, U64S, interval=st.none() | U32S)
    ),
    MessageType.PONG: st.builds(Header, keepalive=st.builds(KeepAlive, U64S)),
}
PAYLOADS = st.just(b"") | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS
    | st.binary(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=10,
).map(messagepack.encode)  # fmt: skip


def messages_of(message_type: MessageType) -> st.SearchStrategy[Message]:
    client_ids = st.just(0) if message_type is MessageType.JOIN else CLIENT_IDS
    return st.builds(Message, st.just(message_type), client_ids, HEADERS[message_type], PAYLOADS)


MESSAGES = st.sampled_from(MessageType).flatmap(messages_of)


@given(st.lists(MESSAGES, max_size=4), st.integers(0, 400))
def test_the_broker_reads_what_was_encoded(messages: list[Message], cut: int) -> None:
    stream = b"".join(map(fleximq.encode, messages))
    assert decode_all(fleximq.BrokerDecoder(), [stream[:cut], stream[cut:]]) == messages


@given(st.lists(MESSAGES, max_size=4), st.integers(0, 400))
def test_the_client_reads_what_was_encoded(messages: list[Message], cut: int) -> None:
    messages = [message for message in messages if message.type is not MessageType.JOIN]
    stream = b"".join(map(fleximq.encode, messages))
    assert decode_all(fleximq.ClientDecoder(), [stream[:cut], stream[cut:]]) == messages


@given(MESSAGES)
def test_a_header_alone_comes_back(message: Message) -> None:
    header = fleximq.encode_header(message.header)
    assert fleximq.parse_header(header, message.type) == message.header


@given(st.integers(0, 11), st.binary(max_size=60), st.binary(max_size=20))
def test_any_header_and_payload_are_taken_or_rejected(
    message_type: int, header: bytes, payload: bytes
) -> None:
    for make in (fleximq.BrokerDecoder, fleximq.ClientDecoder):
        decoder = make()
        decoder.feed(raw_frame(message_type, header, payload=payload))
        [item] = decoder
        assert isinstance(item, Message | Rejected)


@given(MESSAGES, st.data())
def test_one_changed_byte_is_never_a_surprise(message: Message, data: st.DataObject) -> None:
    stream = bytearray(fleximq.encode(message))
    stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    for make in (fleximq.BrokerDecoder, fleximq.ClientDecoder):
        decoder = make()
        decoder.feed(stream)
        try:
            items = list(decoder)
        except WireError:
            continue
        assert all(isinstance(item, Message | Rejected) for item in items)
