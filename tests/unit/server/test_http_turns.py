"""HTTP requests begin in turn, a few in each turn of the event loop."""

import asyncio

from penstock.server.http.turns import RequestTurns


def test_a_few_requests_begin_in_each_turn_and_in_order() -> None:
    async def main() -> list[list[int]]:
        turns = RequestTurns(2)
        began: list[int] = []

        async def request(number: int) -> None:
            await turns.wait()
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
    assert [number for turn in seen for number in turn] == list(range(6))
    assert max(map(len, seen)) == 2


def test_a_request_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    async def main() -> list[int]:
        turns = RequestTurns(1)
        began: list[int] = []

        async def request(number: int) -> None:
            await turns.wait()
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
        turns = RequestTurns(1)
        for _ in range(3):
            waiting = turns.wait()
            try:
                waiting.send(None)
            except StopIteration:
                pass
            else:
                raise AssertionError("it waits")
            for _ in range(3):
                await asyncio.sleep(0)

    asyncio.run(main())
