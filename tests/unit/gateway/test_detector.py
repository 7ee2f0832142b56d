"""Detection ends with the first frame: from then on the link calls the gateway itself."""

import pytest

from penstock.core.broker import Broker
from penstock.gateway.base import Gateway
from penstock.gateway.detector import ProtocolDetector, handler_for
from penstock.gateway.herald import HeraldGateway
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.herald import HERALD
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.herald_bytes import handshake_sub

DETECT = GatewayOptions(handshake_seconds_max=5)
PINNED = GatewayOptions(handshake_seconds_max=5, protocol=HERALD, order="little")
IN_TIME = 5.0


class Connection:
    def __init__(self, options: GatewayOptions) -> None:
        self.clock = FakeClock()
        self.broker = Broker(log=MemoryLog(), clock=self.clock)
        self.broker.topics.bind_channel(7, "channel/7")
        self.link = RecordingLink()
        self.link.handler = handler_for(self.broker, self.link, options)

    def send(self, data: bytes) -> int:
        return self.link.handler.received(memoryview(data))

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.broker.timers.run_due()


def test_the_gateway_replaces_the_detector_when_the_protocol_is_known() -> None:
    connection = Connection(DETECT)
    first = connection.link.handler
    assert isinstance(first, ProtocolDetector)
    assert connection.send(b"\xfe") == 0
    assert connection.link.handler is first
    data = handshake_sub(b"\x07")
    assert connection.send(data) == len(data)
    assert isinstance(connection.link.handler, HeraldGateway)
    assert connection.link.handler.session is not None


def test_a_listener_of_one_protocol_needs_no_detector() -> None:
    gateway = Connection(PINNED).link.handler
    assert isinstance(gateway, HeraldGateway)
    assert gateway.order == "little"


@pytest.mark.parametrize("protocol", [each for each in PROTOCOLS if len(each.orders) == 1])
def test_a_protocol_of_one_byte_order_needs_no_detector(protocol: Protocol) -> None:
    options = GatewayOptions(handshake_seconds_max=5, protocol=protocol)
    gateway = Connection(options).link.handler
    assert isinstance(gateway, Gateway)
    assert gateway.order == protocol.orders[0]


@pytest.mark.parametrize("options", [DETECT, PINNED])
@pytest.mark.parametrize("sent", [b"", b"\xfe\xca"])
def test_a_connection_without_a_session_closes_at_the_deadline(
    options: GatewayOptions, sent: bytes
) -> None:
    connection = Connection(options)
    connection.send(sent)
    connection.wait(IN_TIME - 0.001)
    assert not connection.link.closed
    connection.wait(0.001)
    assert connection.link.closed


@pytest.mark.parametrize("options", [DETECT, PINNED])
def test_a_connection_with_a_session_outlives_the_deadline(options: GatewayOptions) -> None:
    connection = Connection(options)
    connection.send(handshake_sub(b"\x07"))
    connection.wait(2 * IN_TIME)
    assert not connection.link.closed


@pytest.mark.parametrize("options", [DETECT, PINNED])
def test_a_connection_that_is_lost_has_no_deadline(options: GatewayOptions) -> None:
    connection = Connection(options)
    connection.link.handler.lost("reset")
    connection.wait(2 * IN_TIME)
    assert not connection.link.closed
    assert not connection.broker.counters.connections_failed
