"""Section 2.2.3 over the wire: a field too many or too few is 400, and the connection goes on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import frame
from tests.support.live import LiveBroker

FIELDS: dict[str, Any] = {
    **fx.routing((1, "/time")),
    **fx.request("h1"),
    **fx.topic("table"),
    **fx.status(200),
    "auth": {"type": "token", "token": "t"},
    **fx.keepalive(1),
}
# The table as it is printed: required, optional; all other fields are forbidden. JOIN's row is in
# test_01_join.py, since it is for clients that have not joined.
TABLE = {
    fx.REQ: ("routing reqrep", "status"),
    fx.REP: ("routing reqrep", "status"),
    fx.NOTIF: ("routing", "status"),
    fx.BCAST: ("", "status"),
    fx.PUB: ("topic", "routing status"),
    fx.SUB: ("topic", ""),
    fx.UNSUB: ("topic", ""),
    fx.PING: ("keepalive", ""),
    fx.PONG: ("keepalive", ""),
}


def values(message_type: int, names: set[str]) -> dict[str, Any]:
    fields = FIELDS | (fx.correlation("h1") if message_type == fx.REP else {})
    return {name: fields[name] for name in fields if name in names}


def faults() -> Iterator[Any]:
    for message_type, (required, optional) in TABLE.items():
        needed = set(required.split())
        for name in FIELDS:
            label = f"{fx.NAMES[message_type]}-{{}}-{name}"
            if name in needed:
                names = needed - {name}
                yield pytest.param(message_type, names, id=label.format("without"))
            elif name not in optional.split():
                names = needed | {name}
                yield pytest.param(message_type, names, id=label.format("with"))


@pytest.fixture(scope="module")
def client(broker: LiveBroker) -> Iterator[Client]:
    with Client(broker.address) as joined:
        yield joined


@pytest.mark.parametrize(("message_type", "names"), list(faults()))
def test_0201_a_field_missing_or_forbidden_is_400(
    client: Client, message_type: int, names: set[str]
) -> None:
    client.say(message_type, values(message_type, names))
    if "reqrep" in names:
        client.expect_refusal(400, "h1")
    else:
        client.expect_notice(400)
    client.settle()


@pytest.mark.parametrize("message_type", TABLE, ids=lambda number: fx.NAMES[number])
def test_0202_required_and_optional_fields_are_never_400(client: Client, message_type: int) -> None:
    required, optional = TABLE[message_type]
    for names in (set(required.split()), set(required.split()) | set(optional.split())):
        client.say(message_type, values(message_type, names))
        client.say(fx.PING, fx.keepalive(7))
        while (found := client.frame()).header != fx.keepalive(7):
            assert found.header.get("status") != 400, found


@pytest.mark.parametrize(
    ("message_type", "header"),
    [
        (fx.SUB, b"\xc1"),
        (fx.SUB, b"\x91\xa1a"),
        (fx.SUB, fx.pack({"topic": 5})),
        (fx.SUB, fx.pack({"topic": None})),
        (fx.SUB, b"\x82" + 2 * (fx.pack("topic") + fx.pack("t"))),
        (fx.SUB, fx.pack({"topic": "t"}) + b"\xc0"),
        (fx.PUB, fx.pack({"topic": "t", "status": -1})),
        (fx.PUB, fx.pack({"topic": "t", "status": 65_536})),
        (fx.PING, fx.pack({"keepalive": {}})),
        (fx.PING, fx.pack({"keepalive": {"timestamp": "now"}})),
        (fx.PONG, fx.pack(fx.keepalive(1, interval=30))),
    ],
)
def test_0203_a_header_that_cannot_be_read_is_400(
    client: Client, message_type: int, header: bytes
) -> None:
    client.send(frame(message_type, client.number, header))
    client.expect_notice(400)
    client.settle()


@pytest.mark.parametrize(
    "reqrep", [{"id": "h1"}, {"type": "correlation", "id": "h1"}, {"type": "x", "id": "h1"}]
)
def test_0204_a_request_with_a_wrong_reqrep_type_is_400_under_its_id(
    client: Client, reqrep: dict[str, str]
) -> None:
    client.say(fx.REQ, fx.routing((1, "/time")), {"reqrep": reqrep})
    client.expect_refusal(400, "h1")
    client.settle()


@pytest.mark.parametrize(
    "routing",
    [
        [],
        {},
        [{"client_id": 1}],
        [{"path": "/"}],
        [{"client_id": -1, "path": "/"}],
        [{"client_id": 2**32, "path": "/"}],
        [{"client_id": 1, "path": 5}],
        2 * [{"client_id": 1, "path": "/time"}],
    ],
    ids=str,
)
def test_0205_routing_that_is_malformed_or_not_one_entry_is_602(
    client: Client, routing: object
) -> None:
    client.say(fx.REQ, {"routing": routing}, fx.request("h2"))
    client.expect_refusal(602, "h2")
    client.settle()


def test_0206_a_notice_to_nobody_is_602(client: Client) -> None:
    client.say(fx.NOTIF, {"routing": []})
    client.expect_notice(602)
    client.say(fx.NOTIF, fx.routing(*1025 * [(1, "")]))
    client.expect_notice(602)
    client.settle()


@pytest.mark.parametrize("payload", [b"\xc1", b"\xa2x", b"\x01\x02", b"\x91", b"\xa1\xff"])
@pytest.mark.parametrize(
    "message_type", [fx.PUB, fx.NOTIF, fx.BCAST], ids=["PUB", "NOTIF", "BCAST"]
)
def test_0207_a_payload_that_is_not_one_value_is_400(
    client: Client, message_type: int, payload: bytes
) -> None:
    needed = set(TABLE[message_type][0].split())
    client.say(message_type, values(message_type, needed), payload=payload)
    client.expect_notice(400)
    client.settle()


@pytest.mark.parametrize("message_type", [10, 99, 255])
def test_0208_an_unknown_type_is_501(client: Client, message_type: int) -> None:
    client.send(frame(message_type, client.number))
    client.expect_notice(501)
    client.send(frame(message_type, client.number, fx.request("h3")))
    client.expect_refusal(501, "h3")
    client.settle()


def test_0209_unknown_fields_are_ignored(client: Client) -> None:
    client.say(fx.PING, fx.keepalive(11) | {"colour": ["blue", fx.Ext(5, b"x")]})
    assert client.frame().header == fx.keepalive(11)


def test_0210_the_fault_of_a_message_with_an_id_too_long_to_repeat_comes_as_a_notice(
    client: Client,
) -> None:
    for size in (1025, 65_000):
        client.say(fx.REQ, fx.request("x" * size))
        client.expect_notice(400)
        client.say(fx.REQ, fx.routing((1, "/time")), fx.request("x" * size))
        client.expect_notice(400)
    client.settle()
