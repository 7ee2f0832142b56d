"""What is told of the nodes of a log."""

import secrets

import pytest

from penstock.core.access import ANYONE
from penstock.core.broker import Broker
from penstock.server.http.client_counts import utc_time
from penstock.server.http.cluster import describe_cluster
from penstock.server.http.context import HttpContext
from penstock.server.http.schemas import NoQuery
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock
from tests.support.written_log import START_US
from tests.unit.storage.test_port import attached, run
from tools.kafka import KafkaBroker


@pytest.mark.kafka
def test_a_node_has_the_time_of_its_last_message_if_there_is_one(kafka: KafkaBroker) -> None:
    async def use() -> None:
        log = KafkaLog(KafkaOptions(kafka.address, f"cluster-{secrets.token_hex(4)}"))
        async with attached(log) as used:
            context = HttpContext(Broker(log=MemoryLog(), clock=FakeClock()), log)
            for expected in (None, utc_time(START_US)):
                (node,) = (await describe_cluster(context, ANYONE, NoQuery())).nodes
                assert node.last_time == expected
                await used.put("a")

    run(use())
