"""Golden vectors of fleximq, typed in from the specification and the MessagePack format."""

import pytest

from penstock.wire import fleximq
from penstock.wire.decoder import Decoder
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
    StatusCode,
    TokenAuth,
)
from penstock.wire.fleximq.packets import Auth
from tests.support.streams import assert_every_cut_agrees, decode_all

RESERVED = "00000000000000000000000000000000"
REQUEST_7 = ReqRep(ReqRepType.REQUEST, "7")

# name, who receives it, message, frame
GOLDEN = [
    (
        "JOIN",
        "broker",
        Message(MessageType.JOIN, 0),
        f"01 00 00000000 {RESERVED} 00000000  0000000000000000",
    ),
    (
        "JOIN with a token",
        "broker",
        Message(MessageType.JOIN, 0, Header(auth=TokenAuth("abc"))),
        f"""01 00 00000000 {RESERVED} 0000001C
            81 A4 61757468 82 A4 74797065 A5 746F6B656E  A5 746F6B656E A3 616263
            0000000000000000""",
    ),
    (
        "JOIN with name and password",
        "broker",
        Message(MessageType.JOIN, 0, Header(auth=BasicAuth("u", "p"))),
        f"""01 00 00000000 {RESERVED} 00000028
            81 A4 61757468 83 A4 74797065 A5 6261736963
               A8 757365726E616D65 A1 75  A8 70617373776F7264 A1 70
            0000000000000000""",
    ),
    (
        "JOIN with an API key",
        "broker",
        Message(MessageType.JOIN, 0, Header(auth=ApiKeyAuth("k"))),
        f"""01 00 00000000 {RESERVED} 0000001E
            81 A4 61757468 82 A4 74797065 A7 6170695F6B6579  A7 6170695F6B6579 A1 6B
            0000000000000000""",
    ),
    (
        "JOIN with reqrep",
        "broker",
        Message(MessageType.JOIN, 0, Header(reqrep=REQUEST_7)),
        f"""01 00 00000000 {RESERVED} 0000001B
            81 A6 726571726570 82 A4 74797065 A7 72657175657374  A2 6964 A1 37
            0000000000000000""",
    ),
    (
        "reply to JOIN",
        "client",
        Message(MessageType.REP, 1000, Header(status=200)),
        f"01 02 000003E8 {RESERVED} 0000000A  81 A6 737461747573 CC C8  0000000000000000",
    ),
    (
        "reply to JOIN with reqrep",
        "client",
        Message(
            MessageType.REP, 1000, Header(reqrep=ReqRep(ReqRepType.CORRELATION, "7"), status=201)
        ),
        f"""01 02 000003E8 {RESERVED} 00000028
            82 A6 726571726570 82 A4 74797065 AB 636F7272656C6174696F6E  A2 6964 A1 37
               A6 737461747573 CC C9
            0000000000000000""",
    ),
    (
        "reply to JOIN, refused",
        "client",
        Message(MessageType.REP, 0, Header(status=605)),
        f"01 02 00000000 {RESERVED} 0000000B  81 A6 737461747573 CD 025D  0000000000000000",
    ),
    (
        "REQ",
        "both",
        Message(
            MessageType.REQ,
            1000,
            Header(routing=(Routing(1, "/t"),), reqrep=ReqRep(ReqRepType.REQUEST, "a1")),
            bytes.fromhex("A2 6869"),
        ),
        f"""01 01 000003E8 {RESERVED} 00000039
            82 A7 726F7574696E67 91 82 A9 636C69656E745F6964 01  A4 70617468 A2 2F74
               A6 726571726570 82 A4 74797065 A7 72657175657374  A2 6964 A2 6131
            0000000000000003 A2 6869""",
    ),
    (
        "REP",
        "both",
        Message(
            MessageType.REP,
            1234,
            Header(
                routing=(Routing(1000, "/t"),),
                reqrep=ReqRep(ReqRepType.CORRELATION, "a1"),
                status=200,
            ),
            bytes.fromhex("81 A1 61 01"),
        ),
        f"""01 02 000004D2 {RESERVED} 00000048
            83 A7 726F7574696E67 91 82 A9 636C69656E745F6964 CD 03E8  A4 70617468 A2 2F74
               A6 726571726570 82 A4 74797065 AB 636F7272656C6174696F6E  A2 6964 A2 6131
               A6 737461747573 CC C8
            0000000000000004 81 A1 61 01""",
    ),
    (
        "NOTIF",
        "both",
        Message(
            MessageType.NOTIF,
            1,
            Header(routing=(Routing(1234, "/n"), Routing(5678, "/a")), status=600),
        ),
        f"""01 03 00000001 {RESERVED} 00000040
            82 A7 726F7574696E67 92
                  82 A9 636C69656E745F6964 CD 04D2  A4 70617468 A2 2F6E
                  82 A9 636C69656E745F6964 CD 162E  A4 70617468 A2 2F61
               A6 737461747573 CD 0258
            0000000000000000""",
    ),
    (
        "BCAST",
        "both",
        Message(MessageType.BCAST, 1000, Header(), bytes.fromhex("C4 02 6869")),
        f"01 04 000003E8 {RESERVED} 00000000  0000000000000004 C4 02 6869",
    ),
    (
        "BCAST with status",
        "both",
        Message(MessageType.BCAST, 4_294_967_294, Header(status=200)),
        f"01 04 FFFFFFFE {RESERVED} 0000000A  81 A6 737461747573 CC C8  0000000000000000",
    ),
    (
        "PUB",
        "both",
        Message(MessageType.PUB, 1000, Header(topic="news"), bytes.fromhex("C4 03 010203")),
        f"""01 05 000003E8 {RESERVED} 0000000C  81 A5 746F706963 A4 6E657773
            0000000000000005 C4 03 010203""",
    ),
    (
        "PUB with routing and status",
        "both",
        Message(
            MessageType.PUB,
            1000,
            Header(routing=(Routing(1001, "/r"),), topic="news", status=201),
        ),
        f"""01 05 000003E8 {RESERVED} 00000034
            83 A7 726F7574696E67 91 82 A9 636C69656E745F6964 CD 03E9  A4 70617468 A2 2F72
               A5 746F706963 A4 6E657773
               A6 737461747573 CC C9
            0000000000000000""",
    ),
    (
        "SUB",
        "both",
        Message(MessageType.SUB, 1000, Header(topic="news")),
        f"01 06 000003E8 {RESERVED} 0000000C 81 A5 746F706963 A4 6E657773 0000000000000000",
    ),
    (
        "UNSUB",
        "both",
        Message(MessageType.UNSUB, 1000, Header(topic="news")),
        f"01 07 000003E8 {RESERVED} 0000000C 81 A5 746F706963 A4 6E657773 0000000000000000",
    ),
    (
        "PING",
        "both",
        Message(MessageType.PING, 1, Header(keepalive=KeepAlive(1703123456789, 30))),
        f"""01 08 00000001 {RESERVED} 00000029
            81 A9 6B656570616C697665 82
               A9 74696D657374616D70 CF 0000018C8A119315  A8 696E74657276616C 1E
            0000000000000000""",
    ),
    (
        "PONG",
        "both",
        Message(MessageType.PONG, 1000, Header(keepalive=KeepAlive(1703123456789))),
        f"""01 09 000003E8 {RESERVED} 0000001F
            81 A9 6B656570616C697665 81 A9 74696D657374616D70 CF 0000018C8A119315
            0000000000000000""",
    ),
]

IDS = [name for name, *_ in GOLDEN]
DECODERS: dict[str, list[type[Decoder[Message]]]] = {
    "broker": [fleximq.BrokerDecoder],
    "client": [fleximq.ClientDecoder],
    "both": [fleximq.BrokerDecoder, fleximq.ClientDecoder],
}


@pytest.mark.parametrize(("_name", "_receiver", "message", "text"), GOLDEN, ids=IDS)
def test_encodes_to_the_specified_bytes(
    _name: str, _receiver: str, message: Message, text: str
) -> None:
    assert fleximq.encode(message).hex() == bytes.fromhex(text).hex()


@pytest.mark.parametrize(("_name", "receiver", "message", "text"), GOLDEN, ids=IDS)
def test_decodes_from_the_specified_bytes_however_they_are_cut(
    _name: str, receiver: str, message: Message, text: str
) -> None:
    frame = bytes.fromhex(text)
    for make in DECODERS[receiver]:
        assert assert_every_cut_agrees(make, frame) == [message]


def test_a_stream_does_not_depend_on_where_it_is_cut() -> None:
    for role, make in (("broker", fleximq.BrokerDecoder), ("client", fleximq.ClientDecoder)):
        # The refused reply comes first: after the accepted one nothing may lack routing.
        rows = sorted(
            (row for row in GOLDEN if row[1] in (role, "both")),
            key=lambda row: (row[2].client_id != 0, row[1] == "both"),
        )
        rows = [row for row in rows if row[0] != "reply to JOIN with reqrep"]
        stream = b"".join(bytes.fromhex(text) for *_, text in rows)
        assert assert_every_cut_agrees(make, stream) == [message for _, _, message, _ in rows]


def test_every_type_has_a_vector_in_each_direction_it_travels() -> None:
    for role, absent in (("broker", set()), ("client", {MessageType.JOIN})):
        received = {message.type for _, who, message, _ in GOLDEN if who in (role, "both")}
        assert received == set(MessageType) - absent


def test_types_and_client_ids_are_those_of_the_tables() -> None:
    assert {member.name: member.value for member in MessageType} == {
        "JOIN": 0, "REQ": 1, "REP": 2, "NOTIF": 3, "BCAST": 4,
        "PUB": 5, "SUB": 6, "UNSUB": 7, "PING": 8, "PONG": 9,
    }  # fmt: skip
    assert {member.name: member.value for member in fleximq.ClientId} == {
        "UNASSIGNED": 0, "BROKER": 1, "DYNAMIC_MIN": 0x3E8,
        "DYNAMIC_MAX": 0xFFFFFFFE, "RESERVED_MAX": 0xFFFFFFFF,
    }  # fmt: skip


# name in section 5.1, its number, the number in MessagePack
STATUS_CODES = [
    ("OK", 200, "CCC8"), ("CREATED", 201, "CCC9"), ("ACCEPTED", 202, "CCCA"),
    ("NO_CONTENT", 204, "CCCC"),
    ("BAD_REQUEST", 400, "CD0190"), ("UNAUTHORIZED", 401, "CD0191"),
    ("FORBIDDEN", 403, "CD0193"), ("NOT_FOUND", 404, "CD0194"),
    ("METHOD_NOT_ALLOWED", 405, "CD0195"), ("REQUEST_TIMEOUT", 408, "CD0198"),
    ("CONFLICT", 409, "CD0199"), ("PAYLOAD_TOO_LARGE", 413, "CD019D"),
    ("TOO_MANY_REQUESTS", 429, "CD01AD"),
    ("INTERNAL_SERVER_ERROR", 500, "CD01F4"), ("NOT_IMPLEMENTED", 501, "CD01F5"),
    ("BAD_GATEWAY", 502, "CD01F6"), ("SERVICE_UNAVAILABLE", 503, "CD01F7"),
    ("GATEWAY_TIMEOUT", 504, "CD01F8"),
    ("CLIENT_NOT_FOUND", 600, "CD0258"), ("TOPIC_NOT_FOUND", 601, "CD0259"),
    ("INVALID_ROUTING", 602, "CD025A"), ("SUBSCRIPTION_FAILED", 603, "CD025B"),
    ("AUTHENTICATION_FAILED", 604, "CD025C"), ("JOIN_REJECTED", 605, "CD025D"),
]  # fmt: skip


def test_status_codes_are_those_of_the_lists() -> None:
    assert [(code.name, code.value) for code in StatusCode] == [row[:2] for row in STATUS_CODES]


@pytest.mark.parametrize(("name", "value", "text"), STATUS_CODES)
def test_every_status_code_travels_as_its_number(name: str, value: int, text: str) -> None:
    header = bytes.fromhex("81 A6 737461747573" + text)
    frame = bytes.fromhex(
        f"01 02 000003E8 {RESERVED} {len(header):08X} {header.hex()} 0000000000000000"
    )
    message = Message(MessageType.REP, 1000, Header(status=StatusCode[name]))
    assert fleximq.encode(message) == frame
    [decoded] = decode_all(fleximq.ClientDecoder(), [frame])
    assert decoded == message
    assert decoded.header.status == value
    assert fleximq.is_success(value) is (value < 300)


def test_a_reply_without_status_reports_success() -> None:
    assert fleximq.is_success(None)
    assert not fleximq.is_success(199)
    assert fleximq.is_success(299)


@pytest.mark.parametrize(
    ("auth", "shown"),
    [
        (TokenAuth("s3cret"), "TokenAuth()"),
        (BasicAuth("ann", "s3cret"), "BasicAuth(username='ann')"),
        (ApiKeyAuth("s3cret"), "ApiKeyAuth()"),
    ],
)
def test_no_representation_shows_a_secret(auth: Auth, shown: str) -> None:
    assert repr(auth) == shown
    assert "s3cret" not in repr(Message(MessageType.JOIN, 0, Header(auth=auth)))
