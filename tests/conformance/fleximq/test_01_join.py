"""Section 4: JOIN, client ids, and what comes before or beside a handshake."""

import struct
from collections.abc import Iterator

import pytest

from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols.fleximq import FLEXIMQ
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import frame
from tests.support.live import LiveBroker

AUTHS = [
    {"type": "token", "token": "t"},
    {"type": "basic", "username": "u", "password": "p"},
    {"type": "api_key", "api_key": "k"},
]


@pytest.fixture(scope="module")
def pinned() -> Iterator[LiveBroker]:
    with LiveBroker(options=GatewayOptions(protocol=FLEXIMQ)) as live:
        yield live


def test_0101_join_is_answered_with_an_id_from_the_dynamic_range(broker: LiveBroker) -> None:
    with Client(broker.address, join=False) as client:
        client.send(bytes.fromhex("01 00 00000000") + bytes(16 + 4 + 8))
        reply = client.receive(26 + 10 + 8)
        number = struct.unpack_from(">I", reply, 2)[0]
        assert 1000 <= number <= 4_294_967_294
        header = bytes.fromhex("81 A6 737461747573 CC C8")  # {"status": 200}
        assert reply == struct.pack(">BBI16xI", 1, 2, number, len(header)) + header + bytes(8)


def test_0102_ids_are_unique_and_not_reused_at_once(broker: LiveBroker) -> None:
    numbers = []
    for _ in range(5):
        with Client(broker.address) as one, Client(broker.address) as other:
            numbers += [one.number, other.number]
    assert len(set(numbers)) == 10


def test_0103_a_join_with_reqrep_gets_a_reply_that_correlates(broker: LiveBroker) -> None:
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, fx.request("j1")))
        reply = client.frame()
        assert reply.header == fx.correlation("j1") | fx.status(200)
        assert reply.client_id >= 1000


@pytest.mark.parametrize("auth", AUTHS, ids=lambda auth: auth["type"])
def test_0104_credentials_are_welcome_where_anonymous_clients_are(
    broker: LiveBroker, auth: dict[str, str]
) -> None:
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, {"auth": auth}))
        assert client.frame().header == fx.status(200)


@pytest.mark.parametrize("auth", [None, *AUTHS], ids=lambda auth: auth["type"] if auth else "none")
def test_0105_without_valid_credentials_where_they_are_required_join_is_401_and_closes(
    auth: dict[str, str] | None,
) -> None:
    with (
        LiveBroker(options=GatewayOptions(anonymous=None)) as broker,
        Client(broker.address, join=False) as client,
    ):
        client.send(frame(fx.JOIN, 0, {"auth": auth} if auth else {}))
        reply = client.frame()
        assert (reply.type, reply.client_id, reply.header) == (fx.REP, 0, fx.status(401))
        client.expect_close()


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "kerberos"},
        {"type": "token"},
        {"type": "basic", "username": "u"},
        {"type": "api_key", "token": "t"},
        {},
        "token",
    ],
    ids=str,
)
def test_0106_auth_that_is_malformed_or_unsupported_is_604_and_closes(
    broker: LiveBroker, auth: object
) -> None:
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, {"auth": auth} | fx.request("j2")))
        reply = client.frame()
        assert (reply.type, reply.client_id) == (fx.REP, 0)
        assert reply.header == fx.correlation("j2") | fx.status(604)
        assert isinstance(reply.value, str)
        client.expect_close()


def test_0107_join_is_605_and_closes_when_the_broker_is_full() -> None:
    with (
        LiveBroker(settings=BrokerSettings(sessions_max=1)) as broker,
        Client(broker.address),
        Client(broker.address, join=False) as late,
    ):
        late.send(frame(fx.JOIN, 0))
        reply = late.frame()
        assert (reply.type, reply.client_id, reply.header) == (fx.REP, 0, fx.status(605))
        late.expect_close()


def test_0108_a_second_join_is_409_and_the_connection_goes_on(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.send(frame(fx.JOIN, 0))
        client.expect_notice(409)
        client.send(frame(fx.JOIN, 0, fx.request("again")))
        client.expect_refusal(409, "again")
        client.settle()


@pytest.mark.parametrize("field", ["routing", "topic", "keepalive", "status"])
def test_0109_join_with_a_forbidden_field_is_400_and_may_be_tried_again(
    broker: LiveBroker, field: str
) -> None:
    values = fx.routing((1, "")) | fx.topic("t") | fx.keepalive(1) | fx.status(200)
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, {field: values[field]}))
        reply = client.frame()
        assert (reply.type, reply.client_id, reply.header) == (fx.REP, 0, fx.status(400))
        client.send(frame(fx.JOIN, 0))
        assert client.frame().header == fx.status(200)


def test_0110_join_under_another_id_than_0_is_400_and_may_be_tried_again(
    pinned: LiveBroker,
) -> None:
    with Client(pinned.address, join=False) as client:
        client.send(frame(fx.JOIN, 7))
        assert client.frame().header == fx.status(400)
        client.send(frame(fx.JOIN, 0))
        assert client.frame().header == fx.status(200)


def test_0111_a_message_before_join_is_401_and_closes(pinned: LiveBroker) -> None:
    with Client(pinned.address, join=False) as client:
        client.number = 1000
        client.say(fx.PUB, fx.topic("t"))
        client.number = 0
        client.expect_notice(401)
        client.expect_close()


def test_0112_a_request_before_join_is_401_by_a_rep_and_closes(pinned: LiveBroker) -> None:
    with Client(pinned.address, join=False) as client:
        client.send(frame(fx.REQ, 1000, fx.routing((1, "/time")) | fx.request("q1")))
        reply = client.frame()
        assert (reply.type, reply.client_id) == (fx.REP, 0)
        assert reply.header == fx.correlation("q1") | fx.status(401)
        client.expect_close()


def test_0113_a_malformed_message_before_join_gets_its_status_and_closes(
    pinned: LiveBroker,
) -> None:
    with Client(pinned.address, join=False) as client:
        client.send(frame(fx.SUB, 1000))
        client.expect_notice(400)
        client.expect_close()


def test_0114_another_version_before_join_is_501_and_closes(pinned: LiveBroker) -> None:
    with Client(pinned.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, version=2))
        reply = client.frame()
        assert (reply.type, reply.client_id, reply.header) == (fx.REP, 0, fx.status(501))
        client.expect_close()


def test_0115_a_join_whose_id_is_too_long_is_400_and_may_be_tried_again(
    broker: LiveBroker,
) -> None:
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, fx.request("x" * 1025)))
        assert client.frame().header == fx.status(400)
        client.send(frame(fx.JOIN, 0, fx.request("x" * 1024)))
        assert client.frame().header == fx.correlation("x" * 1024) | fx.status(200)


def test_0116_a_message_in_the_name_of_another_client_is_403_and_has_no_effect(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as client, Client(broker.address) as other:
        other.subscribe("join/16")
        client.send(frame(fx.PUB, other.number, fx.topic("join/16"), b"\x01"))
        client.expect_notice(403)
        client.send(frame(fx.REQ, other.number, fx.routing((1, "/time")) | fx.request("q")))
        client.expect_refusal(403, "q")
        client.send(frame(fx.BCAST, 1))
        client.expect_notice(403)
        client.settle()
        other.settle()


def test_0117_a_message_under_id_0_is_400(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.send(frame(fx.PUB, 0, fx.topic("t")))
        client.expect_notice(400)
        client.settle()


def test_0118_join_and_what_follows_may_come_in_one_piece(pinned: LiveBroker) -> None:
    with Client(pinned.address) as first:
        number = first.number + 1
    with Client(pinned.address, join=False) as client:
        client.send(frame(fx.JOIN, 0) + frame(fx.PING, number, fx.keepalive(5)))
        assert client.frame().client_id == number
        assert client.frame().header == fx.keepalive(5)


def test_0119_reserved_bytes_are_ignored(broker: LiveBroker) -> None:
    with Client(broker.address, join=False) as client:
        client.send(frame(fx.JOIN, 0, reserved=b"\xff" * 16))
        assert client.frame().header == fx.status(200)


def test_0190_a_strict_listener_refuses_reqrep_in_a_join_and_takes_a_plain_one() -> None:
    with (
        LiveBroker(options=GatewayOptions(strict=True)) as strict,
        Client(strict.address, join=False) as client,
    ):
        client.send(frame(fx.JOIN, 0, fx.request("j1")))
        assert client.frame().header["status"] == 400
        client.send(frame(fx.JOIN, 0))
        assert client.frame().header == fx.status(200)


def test_0191_a_publish_above_the_rate_is_429() -> None:
    with (
        LiveBroker(options=GatewayOptions(messages_per_second_max=5)) as slow,
        Client(slow.address) as client,
    ):
        for _ in range(12):
            client.say(fx.PUB, fx.topic("t"))
        answer = client.frame()
        assert answer.type == fx.NOTIF
        assert answer.header["status"] == 429


def test_0192_a_request_above_the_rate_is_429_under_its_own_id() -> None:
    with (
        LiveBroker(options=GatewayOptions(messages_per_second_max=5)) as slow,
        Client(slow.address) as client,
    ):
        for number in range(12):
            client.say(fx.REQ, fx.routing((1, "/time")), fx.request(f"r{number}"))
        answers = [client.frame() for _ in range(12)]
        assert [answer.header["reqrep"]["id"] for answer in answers] == [f"r{n}" for n in range(12)]
        statuses = [answer.header.get("status", 200) for answer in answers]
        assert statuses[:5] == [200] * 5
        assert 429 in statuses[5:]
