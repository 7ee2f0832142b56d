"""Passwords are verified by turns of addresses; those of clients that left are not verified."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import AuthenticationFailed
from penstock.limits import REFUSALS_PER_TURN_MAX, VERIFICATIONS_AT_ONCE_MAX
from penstock.server.credentials import KnownPeer
from penstock.server.password_queue import PasswordQueue


class Verifications:
    """Verifications that wait until they are released; `order` has those that ran."""

    def __init__(self, queue: PasswordQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.counted: list[bool] = []
        self.released = asyncio.Event()

    def submit(self, host: str, name: str = "") -> "asyncio.Task[bool]":
        async def verify() -> bool:
            await self.released.wait()
            self.order.append(name or host)
            return True

        run = self.queue.run(
            KnownPeer(host), admit=lambda: None, verify=verify, count=self.counted.append
        )
        return asyncio.get_running_loop().create_task(run)


def run(body: Callable[[Verifications], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        queue = PasswordQueue(**limits)
        made = Verifications(queue)
        try:
            await body(made)
        finally:
            made.released.set()
            queue.close()

    asyncio.run(main())


def test_an_address_waits_for_one_of_each_other_address() -> None:
    async def body(made: Verifications) -> None:
        crowd = [made.submit("192.0.2.1") for _ in range(50)]
        await asyncio.sleep(0)
        other = [made.submit("192.0.2.2"), made.submit("192.0.2.3")]
        await asyncio.sleep(0)
        made.released.set()
        await asyncio.gather(*crowd, *other)
        for host in ("192.0.2.2", "192.0.2.3"):
            assert made.order.index(host) <= VERIFICATIONS_AT_ONCE_MAX + 3
        assert made.counted == [True] * 52

    run(body)


def test_a_client_that_leaves_is_not_verified() -> None:
    async def body(made: Verifications) -> None:
        running = [made.submit("192.0.2.1") for _ in range(VERIFICATIONS_AT_ONCE_MAX)]
        waiting = [made.submit("192.0.2.1", "left") for _ in range(5)]
        await asyncio.sleep(0)
        assert len(made.queue) == 5
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert len(made.queue) == 0
        made.released.set()
        await asyncio.gather(*running)
        assert "left" not in made.order

    run(body)


def test_one_that_left_while_it_was_verified_is_counted() -> None:
    async def body(made: Verifications) -> None:
        leaving = made.submit("192.0.2.1")
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        made.released.set()
        assert await made.submit("192.0.2.1")
        async with asyncio.timeout(10):
            while len(made.counted) < 2:
                await asyncio.sleep(0.005)

    run(body)


def test_the_limits_refuse_and_the_longest_queue_makes_room() -> None:
    async def body(made: Verifications) -> None:
        running = [made.submit("192.0.2.9") for _ in range(VERIFICATIONS_AT_ONCE_MAX)]
        await asyncio.sleep(0)
        first = [made.submit("192.0.2.1") for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationFailed) as caught:
            await made.submit("192.0.2.1")  # its own limit
        assert caught.value.reason == "too many of this address wait for theirs"
        second = [made.submit("192.0.2.2") for _ in range(2)]
        await asyncio.sleep(0)
        third = [made.submit("192.0.2.3")]  # the limit of all: one of the first makes room
        await asyncio.sleep(0)
        assert len(made.queue) == 6
        made.released.set()
        results = await asyncio.gather(*first, *second, *third, *running, return_exceptions=True)
        refused = [index for index, each in enumerate(results) if each is not True]
        assert refused == [3]

    run(body, waiting_max=6, waiting_per_host_max=4)


def test_the_address_with_the_longest_queue_displaces_no_password() -> None:
    async def body(made: Verifications) -> None:
        running = [made.submit("192.0.2.9") for _ in range(VERIFICATIONS_AT_ONCE_MAX)]
        await asyncio.sleep(0)
        waiting = [made.submit(host) for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2")]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationFailed) as caught:
            await asyncio.wait_for(made.submit("192.0.2.1"), 2)
        assert caught.value.reason == "too many wait for theirs"
        made.released.set()
        assert await asyncio.gather(*running, *waiting) == [True] * len(running + waiting)

    run(body, waiting_max=3, waiting_per_host_max=10)


def test_a_crowd_is_refused_in_several_turns() -> None:
    """Each refusal closes a connection: 200 of them in one turn would delay all clients."""

    async def body(made: Verifications) -> None:
        running = [made.submit("192.0.2.9") for _ in range(VERIFICATIONS_AT_ONCE_MAX)]
        await asyncio.sleep(0)

        def refuse() -> None:
            raise AuthenticationFailed("test", "not now")

        async def never() -> bool:
            raise AssertionError("it was refused")

        crowd = [
            asyncio.ensure_future(
                made.queue.run(
                    KnownPeer("192.0.2.1"), admit=refuse, verify=never, count=made.counted.append
                )
            )
            for _ in range(200)
        ]
        await asyncio.sleep(0)
        made.released.set()
        refused = [0]
        while refused[-1] < 200:
            await asyncio.sleep(0)
            refused.append(sum(each.done() for each in crowd))
        steps = [after - before for before, after in itertools.pairwise(refused)]
        assert max(steps) <= REFUSALS_PER_TURN_MAX * VERIFICATIONS_AT_ONCE_MAX
        await asyncio.gather(*crowd, *running, return_exceptions=True)

    run(body)


def test_what_could_not_be_verified_is_not_counted() -> None:
    async def body(made: Verifications) -> None:
        async def verify() -> bool:
            raise AuthenticationFailed("test", "try again")

        with pytest.raises(AuthenticationFailed):
            await made.queue.run(
                KnownPeer("192.0.2.1"), admit=lambda: None, verify=verify, count=made.counted.append
            )
        assert made.counted == []
        made.released.set()
        assert await made.submit("192.0.2.1"), "the next one has its turn"

    run(body)
