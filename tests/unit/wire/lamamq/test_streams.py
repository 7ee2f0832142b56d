"""Cuts, limits, the optional key and the awaited ids: what only a stream can show."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import ByteOrder
from penstock.wire import lamamq
from penstock.wire.decoder import Decoder
from penstock.wire.lamamq import decoder as decoder_module
from penstock.wire.lamamq.cursor import Cursor
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all
from tests.unit.wire.lamamq.roles import ORDERS, open_broker, open_client

BUFFER = lamamq.PayloadType.BUFFER
HELLO = lamamq.Message(1, "a/b", (("k", b"v"),), BUFFER, b"hello")

# --- Every cut --------------------------------------------------------------------------------


def test_a_clients_stream_does_not_depend_on_where_it_is_cut() -> None:
    packets = [
        lamamq.Authentication("dev-1", b"key"),
        lamamq.VersionChoice(1, 0),
        lamamq.Push(1, HELLO),
        lamamq.Subscribe(2, "a/#"),
        lamamq.Answer(0x80000001),
        lamamq.Answer(0x80000002, lamamq.ErrorCode.MIDDLEWARE_REFUSED, "no"),
        lamamq.Register(
            3, "h", 1, 2, lamamq.HookStrategy.TELL, lamamq.HookType.MESSAGE_PUSHED,
            (lamamq.TopicIs("t"), lamamq.HeaderIs("k", b"v"), lamamq.HasHeader("k")),
        ),
        lamamq.Unregister(4, "h"),
        lamamq.Unsubscribe(5, "a/#"),
    ]  # fmt: skip
    for order in ORDERS:

        def make(order: Any = order) -> lamamq.BrokerDecoder:
            decoder = lamamq.BrokerDecoder(order=order, key_required=True)
            decoder.awaited.update((0x80000001, 0x80000002))
            return decoder

        stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
        assert assert_every_cut_agrees(make, stream) == packets


def test_a_brokers_stream_does_not_depend_on_where_it_is_cut() -> None:
    packets = [
        lamamq.VERSIONS_OFFERED,
        lamamq.Answer(1),
        lamamq.Forward(0x80000001, HELLO),
        lamamq.Answer(2, lamamq.ErrorCode.SERVER_EXCEPTION, "no"),
        lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "no"),
    ]
    for order in ORDERS:

        def make(order: Any = order) -> lamamq.ClientDecoder:
            decoder = lamamq.ClientDecoder(order=order)
            decoder.awaited.update((1, 2))
            return decoder

        stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
        assert assert_every_cut_agrees(make, stream) == packets


def test_a_payload_in_pieces_is_not_read_again_for_each_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cursors = 0

    def counting(*arguments: Any) -> Cursor:
        nonlocal cursors
        cursors += 1
        return Cursor(*arguments)

    decoder = open_broker()
    monkeypatch.setattr(decoder_module, "Cursor", counting)
    push = lamamq.Push(1, lamamq.Message(1, "t", (), BUFFER, bytes(200_000)))
    stream = lamamq.encode(push)
    pieces = [stream[at : at + 100] for at in range(0, len(stream), 100)]
    assert decode_all(decoder, pieces) == [push]
    assert cursors == 2  # when the prefix was there and when the last byte was


# --- The optional key -------------------------------------------------------------------------

NAME = bytes.fromhex("00 00000001 6E")
KEY = bytes.fromhex("00000002 6B6B")


def test_where_no_key_is_required_a_name_alone_is_an_authentication() -> None:
    decoder = lamamq.BrokerDecoder()
    assert decode_all(decoder, [NAME]) == [lamamq.Authentication("n")]
    assert decode_all(decoder, [b"\x01", b"\x00"]) == [lamamq.VersionChoice(1, 0)]


def handshake(order: ByteOrder, key: bytes | None) -> bytes:
    authentication = lamamq.Authentication("n", key)
    return lamamq.encode(authentication, order=order) + b"\x01\x00"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", [None, b"", b"kk", b"k3y", bytes(4096)])
def test_where_no_key_is_required_every_cut_ends_in_the_choice(
    order: ByteOrder, key: bytes | None
) -> None:
    """Once broken: a key that came after the name was read as the choice of version 0.0."""
    stream = handshake(order, key)
    for cut in range(0, len(stream) + 1, 1 if len(stream) < 100 else 97):
        decoder = lamamq.BrokerDecoder(order=order)
        authentication, choice = decode_all(decoder, [stream[:cut], stream[cut:]])
        assert authentication in (lamamq.Authentication("n", key), lamamq.Authentication("n"))
        assert choice == lamamq.VersionChoice(1, 0)


def test_a_key_of_one_byte_comes_with_the_name_in_little_endian_order() -> None:
    with_key = [lamamq.Authentication("n", b"k"), lamamq.VersionChoice(1, 0)]
    assert decode_all(lamamq.BrokerDecoder(order="little"), [handshake("little", b"k")]) == with_key
    assert decode_all(lamamq.BrokerDecoder(), [handshake("big", b"k")]) == with_key


def test_a_choice_that_cannot_be_a_key_is_a_choice() -> None:
    for order, choice in itertools.product(ORDERS, [b"\x02\x00", b"\x00\x01", b"\xff\xff"]):
        decoder = lamamq.BrokerDecoder(order=order)
        items = decode_all(decoder, [NAME if order == "big" else b"\x00\x01\x00\x00\x00n"])
        items += decode_all(decoder, [choice])
        if order == "little":  # the length of a key, until four bytes are there
            assert len(items) == 1
            items += decode_all(decoder, [b"\x00\x07"])
        assert items[1] == lamamq.VersionChoice(*choice)


def test_where_no_key_is_required_a_name_is_offered_versions_before_the_key_is_whole() -> None:
    decoder = lamamq.BrokerDecoder()
    assert decode_all(decoder, [NAME, KEY[:2]]) == [lamamq.Authentication("n")]
    assert decode_all(decoder, [KEY[2:] + b"\x01\x00"]) == [lamamq.VersionChoice(1, 0)]


def test_where_a_key_is_required_it_is_waited_for() -> None:
    def make() -> lamamq.BrokerDecoder:
        return lamamq.BrokerDecoder(key_required=True)

    assert decode_all(make(), [NAME]) == []
    assert assert_every_cut_agrees(make, NAME + KEY + b"\x01\x00") == [
        lamamq.Authentication("n", b"kk"),
        lamamq.VersionChoice(1, 0),
    ]


# --- Awaited ids ------------------------------------------------------------------------------


def test_a_broker_reads_an_awaited_id_as_an_answer_once_and_then_by_its_type() -> None:
    decoder = open_broker(0x80000001)
    answer = bytes.fromhex("80000001 00")
    push = lamamq.Push(0x80000001, HELLO)
    assert decode_all(decoder, [answer + lamamq.encode(push)]) == [
        lamamq.Answer(0x80000001),
        push,
    ]
    assert decoder.awaited == set()


def test_a_broker_reads_id_0_by_its_type() -> None:
    push = lamamq.Push(0, HELLO)
    assert decode_all(open_broker(1), [lamamq.encode(push)]) == [push]


def test_a_client_reads_an_awaited_id_as_an_answer_once_and_then_as_a_forward() -> None:
    decoder = open_client(7, 8)
    error = lamamq.Answer(7, lamamq.ErrorCode.SERVER_EXCEPTION, "no")  # error 1 looks like FORWARD
    forward = lamamq.Forward(7, HELLO)
    stream = lamamq.encode(error) + lamamq.encode(forward)
    assert decode_all(decoder, [stream]) == [error, forward]
    assert decoder.awaited == {8}


def test_an_id_is_awaited_until_its_answer_is_whole() -> None:
    decoder = open_client(7)
    assert decode_all(decoder, [bytes.fromhex("00000007 02 00000002 6E")]) == []
    assert decoder.awaited == {7}
    decoder.feed(b"o")
    assert list(decoder) == [lamamq.Answer(7, lamamq.ErrorCode.BAD_REQUEST, "no")]
    assert decoder.awaited == set()


def test_an_id_may_become_awaited_between_two_packets_of_one_feed() -> None:
    decoder = open_broker()
    decoder.feed(lamamq.encode(lamamq.Push(1, HELLO)) + bytes.fromhex("80000001 00"))
    items = iter(decoder)
    assert next(items) == lamamq.Push(1, HELLO)
    decoder.awaited.add(0x80000001)
    assert list(items) == [lamamq.Answer(0x80000001)]


def test_a_client_reads_id_0_as_an_answer_before_and_behind_the_offer() -> None:
    refusal = lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "no")
    assert decode_all(lamamq.ClientDecoder(), [lamamq.encode(refusal)]) == [refusal]
    assert decode_all(open_client(), [lamamq.encode(refusal)]) == [refusal]


# --- Limits -----------------------------------------------------------------------------------


HOOK = "00000007 40 00000001 68 00000000 00000000 00 10"
HEADERS = "00000007 00 00000000 00000000"
TOPIC_MAX = f"{TOPIC_NAME_BYTES_MAX:08X}"
TOPIC_BEYOND = f"{TOPIC_NAME_BYTES_MAX + 1:08X}"
CLIENT, BROKER, ANSWERED = "client", "broker", "answered"

# name, who reads, prefix whose last field is at its limit, the same one beyond, the error's part
# and its size
LIMITS = [
    ("identity name", CLIENT, "00 00000400", "00 00000401", "identity name bytes", 1025),
    ("identity key", CLIENT, "00 00000001 61 00001000", "00 00000001 61 00001001",
     "identity key bytes", 4097),
    ("routing key", BROKER, f"00000007 00 00000000 {TOPIC_MAX}",
     f"00000007 00 00000000 {TOPIC_BEYOND}", "routing key bytes", TOPIC_NAME_BYTES_MAX + 1),
    ("SUBSCRIBE routing key", BROKER, f"00000007 20 {TOPIC_MAX}", f"00000007 20 {TOPIC_BEYOND}",
     "routing key bytes", TOPIC_NAME_BYTES_MAX + 1),
    ("UNSUBSCRIBE routing key", BROKER, f"00000007 21 {TOPIC_MAX}", "00000007 21 FFFFFFFF",
     "routing key bytes", 0xFFFFFFFF),
    ("header key", BROKER, f"{HEADERS} 0001 000FFFFC", f"{HEADERS} 0001 000FFFFD",
     "header bytes", 1_048_577),
    ("header value", BROKER, f"{HEADERS} 0001 00000001 61 000FFFF7",
     f"{HEADERS} 0001 00000001 61 000FFFF8", "header bytes", 1_048_577),
    ("second header", BROKER, f"{HEADERS} 0002 00000001 61 00000001 61 000FFFF2",
     f"{HEADERS} 0002 00000001 61 00000001 61 000FFFF3", "header bytes", 1_048_577),
    ("string payload", BROKER, f"{HEADERS} 0000 01 01000000", f"{HEADERS} 0000 01 01000001",
     "payload bytes", 16_777_217),
    ("buffer payload", BROKER, f"{HEADERS} 0000 02 01000000", f"{HEADERS} 0000 02 01000001",
     "payload bytes", 16_777_217),
    ("hook name", BROKER, "00000007 40 000000FF", "00000007 40 00000100", "hook name bytes", 256),
    ("hook name to remove", BROKER, "00000007 41 000000FF", "00000007 41 00000100",
     "hook name bytes", 256),
    ("hook conditions", BROKER, f"{HOOK} 0040", f"{HOOK} 0041", "hook conditions", 65),
    ("condition's topic", BROKER, f"{HOOK} 0001 00 {TOPIC_MAX}", f"{HOOK} 0001 00 {TOPIC_BEYOND}",
     "condition's topic bytes", TOPIC_NAME_BYTES_MAX + 1),
    ("condition's header", BROKER, f"{HOOK} 0001 05 00010000", f"{HOOK} 0001 05 00010001",
     "condition's header bytes", 65_537),
    ("condition's header with a value", BROKER, f"{HOOK} 0001 04 00010000",
     f"{HOOK} 0001 04 00010001", "condition's header bytes", 65_537),
    ("condition's value", BROKER, f"{HOOK} 0001 04 00000000 00010000",
     f"{HOOK} 0001 04 00000000 00010001", "condition's value bytes", 65_537),
    ("error message", ANSWERED, "00000007 02 00010000", "00000007 02 00010001",
     "error message bytes", 65_537),
]  # fmt: skip

MAKERS: dict[str, list[Callable[[], Decoder[Any]]]] = {
    CLIENT: [lambda: lamamq.BrokerDecoder(key_required=True)],
    BROKER: [open_broker],
    ANSWERED: [lambda: open_broker(7), lambda: open_client(7)],
}


@pytest.mark.parametrize(
    ("_name", "reader", "allowed", "beyond", "part", "size"),
    LIMITS,
    ids=[row[0] for row in LIMITS],
)
def test_a_limit_is_judged_before_what_it_bounds_is_there(
    _name: str, reader: str, allowed: str, beyond: str, part: str, size: int
) -> None:
    for make in MAKERS[reader]:
        assert decode_all(make(), [bytes.fromhex(allowed)]) == []
        stream = bytes.fromhex(beyond)
        [(outcome, error, arguments)] = assert_every_cut_agrees(make, stream)
        message_id = 0 if reader == CLIENT else 7
        assert (outcome, error) == ("failed", lamamq.TooLarge)
        assert arguments[:3] == (message_id, part, size)
        assert arguments[3] < size
        assert_stays_failed(make(), stream, lamamq.TooLarge)


def test_a_clients_forward_has_the_limits_of_a_push() -> None:
    [(outcome, error, arguments)] = decode_all(
        open_client(), [bytes.fromhex("80000007 01 00000000 00000000 0000 02 01000001")]
    )
    assert (outcome, error) == ("failed", lamamq.TooLarge)
    assert arguments == (0x80000007, "payload bytes", 16_777_217, 16_777_216)


def test_decoders_take_other_limits() -> None:
    limits = lamamq.Limits(payload_bytes_max=3)
    within = bytes.fromhex("00000007 01 00000000 00000000 0000 02 00000003 616263")
    beyond = bytes.fromhex("00000007 01 00000000 00000000 0000 02 00000004")
    for opened in (open_broker, open_client):
        assert len(decode_all(opened(limits=limits), [within])) == 1
        assert_stays_failed(opened(limits=limits), beyond, lamamq.TooLarge)


# --- Answers to plain forwards ----------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_an_answer_to_a_forward_is_told_from_a_push(order: ByteOrder) -> None:
    """Once broken: such an answer was read as a request, and the connection closed."""
    mine, other = 0x8000_0007, 0x9000_0000
    decoder = lamamq.BrokerDecoder(order=order, recalls=lambda number: number == mine)
    decode_all(decoder, [lamamq.encode(lamamq.Authentication("n"), order=order), b"\x01\x00"])
    failed = lamamq.Answer(mine, lamamq.ErrorCode.SERVER_EXCEPTION, "failed")
    packets: list[Any] = [
        lamamq.Answer(mine),
        lamamq.Push(5, HELLO),
        failed,
        lamamq.Subscribe(6, "a"),
        lamamq.Answer(mine),
        lamamq.Unsubscribe(mine, "a"),
        lamamq.Push(other, HELLO),  # a client whose ids are in the broker's range
        lamamq.Push(mine, HELLO),
        lamamq.Forward(mine, HELLO),
        lamamq.Answer(mine),
    ]
    stream = b"".join(lamamq.encode(packet, order=order) for packet in packets)
    assert decode_all(decoder, [stream]) == packets
