"""What fleximq forbids, each with the status of section 5.1 that answers it."""

import struct

import pytest

from penstock.errors import FieldOutOfRange
from penstock.wire import fleximq
from penstock.wire.decoder import Rejected
from penstock.wire.fleximq import (
    BadAuth,
    BadClientId,
    BadHeader,
    BadPayload,
    FleximqError,
    InvalidRouting,
    Routing,
    UnknownType,
)
from penstock.wire.messagepack import Unencodable
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all
from tests.unit.wire.fleximq import frames
from tests.unit.wire.fleximq.frames import (
    AUTH,
    BCAST,
    CORRELATION,
    JOIN,
    KEEPALIVE,
    NOTIF,
    PING,
    PONG,
    PUB,
    REP,
    REQ,
    REQUEST,
    ROUTING,
    STATUS,
    SUB,
    TOPIC,
    decoded,
    frame,
    raw_frame,
)

PING_FRAME = frame(PING, KEEPALIVE)
PING_MESSAGE = fleximq.Message(
    fleximq.MessageType.PING, 1000, fleximq.Header(keepalive=fleximq.KeepAlive(5))
)

# Keys, and the start of an entry of routing up to what each case changes
ROUTING_KEY = "A7 726F7574696E67"
REQREP_KEY = "A6 726571726570"
TOPIC_KEY = "A5 746F706963"
STATUS_KEY = "A6 737461747573"
AUTH_KEY = "A4 61757468"
KEEPALIVE_KEY = "A9 6B656570616C697665"
CLIENT_ID = "A9 636C69656E745F6964"
PATH = "A4 70617468"
TYPE = "A4 74797065"
ID = "A2 6964"
TOKEN = "A5 746F6B656E"  # noqa: S105
USERNAME = "A8 757365726E616D65"
PASSWORD = "A8 70617373776F7264"  # noqa: S105
API_KEY = "A7 6170695F6B6579"
TIMESTAMP = "A9 74696D657374616D70"
INTERVAL = "A8 696E74657276616C"
BASIC = "A5 6261736963"
REQUEST_WORD = "A7 72657175657374"
ENTRY = f"82 {CLIENT_ID} CD03E8 {PATH} A1 2F"

REJECTED = [
    # The header as a whole
    ("header of an array", raw_frame(BCAST, b"\x90"), BadHeader),
    ("header of nil", raw_frame(BCAST, b"\xc0"), BadHeader),
    ("header of two maps", raw_frame(BCAST, b"\x80\x80"), BadHeader),
    ("header cut short", raw_frame(BCAST, b"\x81\xa1a"), BadHeader),
    ("header with 0xC1", raw_frame(BCAST, b"\x81\xa1a\xc1"), BadHeader),
    ("header with a str not UTF-8", raw_frame(BCAST, b"\x81\xa1a\xa1\xff"), BadHeader),
    ("header key not a str", raw_frame(BCAST, b"\x81\x01\x01"), BadHeader),
    ("header key a bin", frame(SUB, TOPIC, "C4 01 61 01"), BadHeader),
    ("header key a map", raw_frame(BCAST, b"\x81\x80\x01"), BadHeader),
    ("header too deep", raw_frame(BCAST, b"\x81\xa1a" + b"\x91" * 8 + b"\x00"), BadHeader),
    ("header of 8194 elements", raw_frame(BCAST, b"\xde\x10\x01" + b"\xa1a\x00" * 4097), BadHeader),
    ("header with a huge count", raw_frame(BCAST, b"\xdf\xff\xff\xff\xff"), BadHeader),
    ("routing twice", frame(NOTIF, ROUTING, ROUTING), BadHeader),
    ("topic twice", frame(SUB, TOPIC, TOPIC), BadHeader),
    ("status twice", frame(BCAST, STATUS, STATUS), BadHeader),
    ("auth twice", frame(JOIN, AUTH, AUTH), BadHeader),
    ("keepalive twice", frame(PING, KEEPALIVE, KEEPALIVE), BadHeader),
    ("reqrep twice", frame(JOIN, REQUEST, REQUEST), BadHeader),
    # topic
    ("topic an integer", frame(SUB, f"{TOPIC_KEY} 01"), BadHeader),
    ("topic nil", frame(SUB, f"{TOPIC_KEY} C0"), BadHeader),
    ("topic a bin", frame(SUB, f"{TOPIC_KEY} C4 01 61"), BadHeader),
    ("topic a map with a map as key", frame(SUB, f"{TOPIC_KEY} 81 80 00"), BadHeader),
    ("topic a timestamp out of range", frame(SUB, f"{TOPIC_KEY} D7 FF FFFFFFFFFFFFFFFF"), BadHeader),
    # status
    ("status a str", frame(BCAST, f"{STATUS_KEY} A3 323030"), BadHeader),
    ("status true", frame(BCAST, f"{STATUS_KEY} C3"), BadHeader),
    ("status a float", frame(BCAST, f"{STATUS_KEY} CA 43480000"), BadHeader),
    ("status negative", frame(BCAST, f"{STATUS_KEY} FF"), BadHeader),
    ("status 65536", frame(BCAST, f"{STATUS_KEY} CE 00010000"), BadHeader),
    # routing
    ("routing a map", frame(NOTIF, f"{ROUTING_KEY} {ENTRY}"), InvalidRouting),
    ("routing nil", frame(NOTIF, f"{ROUTING_KEY} C0"), BadHeader),
    ("routing empty in NOTIF", frame(NOTIF, f"{ROUTING_KEY} 90"), InvalidRouting),
    ("routing empty in PUB", frame(PUB, TOPIC, f"{ROUTING_KEY} 90"), InvalidRouting),
    ("routing empty in REQ", frame(REQ, REQUEST, f"{ROUTING_KEY} 90"), InvalidRouting),
    ("routing empty in REP", frame(REP, CORRELATION, f"{ROUTING_KEY} 90"), InvalidRouting),
    ("REQ to two", frame(REQ, REQUEST, f"{ROUTING_KEY} 92 {ENTRY} {ENTRY}"), InvalidRouting),
    ("REP to two", frame(REP, CORRELATION, f"{ROUTING_KEY} 92 {ENTRY} {ENTRY}"), InvalidRouting),
    ("NOTIF to 1025", frame(NOTIF, f"{ROUTING_KEY} DC 0401" + ENTRY * 1025), InvalidRouting),
    ("entry an integer", frame(NOTIF, f"{ROUTING_KEY} 91 01"), InvalidRouting),
    ("entry an array", frame(NOTIF, f"{ROUTING_KEY} 91 92 01 A1 2F"), InvalidRouting),
    ("entry with a key not a str", frame(NOTIF, f"{ROUTING_KEY} 91 81 01 01"), InvalidRouting),
    ("second entry empty", frame(NOTIF, f"{ROUTING_KEY} 92 {ENTRY} 80"), InvalidRouting),
    ("client_id missing in NOTIF", frame(NOTIF, f"{ROUTING_KEY} 91 81 {PATH} A1 2F"), InvalidRouting),
    ("client_id missing in REP", frame(REP, CORRELATION, f"{ROUTING_KEY} 91 81 {PATH} A1 2F"), InvalidRouting),
    ("client_id missing in PUB", frame(PUB, TOPIC, f"{ROUTING_KEY} 91 81 {PATH} A1 2F"), InvalidRouting),
    ("REQ to an empty entry", frame(REQ, REQUEST, f"{ROUTING_KEY} 91 80"), InvalidRouting),
    ("REQ to two paths", frame(REQ, REQUEST, f"{ROUTING_KEY} 92 81 {PATH} A1 2F 81 {PATH} A1 2F"), InvalidRouting),
    ("client_id twice", frame(NOTIF, f"{ROUTING_KEY} 91 83 {CLIENT_ID} 01 {CLIENT_ID} 01 {PATH} A0"), InvalidRouting),
    ("client_id a str", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} A1 31 {PATH} A0"), InvalidRouting),
    ("client_id true", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} C3 {PATH} A0"), InvalidRouting),
    ("client_id negative", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} FF {PATH} A0"), InvalidRouting),
    ("client_id 2**32", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} CF 0000000100000000 {PATH} A0"), InvalidRouting),
    ("path missing in NOTIF", frame(NOTIF, f"{ROUTING_KEY} 91 81 {CLIENT_ID} 01"), InvalidRouting),
    ("path missing in PUB", frame(PUB, TOPIC, f"{ROUTING_KEY} 91 81 {CLIENT_ID} 01"), InvalidRouting),
    ("path missing in REQ", frame(REQ, REQUEST, f"{ROUTING_KEY} 91 81 {CLIENT_ID} 01"), InvalidRouting),
    ("path twice", frame(NOTIF, f"{ROUTING_KEY} 91 83 {CLIENT_ID} 01 {PATH} A0 {PATH} A0"), InvalidRouting),
    ("path an integer", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} 01 {PATH} 01"), InvalidRouting),
    # reqrep
    ("reqrep an array", frame(JOIN, f"{REQREP_KEY} 90"), BadHeader),
    ("reqrep empty", frame(JOIN, f"{REQREP_KEY} 80"), BadHeader),
    ("reqrep without type", frame(JOIN, f"{REQREP_KEY} 81 {ID} A1 37"), BadHeader),
    ("reqrep without id", frame(JOIN, f"{REQREP_KEY} 81 {TYPE} {REQUEST_WORD}"), BadHeader),
    ("reqrep.type unknown", frame(JOIN, f"{REQREP_KEY} 82 {TYPE} A1 78 {ID} A1 37"), BadHeader),
    ("reqrep.type an integer", frame(JOIN, f"{REQREP_KEY} 82 {TYPE} 01 {ID} A1 37"), BadHeader),
    ("reqrep.id empty", frame(JOIN, f"{REQREP_KEY} 82 {TYPE} {REQUEST_WORD} {ID} A0"), BadHeader),
    ("reqrep.id an integer", frame(JOIN, f"{REQREP_KEY} 82 {TYPE} {REQUEST_WORD} {ID} 07"), BadHeader),
    ("reqrep.id twice", frame(JOIN, f"{REQREP_KEY} 83 {TYPE} {REQUEST_WORD} {ID} A1 37 {ID} A1 37"), BadHeader),
    ("JOIN with a correlation", frame(JOIN, CORRELATION), BadHeader),
    ("REQ with a correlation", frame(REQ, ROUTING, CORRELATION), BadHeader),
    ("REP with a request", frame(REP, ROUTING, REQUEST), BadHeader),
    # auth
    ("auth a str", frame(JOIN, f"{AUTH_KEY} A1 78"), BadAuth),
    ("auth empty", frame(JOIN, f"{AUTH_KEY} 80"), BadAuth),
    ("auth with a key not a str", frame(JOIN, f"{AUTH_KEY} 81 01 01"), BadAuth),
    ("auth.type missing", frame(JOIN, f"{AUTH_KEY} 81 {TOKEN} A1 61"), BadAuth),
    ("auth.type an integer", frame(JOIN, f"{AUTH_KEY} 82 {TYPE} 01 {TOKEN} A1 61"), BadAuth),
    ("auth.type unsupported", frame(JOIN, f"{AUTH_KEY} 82 {TYPE} A4 6D746C73 {TOKEN} A1 61"), BadAuth),
    ("auth.type twice", frame(JOIN, f"{AUTH_KEY} 83 {TYPE} {TOKEN} {TYPE} {TOKEN} {TOKEN} A1 61"), BadAuth),
    ("auth.token missing", frame(JOIN, f"{AUTH_KEY} 81 {TYPE} {TOKEN}"), BadAuth),
    ("auth.token a bin", frame(JOIN, f"{AUTH_KEY} 82 {TYPE} {TOKEN} {TOKEN} C4 01 61"), BadAuth),
    ("auth.username missing", frame(JOIN, f"{AUTH_KEY} 82 {TYPE} {BASIC} {PASSWORD} A1 70"), BadAuth),
    ("auth.password missing", frame(JOIN, f"{AUTH_KEY} 82 {TYPE} {BASIC} {USERNAME} A1 75"), BadAuth),
    ("auth.password an integer", frame(JOIN, f"{AUTH_KEY} 83 {TYPE} {BASIC} {USERNAME} A1 75 {PASSWORD} 01"), BadAuth),
    ("auth.api_key missing", frame(JOIN, f"{AUTH_KEY} 81 {TYPE} {API_KEY}"), BadAuth),
    # keepalive
    ("keepalive an integer", frame(PING, f"{KEEPALIVE_KEY} 05"), BadHeader),
    ("keepalive empty", frame(PING, f"{KEEPALIVE_KEY} 80"), BadHeader),
    ("timestamp a float", frame(PING, f"{KEEPALIVE_KEY} 81 {TIMESTAMP} CB 3FF0000000000000"), BadHeader),
    ("timestamp negative", frame(PING, f"{KEEPALIVE_KEY} 81 {TIMESTAMP} FF"), BadHeader),
    ("timestamp true", frame(PONG, f"{KEEPALIVE_KEY} 81 {TIMESTAMP} C3"), BadHeader),
    ("timestamp twice", frame(PING, f"{KEEPALIVE_KEY} 82 {TIMESTAMP} 01 {TIMESTAMP} 01"), BadHeader),
    ("interval 2**32", frame(PING, f"{KEEPALIVE_KEY} 82 {TIMESTAMP} 01 {INTERVAL} CF 0000000100000000"), BadHeader),
    ("interval in PONG", frame(PONG, f"{KEEPALIVE_KEY} 82 {TIMESTAMP} 01 {INTERVAL} 1E"), BadHeader),
    # payload
    ("payload of two values", frame(BCAST, payload="0101"), BadPayload),
    ("payload cut short", frame(BCAST, payload="A2 61"), BadPayload),
    ("payload with 0xC1", frame(BCAST, payload="91 C1"), BadPayload),
    ("payload with a str not UTF-8", frame(BCAST, payload="A1 FF"), BadPayload),
    ("payload 65 deep", frame(BCAST, payload="91" * 65 + "00"), BadPayload),
    ("payload with a huge count", frame(BCAST, payload="DD FFFFFFFF"), BadPayload),
    ("payload with a huge bin", frame(BCAST, payload="C6 FFFFFFFF"), BadPayload),
    # client id and type
    ("JOIN from client 1000", frame(JOIN, client_id=1000), BadClientId),
    ("BCAST from client 0", frame(BCAST, client_id=0), BadClientId),
    ("type 10", frame(10), UnknownType),
    ("type 255", frame(255), UnknownType),
]  # fmt: skip

STATUSES = {
    BadHeader: 400, BadPayload: 400, BadClientId: 400, InvalidRouting: 602, BadAuth: 604,
    UnknownType: 501,
}  # fmt: skip


@pytest.mark.parametrize(("name", "bad", "error"), REJECTED, ids=[row[0] for row in REJECTED])
def test_a_bad_message_is_rejected_and_the_stream_goes_on(
    name: str, bad: bytes, error: type[FleximqError]
) -> None:
    stream = bad + PING_FRAME
    items = (
        assert_every_cut_agrees(fleximq.BrokerDecoder, stream)
        if len(stream) < 1000
        else decode_all(fleximq.BrokerDecoder(), [stream])
    )
    assert items[0][:2] == ("rejected", error), name
    assert items[1:] == [PING_MESSAGE]
    [fault] = decoded(bad)
    assert fault.status == STATUSES[error]
    assert fault.message_type == bad[1]


ACCEPTED = [
    ("an empty map as header", raw_frame(BCAST, b"\x80")),
    ("an empty topic", frame(SUB, f"{TOPIC_KEY} A0")),
    ("a topic as str 32", frame(SUB, f"{TOPIC_KEY} DB 00000001 61")),
    ("status 0", frame(BCAST, f"{STATUS_KEY} 00")),
    ("status 65535", frame(BCAST, f"{STATUS_KEY} CD FFFF")),
    ("status as int 64", frame(BCAST, f"{STATUS_KEY} D3 00000000000000C8")),
    ("client_id 2**32 - 1", frame(NOTIF, f"{ROUTING_KEY} 91 82 {CLIENT_ID} CE FFFFFFFF {PATH} A0")),
    ("1024 routing entries", frame(NOTIF, f"{ROUTING_KEY} DC 0400" + ENTRY * 1024)),
    ("timestamp 2**64 - 1", frame(PING, f"{KEEPALIVE_KEY} 81 {TIMESTAMP} CF FFFFFFFFFFFFFFFF")),
    ("interval 2**32 - 1", frame(PING, f"{KEEPALIVE_KEY} 82 {TIMESTAMP} 01 {INTERVAL} CE FFFFFFFF")),
    ("empty secrets", frame(JOIN, f"{AUTH_KEY} 83 {TYPE} {BASIC} {USERNAME} A0 {PASSWORD} A0")),
    ("a key of another auth type", frame(JOIN, f"{AUTH_KEY} 83 {TYPE} {TOKEN} {TOKEN} A1 61 {PASSWORD} 01")),
    ("a header 8 deep", raw_frame(BCAST, b"\x81\xa1a" + b"\x91" * 7 + b"\x00")),
    ("a payload 64 deep", frame(BCAST, payload="91" * 64 + "00")),
    ("a payload with a map as key", frame(BCAST, payload="81 80 00")),
    ("a payload of any ext", frame(BCAST, payload="D7 FF FFFFFFFFFFFFFFFF")),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "good"), ACCEPTED, ids=[row[0] for row in ACCEPTED])
def test_what_is_at_the_edge_is_accepted(_name: str, good: bytes) -> None:
    [item] = decoded(good)
    assert isinstance(item, fleximq.Message)


def test_unknown_fields_are_ignored_at_every_level() -> None:
    unknown = "A1 78 D7 FF FFFFFFFFFFFFFFFF"  # a timestamp that no calendar has
    twice = f"{unknown} {unknown}"
    messages = decoded(
        frame(REQ, unknown,
              f"{ROUTING_KEY} 91 84 {twice} {CLIENT_ID} CD03E8 {PATH} A1 2F",
              f"{REQREP_KEY} 84 {TYPE} {REQUEST_WORD} {twice} {ID} A1 37", unknown)
        + frame(JOIN, unknown, f"{AUTH_KEY} 84 {TYPE} {TOKEN} {TOKEN} A3 616263 {twice}")
        + frame(PING, unknown, f"{KEEPALIVE_KEY} 83 {TIMESTAMP} 05 {twice}", unknown)
    )  # fmt: skip
    assert messages == decoded(
        frame(REQ, ROUTING, REQUEST) + frame(JOIN, AUTH) + frame(PING, KEEPALIVE)
    )


def test_a_path_may_be_missing_in_a_response_only() -> None:
    [message] = decoded(frame(REP, CORRELATION, f"{ROUTING_KEY} 91 81 {CLIENT_ID} CD03E8"))
    assert message.header.routing == (Routing(1000, ""),)


def test_a_request_without_a_client_id_is_for_the_broker_except_in_strict_mode() -> None:
    request = frame(REQ, REQUEST, f"{ROUTING_KEY} 91 81 {PATH} A1 2F")
    [message] = decoded(request)
    assert message.header.routing == (Routing(1, "/"),)
    found = fleximq.BrokerDecoder(strict=True).decode_at(request, 0)
    assert found is not None
    assert isinstance(found[0], Rejected)
    assert isinstance(found[0].error, InvalidRouting)


def test_reserved_bytes_are_ignored() -> None:
    odd = frame(PING, KEEPALIVE, reserved=bytes(range(1, 17)))
    assert decoded(odd) == [PING_MESSAGE]
    assert fleximq.encode(PING_MESSAGE) == PING_FRAME


def test_every_type_outside_the_table_is_unknown() -> None:
    for message_type in range(10, 256):
        [error] = decoded(raw_frame(message_type, b"\xc1", client_id=0))
        assert type(error) is UnknownType
        assert error.message_type == message_type


@pytest.mark.parametrize("message_type", range(1, 10))
def test_only_join_comes_from_client_0(message_type: int) -> None:
    for make in (fleximq.BrokerDecoder, fleximq.ClientDecoder):
        bad = frame(message_type, client_id=0, payload="C1")
        [error] = decoded(bad, make())
        assert type(error) is BadClientId


def test_a_client_takes_client_id_0_only_in_a_reply_that_refuses_join() -> None:
    refused = "A6 737461747573 CD 0191"
    [message] = decoded(frame(REP, refused, client_id=0), fleximq.ClientDecoder())
    assert message.client_id == 0
    for fields in ((STATUS,), (CORRELATION,), (ROUTING, CORRELATION, refused)):
        [error] = decoded(frame(REP, *fields, client_id=0), fleximq.ClientDecoder())
        assert type(error) is BadClientId
    items = decoded(frame(REP, STATUS) + frame(REP, refused, client_id=0), fleximq.ClientDecoder())
    assert type(items[1]) is BadClientId


def test_a_client_never_receives_join() -> None:
    [error] = decoded(frame(JOIN, REQUEST), fleximq.ClientDecoder())
    assert type(error) is UnknownType
    assert (error.message_type, error.reqrep_id) == (JOIN, "7")


def test_type_then_client_id_then_header_then_payload_are_judged() -> None:
    bad_header = b"\xc1"
    order = [
        (raw_frame(99, bad_header, client_id=0, payload=b"\xc1"), UnknownType),
        (raw_frame(BCAST, bad_header, client_id=0, payload=b"\xc1"), BadClientId),
        (raw_frame(BCAST, bad_header, payload=b"\xc1"), BadHeader),
        (raw_frame(BCAST, b"", payload=b"\xc1"), BadPayload),
    ]
    for bad, error in order:
        [fault] = decoded(bad)
        assert type(fault) is error


# --- The id that the answer must carry ------------------------------------------------------------

BROKEN = [
    ("an unknown type", frame(99, REQUEST)),
    ("a bad client id", frame(REQ, ROUTING, REQUEST, client_id=0)),
    ("a forbidden field", frame(REQ, ROUTING, REQUEST, TOPIC)),
    ("reqrep itself forbidden", frame(BCAST, REQUEST)),
    ("a missing field", frame(REQ, REQUEST)),
    ("a field twice", frame(REQ, TOPIC, TOPIC, REQUEST)),
    ("bad routing", frame(REQ, f"{ROUTING_KEY} 90", REQUEST)),
    ("bad auth", frame(JOIN, f"{AUTH_KEY} 80", REQUEST)),
    ("a bad status", frame(REQ, ROUTING, REQUEST, f"{STATUS_KEY} C3")),
    ("the wrong half of an exchange", frame(REQ, ROUTING, CORRELATION)),
    ("no reqrep.type", frame(REQ, ROUTING, f"{REQREP_KEY} 81 {ID} A1 37")),
    ("a bad payload", frame(REQ, ROUTING, REQUEST, payload="C1")),
]


@pytest.mark.parametrize(("_name", "bad"), BROKEN, ids=[row[0] for row in BROKEN])
def test_an_error_carries_the_id_of_its_message(_name: str, bad: bytes) -> None:
    [error] = decoded(bad)
    assert (error.message_type, error.reqrep_id) == (bad[1], "7")


UNREADABLE = [
    ("no reqrep", frame(REQ, ROUTING)),
    ("no header", frame(REQ)),
    ("reqrep twice", frame(REQ, ROUTING, REQUEST, REQUEST)),
    ("id twice", frame(REQ, f"{REQREP_KEY} 82 {ID} A1 37 {ID} A1 37")),
    ("no id", frame(REQ, f"{REQREP_KEY} 80")),
    ("id empty", frame(REQ, f"{REQREP_KEY} 81 {ID} A0")),
    ("id an integer", frame(REQ, f"{REQREP_KEY} 81 {ID} 07")),
    ("reqrep an array", frame(REQ, f"{REQREP_KEY} 90")),
    ("header malformed behind it", raw_frame(REQ, b"\x82" + bytes.fromhex(REQUEST) + b"\xc1")),
]


@pytest.mark.parametrize(("_name", "bad"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_an_error_carries_no_id_where_none_can_be_read(_name: str, bad: bytes) -> None:
    [error] = decoded(bad)
    assert error.reqrep_id is None


# --- Framing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [fleximq.BrokerDecoder, fleximq.ClientDecoder])
def test_another_version_loses_framing_at_its_byte(make: type[fleximq.BrokerDecoder]) -> None:
    for version in (0, 2, 255):
        assert_stays_failed(make(), bytes([version]), fleximq.UnsupportedVersion)
    items = assert_every_cut_agrees(make, PING_FRAME + b"\x02" + PING_FRAME)
    assert items == [PING_MESSAGE, ("failed", fleximq.UnsupportedVersion, (2, None, None))]


def test_a_header_length_is_judged_before_the_header_is_there() -> None:
    def start(header_bytes: int) -> bytes:
        return struct.pack(">BBI16xI", 1, REQ, 1000, header_bytes)

    assert decoded(start(65_536)) == []
    assert_stays_failed(fleximq.BrokerDecoder(), start(65_537), fleximq.PayloadTooLarge)
    small = fleximq.BrokerDecoder(header_bytes_max=10)
    assert decoded(start(10), small) == []
    assert decode_all(fleximq.BrokerDecoder(header_bytes_max=10), [start(11)]) == [
        ("failed", fleximq.PayloadTooLarge, ("header", 11, 10, REQ, None))
    ]
    assert decode_all(fleximq.BrokerDecoder(message_bytes_max=100), [start(67)]) == [
        ("failed", fleximq.PayloadTooLarge, ("message", 101, 100, REQ, None))
    ]


def test_a_payload_length_is_judged_before_the_payload_is_there() -> None:
    def start(payload_bytes: int, *fields: str) -> bytes:
        whole = frame(REQ, *fields)
        return whole[:-8] + struct.pack(">Q", payload_bytes)

    size_max = 16 * 1024 * 1024
    assert decoded(start(size_max - 34)) == []
    assert_stays_failed(fleximq.BrokerDecoder(), start(size_max - 33), fleximq.PayloadTooLarge)
    assert_stays_failed(fleximq.ClientDecoder(), start(2**64 - 1), fleximq.PayloadTooLarge)
    size = len(frame(REQ, ROUTING, REQUEST))
    for cut in (1, 26, 40, size):
        stream = start(1_000_000, ROUTING, REQUEST)
        assert decode_all(
            fleximq.BrokerDecoder(message_bytes_max=1_000_000), [stream[:cut], stream[cut:]]
        ) == [
            ("failed", fleximq.PayloadTooLarge, ("message", 1_000_000 + size, 1_000_000, REQ, "7"))
        ]


def test_a_message_of_exactly_the_limit_is_accepted() -> None:
    whole = frame(BCAST, payload="C4 02 6869")
    [message] = decoded(whole, fleximq.BrokerDecoder(message_bytes_max=len(whole)))
    assert message.payload == bytes.fromhex("C4 02 6869")
    with pytest.raises(fleximq.PayloadTooLarge):
        decoded(whole, fleximq.BrokerDecoder(message_bytes_max=len(whole) - 1))


@pytest.mark.parametrize("make", [fleximq.BrokerDecoder, fleximq.ClientDecoder])
def test_no_limit_goes_beyond_the_specification(make: type[fleximq.BrokerDecoder]) -> None:
    make(header_bytes_max=65_536, message_bytes_max=1_073_741_824)
    with pytest.raises(FieldOutOfRange):
        make(header_bytes_max=65_537)
    for message_bytes_max in (1_073_741_825, -1):
        with pytest.raises(FieldOutOfRange):
            make(message_bytes_max=message_bytes_max)


# --- The encoder --------------------------------------------------------------------------------


def message(message_type: int, client_id: int = 1000, payload: bytes = b"", **fields: object) -> fleximq.Message:  # fmt: skip
    return fleximq.Message(
        fleximq.MessageType(message_type),
        client_id,
        fleximq.Header(**fields),  # type: ignore[arg-type]
        payload,
    )


REQUESTED = fleximq.ReqRep(fleximq.ReqRepType.REQUEST, "7")
CORRELATED = fleximq.ReqRep(fleximq.ReqRepType.CORRELATION, "7")
ONE = (Routing(1000, "/"),)


@pytest.mark.parametrize(
    "bad",
    [
        message(JOIN, 1000),
        message(BCAST, 0),
        message(REP, 0, status=200),
        message(REP, 0, status=401, routing=ONE, reqrep=CORRELATED),
        message(REP, reqrep=CORRELATED),
        message(REP),
        message(REQ, routing=ONE * 2, reqrep=REQUESTED),
        message(REP, routing=(), reqrep=CORRELATED),
        message(NOTIF, routing=()),
        message(NOTIF, routing=ONE * 4097),
        message(REQ, routing=ONE, reqrep=CORRELATED),
        message(REP, routing=ONE, reqrep=REQUESTED),
        message(JOIN, 0, reqrep=CORRELATED),
        message(REQ, routing=ONE, reqrep=fleximq.ReqRep(fleximq.ReqRepType.REQUEST, "")),
        message(PONG, keepalive=fleximq.KeepAlive(1, 30)),
        message(BCAST, payload=b"\xc1"),
        message(BCAST, payload=b"\x01\x01"),
        message(BCAST, payload=b"\x91" * 512 + b"\x91\x01"),
    ],
)
def test_the_encoder_refuses_what_a_receiver_would_reject(bad: fleximq.Message) -> None:
    with pytest.raises(fleximq.InvalidMessage):
        fleximq.encode(bad)


def test_encoder_and_client_use_the_highest_values_of_settings() -> None:
    """A broker may be set to them, and a client does not know."""
    decoder = fleximq.ClientDecoder()
    for large in (
        message(NOTIF, routing=ONE * 3000),
        message(BCAST, payload=b"\x91" * 511 + b"\x91\x01"),
    ):
        data = fleximq.encode(large)
        decoded = decoder.decode_at(memoryview(data), 0)
        assert decoded == (large, len(data))


@pytest.mark.parametrize(
    "bad",
    [
        message(BCAST, 2**32),
        message(BCAST, -1),
        message(BCAST, status=65_536),
        message(BCAST, status=-1),
        message(BCAST, status=True),
        message(NOTIF, routing=(Routing(2**32, "/"),)),
        message(NOTIF, routing=(Routing(-1, "/"),)),
        message(PING, keepalive=fleximq.KeepAlive(2**64)),
        message(PING, keepalive=fleximq.KeepAlive(0, 2**32)),
        message(PING, keepalive=fleximq.KeepAlive(-1)),
        message(SUB, topic="x" * 65_536),
    ],
)
def test_the_encoder_refuses_what_does_not_fit(bad: fleximq.Message) -> None:
    with pytest.raises(FieldOutOfRange):
        fleximq.encode(bad)


def test_the_encoder_refuses_text_that_is_not_utf8() -> None:
    with pytest.raises(Unencodable):
        fleximq.encode(message(SUB, topic="\ud800"))


def test_the_support_module_names_the_types_as_the_codec_does() -> None:
    for member in fleximq.MessageType:
        assert getattr(frames, member.name) == member


NIL = [
    ("status nil", frame(BCAST, f"{STATUS_KEY} C0"), BadHeader),
    ("path nil in REP", frame(REP, CORRELATION, f"{ROUTING_KEY} 91 82 {CLIENT_ID} 01 {PATH} C0"), InvalidRouting),
    ("client_id nil in REQ", frame(REQ, REQUEST, f"{ROUTING_KEY} 91 82 {CLIENT_ID} C0 {PATH} A1 2F"), InvalidRouting),
    ("reqrep nil", frame(JOIN, f"{REQREP_KEY} C0"), BadHeader),
    ("auth nil", frame(JOIN, f"{AUTH_KEY} C0"), BadHeader),
    ("interval nil", frame(PING, f"{KEEPALIVE_KEY} 82 {TIMESTAMP} 01 {INTERVAL} C0"), BadHeader),
    ("routing nil", frame(NOTIF, f"{ROUTING_KEY} C0"), BadHeader),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), [row[1:] for row in NIL], ids=[row[0] for row in NIL])
def test_strict_refuses_nil(data: bytes, error: type[FleximqError]) -> None:
    found = fleximq.BrokerDecoder(strict=True).decode_at(data, 0)
    assert found is not None
    assert isinstance(found[0], Rejected)
    assert isinstance(found[0].error, error)


@pytest.mark.parametrize("data", [row[1] for row in NIL[:-1]], ids=[row[0] for row in NIL[:-1]])
def test_nil_counts_as_absent(data: bytes) -> None:
    found = fleximq.BrokerDecoder().decode_at(data, 0)
    assert found is not None
    assert isinstance(found[0], fleximq.Message)
