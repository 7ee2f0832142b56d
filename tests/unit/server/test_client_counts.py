"""Counts of clients: all of them, and some of those that read too slowly."""

import asyncio

import pytest

from penstock.conform.lamamq.encoding import CHOICE, authentication
from penstock.core.broker import Broker
from penstock.gateway.lamamq import LamamqGateway
from penstock.gateway.options import GatewayOptions
from penstock.protocols.lamamq import LAMAMQ
from penstock.server.http.client_counts import count_clients
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink


@pytest.mark.parametrize(("slowest_max", "listed"), [(0, 0), (2, 2), (9, 3)])
def test_slow_clients_are_all_counted_and_some_are_listed(slowest_max: int, listed: int) -> None:
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    for number in range(4):
        link = RecordingLink()
        link.buffered = 10
        link.congested = number > 0
        gateway = LamamqGateway(broker, link, GatewayOptions(), order="big")
        for data in (authentication(), CHOICE):
            gateway.received(memoryview(data))
    counts = asyncio.run(count_clients(broker, slowest_max=slowest_max))
    assert (counts.clients[LAMAMQ], counts.slow[LAMAMQ]) == (4, 3)
    assert counts.waiting_bytes[LAMAMQ] == 40
    assert len(counts.slowest) == listed
