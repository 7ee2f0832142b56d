"""What holds for every Rheos v1 packet and for any bytes at all."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import rheos1
from penstock.wire.decoder import Decoder, Rejected
from tests.support.streams import decode_all

ids = st.binary(min_size=16, max_size=16)
requests = st.builds(
    rheos1.Request,
    ids,
    st.sampled_from([rheos1.OpCode.CREATE, rheos1.OpCode.SUBSCRIBE, rheos1.OpCode.PUBLISH]),
    st.binary(max_size=300),
    st.binary(max_size=300),
)
answers = st.one_of(
    st.builds(rheos1.Acknowledgment, ids, st.sampled_from(rheos1.AckCode)),
    st.builds(rheos1.Response, ids, st.binary(max_size=300)),
)


def assert_round_trip(decoder: Decoder[Any], packets: list[Any], cuts: list[int]) -> None:
    stream = b"".join(rheos1.encode(packet) for packet in packets)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert decode_all(decoder, chunks) == packets
    assert decoder.unread == 0


@given(st.lists(requests, max_size=5), st.lists(st.integers(min_value=0), max_size=5))
def test_encoded_requests_come_back(packets: list[rheos1.Request], cuts: list[int]) -> None:
    assert_round_trip(rheos1.BrokerDecoder(), packets, cuts)


@given(st.lists(answers, max_size=5), st.lists(st.integers(min_value=0), max_size=5))
def test_encoded_answers_come_back(packets: list[rheos1.ClientPacket], cuts: list[int]) -> None:
    assert_round_trip(rheos1.ClientDecoder(), packets, cuts)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_an_encoded_topic_comes_back(name: bytes, payload: bytes) -> None:
    assert rheos1.decode_topic(rheos1.encode_topic(name, payload)) == (name, payload)


@given(
    st.sampled_from([rheos1.BrokerDecoder, rheos1.ClientDecoder]),
    st.sampled_from(
        [b"", b"\xfa", b"\xac", b"\x15", b"\xfa\x09\x00\x00\x00", b"\x15\x02\x00\x00\x00"]
    ),
    st.binary(max_size=100),
)
def test_any_bytes_give_packets_rejections_or_a_wire_error(
    make: type[Decoder[Any]], start: bytes, rest: bytes
) -> None:
    decoder = make()
    decoder.feed(start + rest)
    try:
        items = list(decoder)
    except WireError:
        with pytest.raises(WireError):
            list(decoder)
    else:
        packets = [item for item in items if not isinstance(item, Rejected)]
        consumed = start + rest if not decoder.unread else (start + rest)[: -decoder.unread]
        if len(packets) == len(items):
            assert b"".join(rheos1.encode(packet) for packet in packets) == consumed
