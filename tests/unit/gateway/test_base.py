"""The base of all gateways, where memory is short."""

from penstock.core.broker import Broker
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.memory import MemoryBudget, Purpose
from penstock.protocols.herald import HERALD
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.herald_bytes import frame, handshake_sub

MIB = 1 << 20
PING, PONG = frame(0x20), frame(0x21)


def test_a_connection_beyond_its_share_goes_on_with_the_frames_it_has_sent() -> None:
    """Once broken: frames behind the first waited until the client sent more."""
    broker = Broker(log=MemoryLog(), clock=FakeClock(), memory=MemoryBudget(MIB))
    broker.topics.bind_channel(7, "channel/7")
    link = RecordingLink()
    link.account = broker.memory.open("address")
    options = GatewayOptions(protocol=HERALD, order="little")
    link.handler = handler_for(broker, link, options)
    link.handler.received(memoryview(handshake_sub(b"\x07")))
    link.read()
    assert not link.account.force(Purpose.INPUT, 2 * MIB)
    waiting = 3 * PING
    for _ in range(3):
        taken = link.handler.received(memoryview(waiting))
        waiting = waiting[taken:]
        assert link.paused == bool(waiting), "nothing offers the link's bytes again"
        broker.timers.run_due()
        assert not link.paused
    assert not waiting
    assert link.read() == 3 * PONG
