"""A server: what it refuses to start, and what has time when it stops."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import CannotListen
from penstock.server import server as module
from penstock.server.server import Server
from penstock.transport.addresses import Address


class SlowGroups:
    """Consumer groups whose states are stored after some time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_stopped = False
        self.is_stored = False

    def stop_delivery(self) -> None:
        self.is_stopped = True

    def flush(self, then: Callable[[], None]) -> None:
        def stored() -> None:
            self.is_stored = True
            then()

        asyncio.get_running_loop().call_later(self._seconds, stored)


@pytest.mark.parametrize("seconds_max", [0.0, 30.0])
def test_states_of_groups_have_some_time_at_least(seconds_max: float) -> None:
    async def stop() -> SlowGroups:
        server = Server()
        await server.start()
        groups = SlowGroups(0.05)
        server.broker.groups = groups  # type: ignore[assignment]
        await server.stop(seconds_max=seconds_max)
        return groups

    groups = asyncio.run(stop())
    assert (groups.is_stopped, groups.is_stored) == (True, True)


def test_a_disk_that_does_not_store_the_states_does_not_hold_up_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GROUPS_STORE_SECONDS_MIN", 0.02)

    async def stop() -> SlowGroups:
        server = Server()
        await server.start()
        groups = SlowGroups(1000.0)
        server.broker.groups = groups  # type: ignore[assignment]
        await asyncio.wait_for(server.stop(seconds_max=0.0), 10)
        return groups

    assert not asyncio.run(stop()).is_stored


def test_a_broker_without_a_log_serves_no_tables(tmp_path: Path) -> None:
    async def listen() -> None:
        server = Server()
        await server.start()
        try:
            await server.listen_flight(Address("tcp", "127.0.0.1", 0), data=tmp_path)
        finally:
            await server.stop()

    with pytest.raises(CannotListen, match="there is no log"):
        asyncio.run(listen())
