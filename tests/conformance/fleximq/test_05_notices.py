"""Sections 3.4 and 3.5: NOTIF and BCAST."""

from penstock.gateway.options import GatewayOptions
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import Frame
from tests.support.live import LiveBroker, Peer


def test_0501_a_notice_reaches_each_client_it_names_with_its_own_entry_alone(
    broker: LiveBroker,
) -> None:
    with (
        Client(broker.address) as sender,
        Client(broker.address) as first,
        Client(broker.address) as second,
        Client(broker.address) as unnamed,
    ):
        entries = [(first.number, "/alerts"), (second.number, "/news"), (first.number, "/again")]
        sender.say(fx.NOTIF, fx.status(299), fx.routing(*entries), payload=b"\xcd\x00\x01")
        for client, path in ((first, "/alerts"), (first, "/again"), (second, "/news")):
            expected = fx.status(299) | fx.routing((client.number, path))
            assert client.frame() == Frame(fx.NOTIF, sender.number, expected, b"\xcd\x00\x01")
        for client in (sender, first, second, unnamed):
            client.settle()


def test_0502_a_notice_without_status_or_payload_arrives_without_them(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as sender, Client(broker.address) as other:
        other.expect(sender.say(fx.NOTIF, fx.routing((other.number, "/x"))))


def test_0503_a_notice_to_clients_that_do_not_exist_is_600_and_reaches_the_others(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as sender, Client(broker.address) as other:
        sender.say(fx.NOTIF, fx.routing((999, ""), (other.number, "/x"), (998, "")))
        text = sender.expect_notice(600)
        assert "999" in text
        assert "998" in text
        assert other.frame().header == fx.routing((other.number, "/x"))
        sender.settle()


def test_0504_a_notice_to_the_broker_is_taken_in_silence(broker: LiveBroker) -> None:
    with Client(broker.address) as sender:
        sender.say(fx.NOTIF, fx.routing((fx.BROKER, "/anything")), payload=b"\x01")
        sender.settle()


def test_0505_a_client_may_notify_itself(broker: LiveBroker) -> None:
    with Client(broker.address) as sender:
        sender.expect(sender.say(fx.NOTIF, fx.routing((sender.number, "/me"))))


def test_0506_a_broadcast_reaches_every_client_byte_for_byte(broker: LiveBroker) -> None:
    with (
        Client(broker.address) as sender,
        Client(broker.address) as first,
        Client(broker.address) as second,
        Client(broker.address, join=False) as stranger,
        Peer(broker.address) as herald,
    ):
        herald.send(bytes.fromhex("CAFE 02 00000004 01 09 01 73"))
        herald.receive(16)
        sent = sender.say(fx.BCAST, fx.status(200), {"x": 1}, payload=b"\xd9\x02hi", reserved=1)
        sent = sent[:6] + bytes(16) + sent[22:]
        for client in (sender, first, second):
            client.expect(sent)
        for client in (sender, first, second):
            client.settle()
        stranger.expect_nothing(0.05)
        herald.expect_nothing(0.05)


def test_0507_a_broadcast_without_any_field_is_one(broker: LiveBroker) -> None:
    with Client(broker.address) as sender, Client(broker.address) as other:
        data = fx.frame(fx.BCAST, sender.number)
        assert len(data) == fx.FIXED_BYTES
        sender.send(data)
        other.expect(data)


def test_0508_without_echo_a_broadcast_does_not_reach_its_sender() -> None:
    with (
        LiveBroker(options=GatewayOptions(echo=False)) as broker,
        Client(broker.address) as sender,
        Client(broker.address) as other,
    ):
        other.expect(sender.say(fx.BCAST, payload=b"\x01"))
        sender.settle()
