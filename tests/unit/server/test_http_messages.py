"""Messages over HTTP of a broker that keeps none."""

import asyncio

from penstock.core.access import ANYONE
from penstock.core.broker import Broker
from penstock.server.http.console_schemas import MessagesQuery
from penstock.server.http.context import HttpContext
from penstock.server.http.messages import read_messages
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock


def test_nobody_waits_for_messages_of_a_broker_that_keeps_none() -> None:
    async def ask() -> None:
        clock = FakeClock()  # it stands still: a wait would not end
        context = HttpContext(Broker(log=MemoryLog(), clock=clock))
        async with asyncio.timeout(5):
            found = await read_messages(context, ANYONE, MessagesQuery(start=5, wait=1.0))
        assert (found.kept, found.messages, found.next) == (False, [], 0)

    asyncio.run(ask())
