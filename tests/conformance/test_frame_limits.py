"""A listener's frame limits hold for every protocol, in the kernel and beside it."""

import pytest

from penstock.errors import WireError
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos2 import RHEOS2
from tests.interop.test_bridges import joined, receive, settle
from tests.sim.clients import SimulatedClient
from tests.support.agreement import SOURCES
from tests.support.live import LiveBroker

LIMIT = 1000


def read_until_it_ends(client: SimulatedClient) -> None:
    """An answer that the client does not expect, or the end of the connection, raises."""
    while True:
        client.read()


@pytest.mark.parametrize(("protocol", "order"), SOURCES, ids=str)
def test_a_frame_above_the_limit_ends_its_connection_only(
    protocol: Protocol, order: ByteOrder
) -> None:
    limits = {
        "rheos1_body_bytes_max": LIMIT,
        "rheos2_body_bytes_max": LIMIT,
        "herald_payload_bytes_max": LIMIT,
        "fleximq_message_bytes_max": LIMIT,
        "lamamq_payload_bytes_max": LIMIT,
    }
    with (
        LiveBroker(options=GatewayOptions(frame_limits=limits)) as broker,
        joined(broker, RHEOS2, "little") as subscriber,
        joined(broker, protocol, order) as publisher,
    ):
        subscriber.subscribe(7)
        settle(broker, 1)
        publisher.publish(7, b"small")
        publisher.publish(7, bytes(LIMIT + 1))
        assert [value for _, value in receive(subscriber, 1)] == [b"small"]
        with pytest.raises((ConnectionError, AssertionError, WireError)):
            read_until_it_ends(publisher)
        with joined(broker, protocol, order) as other:
            other.publish(7, b"goes on")
            assert [value for _, value in receive(subscriber, 2)] == [b"small", b"goes on"]


@pytest.mark.parametrize(("protocol", "order"), SOURCES, ids=str)
def test_a_pinned_listener_takes_both_byte_orders_of_its_protocol_and_no_other(
    protocol: Protocol, order: ByteOrder
) -> None:
    with LiveBroker(options=GatewayOptions(protocol=protocol)) as broker:
        with joined(broker, protocol, order) as client:
            client.subscribe(7)
            settle(broker, 1)
            client.publish(7, b"own")
            assert [value for _, value in receive(client, 1)] == [b"own"]
        other = HERALD if protocol is LAMAMQ else LAMAMQ
        with (
            pytest.raises((ConnectionError, AssertionError, WireError)),
            joined(broker, other, "big") as wrong,
        ):
            read_until_it_ends(wrong)
