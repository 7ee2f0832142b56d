"""Golden vectors of LamaMQ, typed in from the specification and, for 32 to 65, its profile."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.wire import lamamq
from penstock.wire.decoder import Decoder
from tests.support.streams import assert_every_cut_agrees
from tests.unit.wire.lamamq.roles import ORDERS, open_broker, open_client

EMPTY, STRING, BUFFER = lamamq.PayloadType

HANDSHAKE = [
    (
        "authentication without a key",
        lamamq.BrokerDecoder,
        lamamq.Authentication("dev-1"),
        "00 00000005 6465762D31",
        "00 05000000 6465762D31",
    ),
    (
        "authentication with a key",
        lambda order: lamamq.BrokerDecoder(order=order, key_required=True),
        lamamq.Authentication("é", b"\x01\x02\xff"),
        "00 00000002 C3A9 00000003 0102FF",
        "00 02000000 C3A9 03000000 0102FF",
    ),
    (
        "authentication with an empty key",
        lambda order: lamamq.BrokerDecoder(order=order, key_required=True),
        lamamq.Authentication("a", b""),
        "00 00000001 61 00000000",
        "00 01000000 61 00000000",
    ),
    (
        "version offer",
        lamamq.ClientDecoder,
        lamamq.VersionOffer((2, 3), (1, 0)),
        "02 03 01 00",
        "02 03 01 00",
    ),
    (
        "version offer that starts with zero",
        lamamq.ClientDecoder,
        lamamq.VersionOffer((0, 0), (0, 1)),
        "00 00 00 01",
        "00 00 00 01",
    ),
    (
        "handshake refused",
        lamamq.ClientDecoder,
        lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "no"),
        "00000000 02 00000002 6E6F",
        "00000000 02 02000000 6E6F",
    ),
]  # fmt: skip

MESSAGES = [
    (
        "PUSH empty",
        lamamq.Push(0x01020304, lamamq.Message(0x65432100, "a/b", (), EMPTY, b"")),
        "01020304 00 65432100 00000003 612F62 0000 00",
        "04030201 00 00214365 03000000 612F62 0000 00",
    ),
    (
        "PUSH string with headers",
        lamamq.Push(1, lamamq.Message(2, "é", (("k", b"v"), ("", b"\xff\x00")), STRING, b"hi")),
        """00000001 00 00000002 00000002 C3A9
           0002 00000001 6B 00000001 76 00000000 00000002 FF00
           01 00000002 6869""",
        """01000000 00 02000000 02000000 C3A9
           0200 01000000 6B 01000000 76 00000000 02000000 FF00
           01 02000000 6869""",
    ),
    (
        "PUSH buffer",
        lamamq.Push(0xFFFFFFFF, lamamq.Message(0xFFFFFFFF, "", (), BUFFER, b"\x00\xff\x80")),
        "FFFFFFFF 00 FFFFFFFF 00000000 0000 02 00000003 00FF80",
        "FFFFFFFF 00 FFFFFFFF 00000000 0000 02 03000000 00FF80",
    ),
    (
        "PUSH empty string",
        lamamq.Push(0, lamamq.Message(0, "t", (), STRING, b"")),
        "00000000 00 00000000 00000001 74 0000 01 00000000",
        "00000000 00 00000000 01000000 74 0000 01 00000000",
    ),
    (
        "PUSH string that is not UTF-8",
        lamamq.Push(0, lamamq.Message(0, "t", (), STRING, b"\xff")),
        "00000000 00 00000000 00000001 74 0000 01 00000001 FF",
        "00000000 00 00000000 01000000 74 0000 01 01000000 FF",
    ),
    (
        "SUBSCRIBE",
        lamamq.Subscribe(9, "a/+"),
        "00000009 20 00000003 612F2B",
        "09000000 20 03000000 612F2B",
    ),
    (
        "UNSUBSCRIBE",
        lamamq.Unsubscribe(0x0100, "#"),
        "00000100 21 00000001 23",
        "00010000 21 01000000 23",
    ),
    *(
        (
            f"REGISTER {hook_type}",
            lamamq.Register(
                5, "h", 7, 1500, lamamq.HookStrategy.TELL, lamamq.HookType[hook_type]
            ),
            f"00000005 40 00000001 68 00000007 000005DC 00 {number}",
            f"05000000 40 01000000 68 07000000 DC050000 00 {number}",
        )
        for hook_type, number in [
            ("CONNECT", "00"), ("DISCONNECT", "01"), ("SUBSCRIBED", "20"),
            ("UNSUBSCRIBED", "21"), ("REGISTERED", "40"), ("UNREGISTERED", "41"),
        ]
    ),
    *(
        (
            f"REGISTER {strategy}",
            lamamq.Register(
                5, "h", 7, 1500, lamamq.HookStrategy[strategy], lamamq.HookType.MESSAGE_PUSHED
            ),
            f"00000005 40 00000001 68 00000007 000005DC {number} 10 0000",
            f"05000000 40 01000000 68 07000000 DC050000 {number} 10 0000",
        )
        for strategy, number in [("TELL", "00"), ("WAIT_OR_REFUSE", "01"), ("WAIT_OR_GO_ON", "02")]
    ),
    (
        "REGISTER with conditions",
        lamamq.Register(
            6, "audit", 0, 0xFFFFFFFF,
            lamamq.HookStrategy.WAIT_OR_REFUSE, lamamq.HookType.MESSAGE_PUSHED,
            (lamamq.TopicIs("a/b"), lamamq.HeaderIs("k", b"\xffv"), lamamq.HasHeader("é")),
        ),
        """00000006 40 00000005 6175646974 00000000 FFFFFFFF 01 10
           0003 00 00000003 612F62 04 00000001 6B 00000002 FF76 05 00000002 C3A9""",
        """06000000 40 05000000 6175646974 00000000 FFFFFFFF 01 10
           0300 00 03000000 612F62 04 01000000 6B 02000000 FF76 05 02000000 C3A9""",
    ),
    (
        "UNREGISTER",
        lamamq.Unregister(0x80000001, "h"),
        "80000001 41 00000001 68",
        "01000080 41 01000000 68",
    ),
]  # fmt: skip

FORWARDS = [
    (
        "FORWARD string with a header",
        lamamq.Forward(0x80000007, lamamq.Message(3, "a.b", (("hook", b"h"),), STRING, b"x")),
        "80000007 01 00000003 00000003 612E62 0001 00000004 686F6F6B 00000001 68 01 00000001 78",
        "07000080 01 03000000 03000000 612E62 0100 04000000 686F6F6B 01000000 68 01 01000000 78",
    ),
    (
        "FORWARD empty",
        lamamq.Forward(0x80000008, lamamq.Message(3, "t", (), EMPTY, b"")),
        "80000008 01 00000003 00000001 74 0000 00",
        "08000080 01 03000000 01000000 74 0000 00",
    ),
    (
        "FORWARD buffer",
        lamamq.Forward(0x80000009, lamamq.Message(3, "t", (), BUFFER, b"\x00")),
        "80000009 01 00000003 00000001 74 0000 02 00000001 00",
        "09000080 01 03000000 01000000 74 0000 02 01000000 00",
    ),
]

ANSWERS = [
    ("answer without an error", lamamq.Answer(0x01020304), "01020304 00", "04030201 00"),
    *(
        (
            f"answer {name}",
            lamamq.Answer(0x80000002, lamamq.ErrorCode[name], "né"),
            f"80000002 {number} 00000003 6EC3A9",
            f"02000080 {number} 03000000 6EC3A9",
        )
        for name, number in [
            ("SERVER_EXCEPTION", "01"), ("BAD_REQUEST", "02"),
            ("MIDDLEWARE_TIMEOUT", "03"), ("MIDDLEWARE_REFUSED", "04"),
        ]
    ),
    (
        "answer with an empty text",
        lamamq.Answer(2, lamamq.ErrorCode.SERVER_EXCEPTION),
        "00000002 01 00000000",
        "02000000 01 00000000",
    ),
]  # fmt: skip

ALL = [(name, packet, big, little) for name, _, packet, big, little in HANDSHAKE]
ALL += [("VersionChoice", lamamq.VersionChoice(1, 2), "01 02", "01 02")]
ALL += MESSAGES + FORWARDS + ANSWERS


def ids(rows: list[Any]) -> list[str]:
    return [row[0] for row in rows]


def assert_decodes(make: Callable[[], Decoder[Any]], text: str, packet: lamamq.Packet) -> None:
    assert assert_every_cut_agrees(make, bytes.fromhex(text)) == [packet]


@pytest.mark.parametrize(("_name", "packet", "big", "little"), ALL, ids=ids(ALL))
def test_encodes_to_the_specified_bytes(
    _name: str, packet: lamamq.Packet, big: str, little: str
) -> None:
    assert lamamq.encode(packet) == bytes.fromhex(big)
    assert lamamq.encode(packet, order="big") == bytes.fromhex(big)
    assert lamamq.encode(packet, order="little") == bytes.fromhex(little)


@pytest.mark.parametrize(
    ("_name", "make", "packet", "big", "little"), HANDSHAKE, ids=ids(HANDSHAKE)
)
def test_a_handshake_decodes_from_the_specified_bytes(
    _name: str, make: Callable[..., Decoder[Any]], packet: lamamq.Packet, big: str, little: str
) -> None:
    for order, text in zip(ORDERS, (big, little), strict=True):
        assert_decodes(lambda order=order: make(order=order), text, packet)


@pytest.mark.parametrize(
    ("_name", "packet", "big", "little"), MESSAGES + FORWARDS, ids=ids(MESSAGES + FORWARDS)
)
def test_a_broker_decodes_messages_from_the_specified_bytes(
    _name: str, packet: lamamq.Packet, big: str, little: str
) -> None:
    for order, text in zip(ORDERS, (big, little), strict=True):
        assert_decodes(lambda order=order: open_broker(order=order), text, packet)


@pytest.mark.parametrize(("_name", "packet", "big", "little"), FORWARDS, ids=ids(FORWARDS))
def test_a_client_decodes_forwards_from_the_specified_bytes(
    _name: str, packet: lamamq.Packet, big: str, little: str
) -> None:
    for order, text in zip(ORDERS, (big, little), strict=True):
        assert_decodes(lambda order=order: open_client(order=order), text, packet)


@pytest.mark.parametrize("opened", [open_broker, open_client])
@pytest.mark.parametrize(("_name", "packet", "big", "little"), ANSWERS, ids=ids(ANSWERS))
def test_both_roles_decode_awaited_answers_from_the_specified_bytes(
    opened: Callable[..., Decoder[Any]], _name: str, packet: lamamq.Answer, big: str, little: str
) -> None:
    for order, text in zip(ORDERS, (big, little), strict=True):
        assert_decodes(lambda order=order: opened(packet.message_id, order=order), text, packet)


def test_the_whole_handshake_in_both_orders() -> None:
    for order, name in zip(ORDERS, ("00000001", "01000000"), strict=True):
        decoder = lamamq.BrokerDecoder(order=order)
        decoder.feed(bytes.fromhex(f"00 {name} 6E"))
        assert list(decoder) == [lamamq.Authentication("n")]
        decoder.feed(bytes.fromhex("01 00"))
        assert list(decoder) == [lamamq.VersionChoice(1, 0)]
        assert decoder.unread == 0


def test_the_numbers_are_those_of_the_tables() -> None:
    def numbers(table: Any) -> dict[str, int]:
        return {member.name: member.value for member in table}

    assert numbers(lamamq.MessageType) == {
        "PUSH": 0, "FORWARD": 1, "SUBSCRIBE": 32, "UNSUBSCRIBE": 33, "REGISTER": 64,
        "UNREGISTER": 65,
    }  # fmt: skip
    assert numbers(lamamq.ErrorCode) == {
        "SERVER_EXCEPTION": 1, "BAD_REQUEST": 2, "MIDDLEWARE_TIMEOUT": 3, "MIDDLEWARE_REFUSED": 4,
    }  # fmt: skip
    assert numbers(lamamq.PayloadType) == {"EMPTY": 0, "STRING": 1, "BUFFER": 2}
    assert numbers(lamamq.HookStrategy) == {"TELL": 0, "WAIT_OR_REFUSE": 1, "WAIT_OR_GO_ON": 2}
    assert numbers(lamamq.HookType) == {
        "CONNECT": 0, "DISCONNECT": 1, "MESSAGE_PUSHED": 16, "SUBSCRIBED": 32, "UNSUBSCRIBED": 33,
        "REGISTERED": 64, "UNREGISTERED": 65,
    }  # fmt: skip
    assert numbers(lamamq.ConditionType) == {"TOPIC_IS": 0, "HEADER_IS": 4, "HAS_HEADER": 5}
    assert lamamq.BROKER_ID_BIT == 2**31


def test_exactly_version_1_0_is_offered_and_accepted() -> None:
    assert lamamq.encode(lamamq.VERSIONS_OFFERED) == bytes.fromhex("01 00 01 00")
    accepted = [
        (major, minor)
        for major in range(256)
        for minor in range(256)
        if lamamq.accepts(lamamq.VersionChoice(major, minor))
    ]
    assert accepted == [(1, 0)]


def test_an_authentication_never_shows_its_key() -> None:
    shown = repr(lamamq.Authentication("n", b"hidden"))
    assert "hidden" not in shown
    assert "'n'" in shown
