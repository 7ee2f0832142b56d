"""HTTP requests begin in turn, a few in each turn of the event loop."""

import asyncio

import pytest

from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.core.turns import LoopTurn, Source
from penstock.server.clock import SystemClock
from penstock.server.http.turns import RequestTurns, TimedWork


def new_turns(per_turn_max: int) -> tuple[RequestTurns, LoopTurn]:
    """Return turns of requests in the running event loop, and the turn of the loop."""
    loop = asyncio.get_running_loop()
    clock, turn = SystemClock(), LoopTurn()
    slices = Slices(Timers(clock), clock, turn=turn)
    slices.schedule = turn.schedule = loop.call_soon
    slices.schedule_after = loop.call_later
    return RequestTurns(turn, slices, clock, per_turn_max), turn


def test_a_few_requests_begin_in_each_turn_and_in_order() -> None:
    async def main() -> list[list[int]]:
        turns, turn = new_turns(2)
        source = turn.source("10.0.0.1")
        began: list[int] = []

        async def request(number: int) -> None:
            await turns.wait(source)
            began.append(number)

        tasks = [asyncio.create_task(request(number)) for number in range(6)]
        seen: list[list[int]] = []
        while len(began) < 6:
            before = len(began)
            await asyncio.sleep(0)
            if len(began) > before:
                seen.append(began[before:])
        await asyncio.gather(*tasks)
        return seen

    seen = asyncio.run(main())
    assert sorted(number for turn in seen for number in turn) == list(range(6))
    assert seen[0] == [0, 1]
    assert max(map(len, seen)) == 2


def test_a_request_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    async def main() -> list[int]:
        turns, turn = new_turns(1)
        source = turn.source("10.0.0.1")
        began: list[int] = []

        async def request(number: int) -> None:
            await turns.wait(source)
            began.append(number)

        tasks = [asyncio.create_task(request(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await request(3)
        return began

    assert asyncio.run(main()) == [0, 2, 3]


def test_a_lone_request_does_not_wait() -> None:
    async def main() -> None:
        turns, turn = new_turns(1)
        source = turn.source("10.0.0.1")
        for _ in range(3):
            waiting = turns.wait(source)
            try:
                waiting.send(None)
            except StopIteration:
                pass
            else:
                raise AssertionError("it waits")
            for _ in range(3):
                await asyncio.sleep(0)

    asyncio.run(main())


class _CountingTurn(LoopTurn):
    counts = 0

    def count(self, source: Source, now: float, seconds: float) -> None:
        super().count(source, now, seconds)
        self.counts += 1


def test_the_steps_of_a_request_are_counted_and_its_errors_are_raised() -> None:
    async def main() -> int:
        clock, turn = SystemClock(), _CountingTurn()
        source = turn.source("10.0.0.1")
        seen: list[str] = []

        async def work() -> None:
            await asyncio.sleep(0)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("wrong")

        async def run() -> None:
            await TimedWork(work(), turn, source, clock)

        task = asyncio.create_task(run())
        for _ in range(4):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]
        with pytest.raises(ValueError, match="wrong"):
            await TimedWork(fail(), turn, source, clock)
        return turn.counts

    assert asyncio.run(main()) == 5
