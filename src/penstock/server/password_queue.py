"""Passwords that wait for verification: a few at a time, which addresses share by turns."""

import asyncio
import dataclasses
import functools
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.core.access import Peer
from penstock.errors import AuthenticationFailed
from penstock.limits import (
    REFUSALS_PER_TURN_MAX,
    VERIFICATIONS_AT_ONCE_MAX,
    VERIFICATIONS_WAITING_MAX,
    VERIFICATIONS_WAITING_PER_HOST_MAX,
)
from penstock.server.networks import throttled_as
from penstock.server.password_workers import BASIC

__all__ = ["PasswordQueue"]


@dataclasses.dataclass(slots=True, eq=False)
class _Job:
    host: str
    result: asyncio.Future[bool]
    admit: Callable[[], None]
    verify: Callable[[], Coroutine[Any, Any, bool]]
    count: Callable[[bool], None]
    peer: Peer
    has_waited: bool = False


class PasswordQueue:
    """Starts the verifications of passwords. The event loop's thread owns it.

    Addresses take turns: a client waits for those at its own address, and for one at each other.
    """

    def __init__(
        self,
        *,
        waiting_max: int = VERIFICATIONS_WAITING_MAX,
        waiting_per_host_max: int = VERIFICATIONS_WAITING_PER_HOST_MAX,
    ) -> None:
        self._waiting_max = waiting_max
        self._waiting_per_host_max = waiting_per_host_max
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._count = 0
        self._running: set[asyncio.Task[bool]] = set()
        self._closed = False

    def __len__(self) -> int:
        return self._count

    async def run(
        self,
        peer: Peer,
        *,
        admit: Callable[[], None],
        verify: Callable[[], Coroutine[Any, Any, bool]],
        count: Callable[[bool], None],
    ) -> bool:
        """Return the result of `verify`, which is called when it is its turn.

        `admit` is called first, at that time, and raises AuthenticationFailed to refuse. Raise it
        also if too many wait, or if the client has closed its side while it waited. (A client that
        does so earlier may still read its answer.) `count` gets the result before the next turn,
        even if the client has left. If `verify` raises an error, nothing is counted. If the caller
        is cancelled, the job is removed.
        """
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        job = _Job(throttled_as(peer.host), result, admit, verify, count, peer)
        self._add(job)
        self._start()
        job.has_waited = True
        try:
            return await job.result
        finally:
            self._remove(job)

    def _add(self, job: _Job) -> None:
        own = self._waiting.get(job.host)
        if own is not None and len(own) >= self._waiting_per_host_max:
            raise AuthenticationFailed(BASIC, "too many of this address wait for theirs")
        if self._count >= self._waiting_max:
            longest = max(self._waiting.values(), key=len)
            if own is not None and len(own) + 1 >= len(longest):
                raise AuthenticationFailed(BASIC, "too many wait for theirs")
            displaced = longest[-1]
            self._remove(displaced)
            displaced.result.set_exception(AuthenticationFailed(BASIC, "too many wait for theirs"))
        self._waiting.setdefault(job.host, deque()).append(job)
        self._count += 1

    def _remove(self, job: _Job) -> None:
        """Remove a job, if it still waits."""
        jobs = self._waiting.get(job.host)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            self._count -= 1
            if not jobs:
                del self._waiting[job.host]

    def _start(self) -> None:
        refused = 0
        while self._waiting and len(self._running) < VERIFICATIONS_AT_ONCE_MAX and not self._closed:
            if refused == REFUSALS_PER_TURN_MAX:  # each of them closes a connection
                asyncio.get_running_loop().call_soon(self._start)
                return
            host, jobs = next(iter(self._waiting.items()))
            job = jobs[0]
            self._remove(job)
            if host in self._waiting:
                self._waiting.move_to_end(host)
            try:
                if job.has_waited and job.peer.has_left:
                    raise AuthenticationFailed(BASIC, "the client has left")  # noqa: TRY301
                job.admit()
            except AuthenticationFailed as error:
                job.result.set_exception(error)
                refused += 1
                continue
            running = asyncio.get_running_loop().create_task(job.verify())
            self._running.add(running)
            running.add_done_callback(functools.partial(self._finished, job))

    def _finished(self, job: _Job, done: asyncio.Task[bool]) -> None:
        self._running.discard(done)
        if done.cancelled():
            job.result.cancel()
            return
        error = done.exception()
        if error is None:
            job.count(done.result())
        if not job.result.done():  # else the client has left
            if error is None:
                job.result.set_result(done.result())
            else:
                job.result.set_exception(error)
        self._start()

    def close(self) -> None:
        """Start no more verifications."""
        self._closed = True
