"""The short way through a header finds what the long way finds, or leaves it to the long way."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import headers
from penstock.wire.fleximq.canonical import parse_canonical

TEXT = st.sampled_from(["", "a", "é", "request", "correlation", "/path"])
NUMBER = st.sampled_from([0, 1, 200, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -1])
ODD = st.sampled_from([None, True, 1.5, b"x", [], {}, "text"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "routing": st.lists(
            st.fixed_dictionaries(
                {}, optional={"client_id": NUMBER | ODD, "path": TEXT | ODD, "x": ODD}
            ),
            max_size=3,
        )
        | ODD,
        "reqrep": st.fixed_dictionaries({}, optional={"type": TEXT | ODD, "id": TEXT | ODD}) | ODD,
        "topic": TEXT | ODD,
        "status": NUMBER | ODD,
        "auth": st.just({"type": "token", "token": "t"}) | ODD,
        "keepalive": st.fixed_dictionaries(
            {}, optional={"timestamp": NUMBER | ODD, "interval": NUMBER | ODD}
        )
        | ODD,
        "unknown": ODD,
    },
)


def outcome(data: bytes, kind: fleximq.MessageType, *, short: bool) -> object:
    try:
        if short:
            return headers.parse_header(data, kind)
        return headers._parse_at_length(
            data, kind, strict=False, join_reply=False, limits=headers.HEADER_LIMITS
        )
    except WireError as error:
        return type(error), error.args


@given(FIELDS, st.data())
def test_both_ways_agree(fields: dict[str, object], data: st.DataObject) -> None:
    encoded = messagepack.encode(fields)
    flipped = bytearray(encoded)
    flipped[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for header in (encoded, bytes(flipped)):
        for kind in fleximq.MessageType:
            assert outcome(header, kind, short=True) == outcome(header, kind, short=False)


def test_what_we_write_takes_the_short_way() -> None:
    for header in (
        fleximq.Header(topic="a", status=200),
        fleximq.Header(
            routing=(fleximq.Routing(1, "/x"),),
            reqrep=fleximq.ReqRep(fleximq.ReqRepType.REQUEST, "id"),
        ),
        fleximq.Header(keepalive=fleximq.KeepAlive(2**64 - 1, 30)),
    ):
        assert parse_canonical(fleximq.encode_header(header), routing_entries_max=1024) == header


def test_oddities_take_the_long_way() -> None:
    for odd in (
        b"",
        b"\x82\xa5topic\xa1a\xa5topic\xa1b",  # a field twice
        b"\x81\xa5topic\xd9\x01a",  # not the shortest form
        b"\x82\xa6status\xcc\xc8\xa5topic\xa1a",  # another order
        b"\x82\xa5topic\xa1a\xa1x\xc0",  # an unknown field
        b"\x81\xa5topic\xa1\xff",  # not UTF-8
    ):
        assert parse_canonical(odd, routing_entries_max=1024) is None
