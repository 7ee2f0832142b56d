"""Errors of fleximq carry what their answer needs, and survive pickling."""

import pickle

import pytest

from penstock.errors import ErrorCode
from penstock.wire import fleximq

ERRORS = [
    (fleximq.UnsupportedVersion(2), 501, "fleximq-unsupported-version"),
    (fleximq.UnknownType(99, "7"), 501, "fleximq-unknown-type"),
    (fleximq.BadHeader("why", 1, "7"), 400, "fleximq-bad-header"),
    (fleximq.InvalidRouting("why", 1, "7"), 602, "fleximq-invalid-routing"),
    (fleximq.BadAuth("why", 0), 604, "fleximq-bad-auth"),
    (fleximq.BadPayload("why", 1, "7"), 400, "fleximq-bad-payload"),
    (fleximq.BadClientId(5, 0), 400, "fleximq-bad-client-id"),
    (
        fleximq.PayloadTooLarge("header", 2, 1, 1, "7"),
        413,
        "fleximq-payload-too-large",
    ),
]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
def test_each_error_names_its_status_and_code_and_pickles(
    error: fleximq.FleximqError, status: int, code: ErrorCode
) -> None:
    assert (error.status, error.code) == (status, code)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert (copy.args, vars(copy), str(copy)) == (error.args, vars(error), str(error))
    assert (copy.message_type, copy.reqrep_id) == (error.message_type, error.reqrep_id)
    assert str(error)


@pytest.mark.parametrize(("error", "_status", "_code"), ERRORS)
def test_a_fault_can_be_told_of_which_message_it_is(
    error: fleximq.FleximqError, _status: int, _code: ErrorCode
) -> None:
    told = error.about(message_type=8, reqrep_id="x")
    assert type(told) is type(error)
    assert (told.message_type, told.reqrep_id) == (8, "x")
    assert told.args[:-2] == error.args[:-2]


def test_the_encoders_error_pickles() -> None:
    copy = pickle.loads(pickle.dumps(fleximq.InvalidMessage("why")))  # noqa: S301
    assert (copy.reason, str(copy), copy.code) == ("why", "why", ErrorCode.FIELD_OUT_OF_RANGE)


def test_no_error_quotes_a_secret() -> None:
    decoder = fleximq.BrokerDecoder()
    header = bytes.fromhex(
        "81 A4 61757468 82 A4 74797065 A6 733363726574 A5 746F6B656E A6 733363726574"
    )
    decoder.feed(bytes.fromhex("01 00 00000000" + "00" * 16) + len(header).to_bytes(4, "big"))
    decoder.feed(header + bytes(8))
    [item] = decoder
    assert isinstance(item.error, fleximq.BadAuth)  # type: ignore[union-attr]
    assert "s3cret" not in repr(item)
