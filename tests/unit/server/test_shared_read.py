"""A read for all requests that wait for it."""

import asyncio
import itertools
import threading

import pytest

from penstock.server.http.shared_read import SharedRead


def test_requests_that_wait_share_a_read_which_began_after_they_came() -> None:
    goes_on = threading.Event()
    numbers = itertools.count(1)
    began = threading.Semaphore(0)
    running: set[int] = set()

    def read() -> int:
        number = next(numbers)
        running.add(number)
        assert running == {number}, "one at a time"
        began.release()
        assert goes_on.wait(10)
        running.discard(number)
        return number

    async def test() -> None:
        reads: SharedRead[int] = SharedRead()
        first = asyncio.create_task(reads.get(read))
        assert await asyncio.to_thread(began.acquire, timeout=10)
        others = [asyncio.create_task(reads.get(read)) for _ in range(50)]
        left = asyncio.create_task(reads.get(read))
        await asyncio.sleep(0)
        left.cancel()
        goes_on.set()
        assert await first == 1
        assert await asyncio.gather(*others) == [2] * 50
        assert await reads.get(read) == 3

    asyncio.run(test())


def test_an_error_is_raised_for_all_requests_that_waited_and_for_no_later_one() -> None:
    async def test() -> None:
        reads: SharedRead[int] = SharedRead()

        def fail() -> int:
            raise OSError("the disk")

        found = await asyncio.gather(*(reads.get(fail) for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in found] == ["the disk"] * 3
        assert await reads.get(lambda: 7) == 7
        with pytest.raises(OSError, match="the disk"):
            await reads.get(fail)

    asyncio.run(test())
