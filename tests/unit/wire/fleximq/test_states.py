"""The join handshake: which message is legal in which state, and which is not."""

import itertools

import pytest

from penstock.errors import OutOfSequence
from penstock.wire.fleximq import (
    BROKER,
    CLIENT,
    BrokerState,
    ClientState,
    Header,
    Message,
    MessageType,
)

OTHERS = {"REQ", "REP", "NOTIF", "BCAST", "PUB", "SUB", "UNSUB", "PING", "PONG"}
# Each type, and a REP that reports failure
EXAMPLES = {member.name: Message(member, 1000) for member in MessageType} | {
    "failed REP": Message(MessageType.REP, 1000, Header(status=503))
}


def test_the_broker_allows_exactly_these_moves() -> None:
    awaiting, joined, _closed = BrokerState
    legal = {
        (awaiting, "JOIN"): joined,
        **{(joined, name): joined for name in OTHERS | {"failed REP"}},
    }
    for state, (name, message) in itertools.product(BrokerState, EXAMPLES.items()):
        expected = legal.get((state, name))
        if expected is None:
            with pytest.raises(OutOfSequence):
                BROKER.advance(state, message)
        else:
            assert BROKER.advance(state, message) is expected


def test_the_client_allows_exactly_these_moves() -> None:
    awaiting, joined, _closed = ClientState
    legal = {
        (awaiting, "REP"): joined,
        (awaiting, "failed REP"): awaiting,
        (awaiting, "NOTIF"): awaiting,
        (awaiting, "PING"): awaiting,
        **{(joined, name): joined for name in (OTHERS | {"failed REP"}) - {"SUB", "UNSUB"}},
    }
    for state, (name, message) in itertools.product(ClientState, EXAMPLES.items()):
        expected = legal.get((state, name))
        if expected is None:
            with pytest.raises(OutOfSequence):
                CLIENT.advance(state, message)
        else:
            assert CLIENT.advance(state, message) is expected


def test_what_is_out_of_sequence_is_named_by_its_type() -> None:
    with pytest.raises(OutOfSequence, match="PUB is not allowed in state AWAITING_JOIN"):
        BROKER.advance(BrokerState.AWAITING_JOIN, EXAMPLES["PUB"])
