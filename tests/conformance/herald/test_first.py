"""A first look at herald over a socket."""

from tests.support.live import LiveBroker, Peer


def test_a_message_reaches_a_subscriber(broker: LiveBroker) -> None:
    with Peer(broker.address) as subscriber, Peer(broker.address) as publisher:
        subscriber.send(bytes.fromhex("FECA 02 04000000 01 07 01 73"))
        assert subscriber.receive(16)[:8] == bytes.fromhex("FECA 03 09000000 00")
        publisher.send(bytes.fromhex("CAFE 01 00000003 07 01 70"))
        assert publisher.receive(16)[:8] == bytes.fromhex("CAFE 03 00000009 00")
        publisher.send(bytes.fromhex("CAFE 10 00000003 07 6869"))
        frame = subscriber.receive(18)
        assert frame[:8] == bytes.fromhex("FECA 13 0B000000 07")
        assert frame[16:] == b"hi"
