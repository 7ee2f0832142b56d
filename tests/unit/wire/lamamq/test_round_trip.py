"""Whatever is encoded decodes to itself, in both byte orders; whatever is fed yields WireError."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.model import ByteOrder
from penstock.wire import lamamq
from penstock.wire.decoder import Decoder
from tests.support.streams import decode_all, plain
from tests.unit.wire.lamamq.roles import ORDERS, open_broker, open_client

bytes_ = st.integers(0, 0xFF)
u32s = st.integers(0, 0xFFFF_FFFF)
texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
blobs = st.binary(max_size=40)
headers = st.lists(st.tuples(texts, blobs), max_size=4).map(tuple)
orders = st.sampled_from(ORDERS)

messages = st.one_of(
    st.builds(
        lamamq.Message, u32s, texts, headers, st.just(lamamq.PayloadType.EMPTY), st.just(b"")
    ),
    st.builds(
        lamamq.Message,
        u32s,
        texts,
        headers,
        st.sampled_from([lamamq.PayloadType.STRING, lamamq.PayloadType.BUFFER]),
        blobs,
    ),
)
conditions = st.one_of(
    st.builds(lamamq.TopicIs, texts),
    st.builds(lamamq.HeaderIs, texts, blobs),
    st.builds(lamamq.HasHeader, texts),
)
strategies = st.sampled_from(lamamq.HookStrategy)
requests = st.one_of(
    st.builds(lamamq.Push, u32s, messages),
    st.builds(lamamq.Forward, u32s, messages),
    st.builds(lamamq.Subscribe, u32s, texts),
    st.builds(lamamq.Unsubscribe, u32s, texts),
    st.builds(
        lamamq.Register, u32s, names, u32s, u32s, strategies, st.sampled_from(lamamq.HookType)
    ),
    st.builds(
        lamamq.Register,
        u32s,
        names,
        u32s,
        u32s,
        strategies,
        st.just(lamamq.HookType.MESSAGE_PUSHED),
        st.lists(conditions, max_size=4).map(tuple),
    ),
    st.builds(lamamq.Unregister, u32s, names),
)
answers = st.one_of(
    st.builds(lamamq.Answer, u32s),
    st.builds(lamamq.Answer, u32s, st.sampled_from(lamamq.ErrorCode), texts),
)
broker_ids = st.integers(lamamq.BROKER_ID_BIT, 0xFFFF_FFFF)
forwards = st.builds(lamamq.Forward, broker_ids, messages)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(bounds)]


cut_lists = st.lists(st.integers(0, 10_000), max_size=5)


@given(st.lists(requests, max_size=4), orders, cut_lists)
def test_requests_come_back(packets: list[Any], order: ByteOrder, cuts: list[int]) -> None:
    stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
    assert decode_all(open_broker(order=order), pieces(stream, cuts)) == packets


@given(answers, orders, cut_lists)
def test_answers_come_back_in_both_roles(
    answer: lamamq.Answer, order: ByteOrder, cuts: list[int]
) -> None:
    chunks = pieces(lamamq.encode(answer, order=order), cuts)
    for opened in (open_broker, open_client):
        assert decode_all(opened(answer.message_id, order=order), chunks) == [answer]


@given(st.lists(forwards, max_size=4), orders, cut_lists)
def test_forwards_come_back(packets: list[Any], order: ByteOrder, cuts: list[int]) -> None:
    stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
    assert decode_all(open_client(order=order), pieces(stream, cuts)) == packets


authentications = st.builds(lamamq.Authentication, names, blobs)
choices = st.builds(lamamq.VersionChoice, bytes_, bytes_)


@given(authentications, choices, orders, cut_lists)
def test_handshakes_come_back(
    authentication: Any, choice: Any, order: ByteOrder, cuts: list[int]
) -> None:
    packets = [authentication, choice]
    stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
    decoder = lamamq.BrokerDecoder(order=order, key_required=True)
    assert decode_all(decoder, pieces(stream, cuts)) == packets


versions = st.tuples(bytes_, bytes_)


@given(versions.filter(any), versions)
def test_offers_come_back(maximum: tuple[int, int], minimum: tuple[int, int]) -> None:
    offer = lamamq.VersionOffer(maximum, minimum)
    assert decode_all(lamamq.ClientDecoder(), [lamamq.encode(offer)]) == [offer]


ids = st.sampled_from([b"\x00\x00\x00\x00", b"\x00\x00\x00\x07", b"\x80\x00\x00\x01"])
kinds = st.sampled_from([0, 1, 2, 32, 33, 64, 65]).map(lambda kind: bytes((kind,)))
small = st.integers(0, 3).map(lambda size: size.to_bytes(4, "big"))
garbage = st.lists(st.one_of(ids, kinds, small, st.binary(max_size=8)), max_size=12).map(b"".join)


def outcome(decoder: Decoder[Any], chunks: list[bytes]) -> list[Any]:
    """Every item, those before a loss of framing in one chunk too; the loss is the last."""
    items: list[Any] = []
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            for item in decoder:
                items.append(plain(item))  # noqa: PERF401  # keep what came before an error
    except WireError as error:
        items.append(("failed", type(error), error.args))
    return items


@given(garbage, cut_lists)
def test_garbage_yields_wire_errors_only_and_does_not_depend_on_its_cut(
    stream: bytes, cuts: list[int]
) -> None:
    for make in (
        lambda: lamamq.BrokerDecoder(key_required=True),
        lamamq.ClientDecoder,
        lambda: open_broker(7),
        lambda: open_client(7),
    ):
        assert outcome(make(), pieces(stream, cuts)) == outcome(make(), [stream])
