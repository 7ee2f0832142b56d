"""The table of section 2.2.3: for each type each of the six fields, there and not there."""

import itertools

import pytest

from penstock.wire import fleximq
from penstock.wire.fleximq import (
    Header,
    KeepAlive,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    TokenAuth,
)
from penstock.wire.fleximq.headers import JOIN_REPLY, JOIN_WITH_REQREP, REQUIREMENTS, Field
from tests.unit.wire.fleximq import frames
from tests.unit.wire.fleximq.frames import decoded, frame

# R required, o optional, x forbidden
TABLE = """
       routing reqrep topic status auth keepalive
JOIN   x       x      x     x      o    x
REQ    R       R      x     o      x    x
REP    R       R      x     o      x    x
NOTIF  R       x      x     o      x    x
BCAST  x       x      x     o      x    x
PUB    o       x      R     o      x    x
SUB    x       x      R     x      x    x
UNSUB  x       x      R     x      x    x
PING   x       x      x     x      x    R
PONG   x       x      x     x      x    R
"""
[_FIELDS, *_ROWS] = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [
    (MessageType[name], field, rule)
    for name, *rules in _ROWS
    for field, rule in zip(_FIELDS, rules, strict=True)
]


def field_of(message_type: MessageType, field: str) -> str:
    """A valid value of `field`, as hex."""
    if field == "reqrep":
        return frames.CORRELATION if message_type is MessageType.REP else frames.REQUEST
    return str(getattr(frames, field.upper()))


def value_of(message_type: MessageType, field: str) -> object:
    """The same value, as an attribute of a header."""
    match field:
        case "routing":
            return (Routing(1000, "/"),)
        case "reqrep":
            is_reply = message_type is MessageType.REP
            return ReqRep(ReqRepType.CORRELATION if is_reply else ReqRepType.REQUEST, "7")
        case "topic":
            return "news"
        case "status":
            return 200
        case "auth":
            return TokenAuth("abc")
    return KeepAlive(5)


def required_of(message_type: MessageType) -> set[str]:
    return {field for row, field, rule in CELLS if row is message_type and rule == "R"}


def frame_with(message_type: MessageType, fields: set[str]) -> bytes:
    return frame(
        message_type, *(field_of(message_type, field) for field in _FIELDS if field in fields)
    )


def message_with(message_type: MessageType, fields: set[str]) -> Message:
    values = {field: value_of(message_type, field) for field in fields}
    client_id = 0 if message_type is MessageType.JOIN else 1000
    return Message(message_type, client_id, Header(**values))  # type: ignore[arg-type]


def test_the_columns_hold_each_field_exactly_once() -> None:
    for row in (*REQUIREMENTS.values(), JOIN_REPLY, JOIN_WITH_REQREP):
        columns = (row.required, row.optional, row.forbidden)
        assert sorted(itertools.chain(*columns)) == sorted(Field)
    assert set(REQUIREMENTS) == set(MessageType)
    assert list(Field) == _FIELDS


@pytest.mark.parametrize(("message_type", "field", "rule"), CELLS)
def test_the_table_is_the_printed_one(message_type: MessageType, field: str, rule: str) -> None:
    row = REQUIREMENTS[message_type]
    column = {"R": row.required, "o": row.optional, "x": row.forbidden}[rule]
    assert Field(field) in column


@pytest.mark.parametrize(("message_type", "field", "rule"), CELLS)
def test_the_broker_enforces_each_cell(message_type: MessageType, field: str, rule: str) -> None:
    required = required_of(message_type)
    with_field, without_field = required | {field}, required - {field}
    make = fleximq.BrokerDecoder
    for fields, refused in ((with_field, rule == "x"), (without_field, rule == "R")):
        [item] = decoded(frame_with(message_type, fields), make(strict=True))
        if refused:
            assert type(item) is fleximq.BadHeader
            assert item.status is fleximq.StatusCode.BAD_REQUEST
            assert field in str(item)
        else:
            assert item == message_with(message_type, fields)


@pytest.mark.parametrize(
    ("message_type", "field", "rule"), [cell for cell in CELLS if cell[0] is not MessageType.JOIN]
)
def test_a_joined_client_enforces_each_cell(
    message_type: MessageType, field: str, rule: str
) -> None:
    required = required_of(message_type)
    with_field, without_field = required | {field}, required - {field}
    for fields, refused in ((with_field, rule == "x"), (without_field, rule == "R")):
        decoder = fleximq.ClientDecoder()
        assert len(decoded(frame(frames.REP, frames.STATUS), decoder)) == 1
        [item] = decoded(frame_with(message_type, fields), decoder)
        if refused:
            assert type(item) is fleximq.BadHeader
        else:
            assert item == message_with(message_type, fields)


@pytest.mark.parametrize(("message_type", "field", "rule"), CELLS)
def test_the_encoder_enforces_each_cell(message_type: MessageType, field: str, rule: str) -> None:
    required = required_of(message_type)
    if (message_type, field) == (MessageType.JOIN, "reqrep"):
        rule = "o"  # section 4.2
    with_field, without_field = required | {field}, required - {field}
    for fields, refused in ((with_field, rule == "x"), (without_field, rule == "R")):
        message = message_with(message_type, fields)
        if refused:
            with pytest.raises(fleximq.InvalidMessage):
                fleximq.encode(message)
        else:
            assert fleximq.encode(message) == frame_with(message_type, fields)


def test_join_may_carry_reqrep_except_in_strict_mode() -> None:
    join = frame(frames.JOIN, frames.REQUEST, frames.AUTH)
    [message] = decoded(join)
    assert message.header == Header(reqrep=ReqRep(ReqRepType.REQUEST, "7"), auth=TokenAuth("abc"))
    [error] = decoded(join, fleximq.BrokerDecoder(strict=True))
    assert type(error) is fleximq.BadHeader
    assert error.reqrep_id == "7"


def test_the_other_forbidden_fields_of_join_stay_forbidden_with_reqrep() -> None:
    for field in ("routing", "topic", "status", "keepalive"):
        [error] = decoded(frame(frames.JOIN, frames.REQUEST, field_of(MessageType.JOIN, field)))
        assert type(error) is fleximq.BadHeader


@pytest.mark.parametrize("fields", [(), (frames.STATUS,), (frames.CORRELATION, frames.STATUS)])
def test_only_the_reply_to_join_may_lack_routing(fields: tuple[str, ...]) -> None:
    reply = frame(frames.REP, *fields)
    [first, second] = decoded(reply + reply, fleximq.ClientDecoder())
    assert first.header.routing is None
    assert type(second) is fleximq.BadHeader
    [error] = decoded(reply)
    assert type(error) is fleximq.BadHeader


def test_the_reply_to_join_has_no_other_field() -> None:
    for field in (frames.TOPIC, frames.AUTH, frames.KEEPALIVE):
        [error] = decoded(frame(frames.REP, frames.STATUS, field), fleximq.ClientDecoder())
        assert type(error) is fleximq.BadHeader


def test_until_a_reply_reports_success_another_may_follow() -> None:
    refused = "A6 737461747573 CD 0191"
    accepted = frame(frames.REP, frames.STATUS)
    items = decoded(
        frame(frames.REP, refused, client_id=0) * 2 + accepted * 2, fleximq.ClientDecoder()
    )
    assert [item.header.status for item in items[:3]] == [401, 401, 200]
    assert type(items[3]) is fleximq.BadHeader


def test_a_rejected_reply_does_not_count_as_the_reply_to_join() -> None:
    bad_payload = frame(frames.REP, frames.STATUS, payload="C1")
    items = decoded(bad_payload + frame(frames.REP, frames.STATUS), fleximq.ClientDecoder())
    assert type(items[0]) is fleximq.BadPayload
    assert items[1].header.status == 200


def test_a_routed_reply_that_reports_success_counts_as_the_reply_to_join() -> None:
    routed = frame(frames.REP, frames.ROUTING, frames.CORRELATION)
    items = decoded(routed + frame(frames.REP, frames.STATUS), fleximq.ClientDecoder())
    assert items[0].header.routing == (Routing(1000, "/"),)
    assert type(items[1]) is fleximq.BadHeader
