"""What holds for every Rheos v2 packet and for any bytes at all."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import rheos2
from penstock.wire.decoder import Decoder
from tests.support.streams import decode_all
from tests.unit.wire.rheos2.checksum import sealed

ids = st.binary(min_size=16, max_size=16)
events = st.builds(
    rheos2.Event,
    ids,
    st.sampled_from([rheos2.OpCode.CREATE, rheos2.OpCode.SUBSCRIBE, rheos2.OpCode.PUBLISH]),
    st.binary(max_size=300),
    st.binary(max_size=300),
)
packets_to_client = st.one_of(
    events, st.builds(rheos2.Acknowledgment, st.sampled_from(rheos2.AckCode), ids)
)


def assert_round_trip(decoder: Decoder[Any], packets: list[Any], cuts: list[int]) -> None:
    stream = b"".join(rheos2.encode(packet) for packet in packets)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert decode_all(decoder, chunks) == packets
    assert decoder.unread == 0


@given(st.lists(events, max_size=5), st.lists(st.integers(min_value=0), max_size=5))
def test_encoded_events_come_back(packets: list[rheos2.Event], cuts: list[int]) -> None:
    assert_round_trip(rheos2.BrokerDecoder(), packets, cuts)


@given(st.lists(packets_to_client, max_size=5), st.lists(st.integers(min_value=0), max_size=5))
def test_encoded_packets_come_back_to_a_client(
    packets: list[rheos2.Packet], cuts: list[int]
) -> None:
    assert_round_trip(rheos2.ClientDecoder(), packets, cuts)


@given(events)
def test_encoded_events_end_in_their_checksum(event: rheos2.Event) -> None:
    frame = rheos2.encode(event)
    assert sealed(frame[:-4].hex()) == frame


@given(
    st.sampled_from([rheos2.BrokerDecoder, rheos2.ClientDecoder]),
    st.sampled_from(["", "FA", "AC", "FA09000000", "FA00000000"]),
    st.binary(max_size=100),
    st.sampled_from([sealed, bytes.fromhex]),
)
def test_any_bytes_give_packets_rejections_or_a_wire_error(
    make: type[Decoder[Any]], start: str, rest: bytes, finish: Callable[[str], bytes]
) -> None:
    decoder = make()
    decoder.feed(finish(start + rest.hex()))
    try:
        list(decoder)
    except WireError:
        with pytest.raises(WireError):
            list(decoder)
