"""What LamaMQ forbids, each with the error that answers it."""

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock import errors
from penstock.errors import FieldOutOfRange, OutOfSequence
from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.wire import lamamq
from penstock.wire.decoder import Decoder
from penstock.wire.lamamq import BROKER, CLIENT, BrokerState, ClientState, PayloadType
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all
from tests.unit.wire.lamamq.roles import open_broker, open_client

UNSUBSCRIBE = bytes.fromhex("00000001 21 00000001 61")
HOOK = "00000001 68 00000000 00000000"  # hook name, priority, timeout

REJECTED = [
    ("PUSH routing key", "00000007 00 00000000 00000001 FF 0000 00", "the routing key is not UTF-8"),
    ("PUSH header key", "00000007 00 00000000 00000000 0001 00000001 80 00000000 02 00000001 61", "the header key is not UTF-8"),
    ("FORWARD routing key", "00000007 01 00000000 00000001 FF 0000 00", "the routing key is not UTF-8"),
    ("SUBSCRIBE routing key", "00000007 20 00000002 C328", "the routing key is not UTF-8"),
    ("UNSUBSCRIBE routing key", "00000007 21 00000001 FF", "the routing key is not UTF-8"),
    ("REGISTER hook name", "00000007 40 00000001 FF 00000000 00000000 00 00", "the hook name is not UTF-8"),
    ("REGISTER hook name empty", "00000007 40 00000000 00000000 00000000 00 00", "the hook name is empty"),
    ("REGISTER topic", f"00000007 40 {HOOK} 00 10 0001 00 00000001 FF", "the condition's topic is not UTF-8"),
    ("REGISTER header", f"00000007 40 {HOOK} 00 10 0001 04 00000001 FF 00000000", "the condition's header is not UTF-8"),
    ("REGISTER has header", f"00000007 40 {HOOK} 00 10 0001 05 00000001 FF", "the condition's header is not UTF-8"),
    ("UNREGISTER hook name", "00000007 41 00000001 FF", "the hook name is not UTF-8"),
    ("UNREGISTER hook name empty", "00000007 41 00000000", "the hook name is empty"),
    ("two faults, the first counts", "00000007 40 00000000 00000000 00000000 09 00", "the hook name is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "text", "reason"), REJECTED, ids=[row[0] for row in REJECTED])
def test_a_bad_field_of_known_size_is_rejected_and_the_stream_goes_on(
    _name: str, text: str, reason: str
) -> None:
    items = assert_every_cut_agrees(open_broker, bytes.fromhex(text) + UNSUBSCRIBE)
    assert items == [("rejected", lamamq.BadRequest, (7, reason)), lamamq.Unsubscribe(1, "a")]


def test_every_strategy_outside_the_table_is_rejected() -> None:
    for strategy in range(3, 256):
        for rest in ("00", "10 0001 05 00000001 61"):
            packet = bytes.fromhex(f"00000007 40 {HOOK} {strategy:02X} {rest}")
            assert decode_all(open_broker(), [packet + UNSUBSCRIBE]) == [
                ("rejected", lamamq.BadRequest, (7, f"unknown strategy {strategy}")),
                lamamq.Unsubscribe(1, "a"),
            ]


@pytest.mark.parametrize("opened", [open_broker, open_client])
def test_every_error_code_outside_the_table_is_rejected_and_awaited_no_more(
    opened: Callable[..., Any],
) -> None:
    for code in range(5, 256):
        decoder = opened(7, 8)
        answers = bytes.fromhex(f"00000007 {code:02X} 00000001 61  00000008 00")
        assert decode_all(decoder, [answers]) == [
            ("rejected", lamamq.BadRequest, (7, f"unknown error code {code}")),
            lamamq.Answer(8),
        ]
        assert decoder.awaited == set()


@pytest.mark.parametrize("opened", [open_broker, open_client])
def test_an_error_message_that_is_not_utf8_is_rejected(opened: Callable[..., Any]) -> None:
    answers = bytes.fromhex("00000007 01 00000001 FF  00000008 00")
    assert assert_every_cut_agrees(lambda: opened(7, 8), answers) == [
        ("rejected", lamamq.BadRequest, (7, "the error message is not UTF-8")),
        lamamq.Answer(8),
    ]


# --- Framing lost -----------------------------------------------------------------------------


def assert_lost(make: Callable[[], Decoder[Any]], text: str, *args: Any) -> None:
    """`text`, whole and in every cut, loses framing for good at its last byte."""
    stream = bytes.fromhex(text)
    error = lamamq.BadRequest if len(args) == 2 else lamamq.TooLarge
    assert decode_all(make(), [stream[:-1]]) == []
    assert assert_every_cut_agrees(make, stream) == [("failed", error, args)]
    assert_stays_failed(make(), stream, error)


def test_every_message_type_outside_the_table_loses_framing() -> None:
    for kind in set(range(256)) - {0, 1, 32, 33, 64, 65}:
        text = f"80000007 {kind:02X}"
        assert_lost(open_broker, text, 0x80000007, f"unknown message type {kind}")


def test_a_client_takes_nothing_but_forwards_and_awaited_answers() -> None:
    for kind in set(range(256)) - {1}:
        reason = f"type {kind} is no forward, nor an awaited answer"
        assert_lost(lambda: open_client(8), f"00000007 {kind:02X}", 7, reason)


@pytest.mark.parametrize(("opened", "kind"), [(open_broker, 0), (open_broker, 1), (open_client, 1)])
def test_every_payload_type_outside_the_table_loses_framing(
    opened: Callable[[], Decoder[Any]], kind: int
) -> None:
    for payload_type in range(3, 256):
        text = f"00000007 {kind:02X} 00000000 00000000 0000 {payload_type:02X}"
        assert_lost(opened, text, 7, f"unknown payload type {payload_type}")


def test_every_hook_type_outside_the_table_loses_framing() -> None:
    for hook_type in set(range(256)) - {0, 1, 16, 32, 33, 64, 65}:
        text = f"00000007 40 {HOOK} 00 {hook_type:02X}"
        assert_lost(open_broker, text, 7, f"unknown hook type {hook_type}")


def test_every_condition_type_outside_the_table_loses_framing() -> None:
    for kind in set(range(256)) - {0, 4, 5}:
        text = f"00000007 40 {HOOK} 00 10 0001 {kind:02X}"
        assert_lost(open_broker, text, 7, f"unknown condition type {kind}")


def test_a_fault_before_the_loss_of_framing_does_not_hide_it() -> None:
    text = "00000007 00 00000000 00000001 FF 0000 03"
    assert_lost(open_broker, text, 7, "unknown payload type 3")


@pytest.mark.parametrize("key_required", [False, True])
def test_every_fault_of_an_authentication_loses_framing(key_required: bool) -> None:  # noqa: FBT001
    def make() -> lamamq.BrokerDecoder:
        return lamamq.BrokerDecoder(key_required=key_required)

    for method in range(1, 256):
        assert_lost(make, f"{method:02X}", 0, f"unknown authentication method {method}")
    assert_lost(make, "00 00000000", 0, "the identity name is empty")
    assert_lost(make, "00 00000001 FF", 0, "the identity name is not UTF-8")


def test_faults_of_the_name_come_before_the_key() -> None:
    for stream in ("00 00000000 00000001 61", "00 00000001 FF 00000001 61"):
        [(outcome, error, _)] = decode_all(lamamq.BrokerDecoder(), [bytes.fromhex(stream)])
        assert (outcome, error) == ("failed", lamamq.BadRequest)


# --- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lamamq.BadRequest(7, "why"), "lamamq-bad-request"),
        (lamamq.TooLarge(7, "payload bytes", 2, 1), errors.ErrorCode.FRAME_TOO_LARGE),
    ],
)
def test_each_error_names_its_answer_and_survives_pickling(
    error: lamamq.LamaError, code: errors.ErrorCode
) -> None:
    assert isinstance(error, errors.WireError)
    assert error.code == code
    assert error.answer is lamamq.ErrorCode.BAD_REQUEST
    assert error.message_id == 7
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))
    assert str(again) == str(error)


def test_errors_say_what_was_wrong() -> None:
    assert str(lamamq.BadRequest(7, "why")) == "bad request: why"
    too_many = lamamq.TooLarge(7, "headers", 300, 256)
    assert str(too_many) == "300 headers exceed the limit of 256"


# --- The encoder ------------------------------------------------------------------------------


def pushed(**changes: Any) -> lamamq.Push:
    fields = {
        "created_at": 0,
        "routing_key": "t",
        "headers": (),
        "payload_type": PayloadType.BUFFER,
        "payload": b"",
    }
    return lamamq.Push(1, lamamq.Message(**(fields | changes)))


def registered(**changes: Any) -> lamamq.Register:
    fields = {
        "message_id": 1,
        "hook_name": "h",
        "priority": 0,
        "timeout_ms": 0,
        "strategy": lamamq.HookStrategy.TELL,
        "hook_type": lamamq.HookType.MESSAGE_PUSHED,
    }
    return lamamq.Register(**(fields | changes))


FITS = [
    pushed(routing_key="k" * TOPIC_NAME_BYTES_MAX),
    pushed(headers=(("k", b"v"),) * 256),
    pushed(headers=(("k" * 40_000, bytes(65_536 - 8 - 40_000)),)),
    pushed(payload=bytes(16 * 2**20)),
    lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "t" * 65_536),
    lamamq.Authentication("n" * 1024, bytes(4096)),
    registered(hook_name="h" * 255),
    registered(conditions=(lamamq.HasHeader("h"),) * 64),
    registered(conditions=(lamamq.TopicIs("t" * TOPIC_NAME_BYTES_MAX),)),
    registered(conditions=(lamamq.HeaderIs("h" * 65_536, bytes(65_536)),)),
]

DOES_NOT_FIT = [
    lamamq.Push(2**32, pushed().message),
    lamamq.Push(-1, pushed().message),
    lamamq.Forward(2**32, pushed().message),
    pushed(created_at=2**32),
    pushed(created_at=-1),
    pushed(routing_key="k" * (TOPIC_NAME_BYTES_MAX + 1)),
    pushed(routing_key="é" * (TOPIC_NAME_BYTES_MAX // 2 + 1)),
    pushed(headers=(("k", b"v"),) * 65_536),
    pushed(headers=(("k" * 40_000, bytes(2**20 - 7 - 40_000)),)),
    pushed(headers=(("k" * (2**20 + 1), b""),)),
    pushed(payload=bytes(16 * 2**20 + 1)),
    pushed(payload_type=PayloadType.EMPTY, payload=b"x"),
    lamamq.Answer(2**32),
    lamamq.Answer(0, None, "text without an error"),
    lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "t" * 65_537),
    lamamq.Authentication("n" * 1025),
    lamamq.Authentication("n", bytes(4097)),
    lamamq.Authentication("n", None, 256),
    lamamq.VersionOffer((256, 0), (1, 0)),
    lamamq.VersionOffer((1, 0), (1, -1)),
    lamamq.VersionChoice(1, 256),
    lamamq.Subscribe(2**32, "t"),
    lamamq.Subscribe(1, "t" * (TOPIC_NAME_BYTES_MAX + 1)),
    lamamq.Unsubscribe(-1, "t"),
    lamamq.Unsubscribe(1, "t" * (TOPIC_NAME_BYTES_MAX + 1)),
    registered(message_id=2**32),
    registered(hook_name="h" * 256),
    registered(priority=2**32),
    registered(timeout_ms=-1),
    registered(conditions=(lamamq.HasHeader("h"),) * 65),
    registered(conditions=(lamamq.TopicIs("t" * (TOPIC_NAME_BYTES_MAX + 1)),)),
    registered(conditions=(lamamq.HasHeader("h" * 65_537),)),
    registered(conditions=(lamamq.HeaderIs("h" * 65_537, b""),)),
    registered(conditions=(lamamq.HeaderIs("h", bytes(65_537)),)),
    *(
        registered(hook_type=hook_type, conditions=(lamamq.HasHeader("h"),))
        for hook_type in set(lamamq.HookType) - {lamamq.HookType.MESSAGE_PUSHED}
    ),
    lamamq.Unregister(2**32, "h"),
    lamamq.Unregister(1, "h" * 256),
]


@pytest.mark.parametrize("packet", FITS, ids=itertools.count())
def test_the_encoder_takes_what_just_fits(packet: lamamq.Packet) -> None:
    assert lamamq.encode(packet)


@pytest.mark.parametrize("packet", DOES_NOT_FIT, ids=itertools.count())
def test_the_encoder_refuses_what_does_not_fit(packet: lamamq.Packet) -> None:
    with pytest.raises(FieldOutOfRange):
        lamamq.encode(packet)


def test_the_encoder_takes_other_limits() -> None:
    limits = lamamq.Limits(payload_bytes_max=3)
    assert lamamq.encode(pushed(payload=b"123"), limits=limits)
    with pytest.raises(FieldOutOfRange):
        lamamq.encode(pushed(payload=b"1234"), limits=limits)


# --- States -----------------------------------------------------------------------------------

EXAMPLES: list[lamamq.Packet] = [
    lamamq.Authentication("n"),
    lamamq.VersionOffer((1, 0), (1, 0)),
    lamamq.VersionChoice(1, 0),
    pushed(),
    lamamq.Forward(1, pushed().message),
    lamamq.Subscribe(1, "t"),
    lamamq.Unsubscribe(1, "t"),
    registered(),
    lamamq.Unregister(1, "h"),
    lamamq.Answer(1),
]


def assert_exactly(table: Any, states: Any, legal: dict[Any, Any]) -> None:
    for state, packet in itertools.product(states, EXAMPLES):
        expected = legal.get((state, type(packet).__name__))
        if expected is None:
            with pytest.raises(OutOfSequence):
                table.advance(state, packet)
        else:
            assert table.advance(state, packet) is expected


def test_the_broker_allows_exactly_these_moves() -> None:
    authentication, choice, opened = BrokerState
    legal = {
        (authentication, "Authentication"): choice,
        (choice, "VersionChoice"): opened,
        **{
            (opened, name): opened
            for name in (
                "Push",
                "Forward",
                "Subscribe",
                "Unsubscribe",
                "Register",
                "Unregister",
                "Answer",
            )
        },
    }
    assert_exactly(BROKER, BrokerState, legal)


def test_the_client_allows_exactly_these_moves() -> None:
    awaiting, opened, closed = ClientState
    legal = {
        (awaiting, "VersionOffer"): opened,
        (awaiting, "Answer"): closed,
        (opened, "Answer"): opened,
        (opened, "Forward"): opened,
    }
    assert_exactly(CLIENT, ClientState, legal)
