"""Passwords that wait for verification: a few threads, which addresses share by turns."""

import asyncio
import contextlib
import dataclasses
import functools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.core.access import Peer
from penstock.errors import AuthenticationFailed
from penstock.limits import (
    VERIFICATION_NICENESS,
    VERIFICATIONS_AT_ONCE_MAX,
    VERIFICATIONS_WAITING_MAX,
    VERIFICATIONS_WAITING_PER_HOST_MAX,
)
from penstock.server.networks import throttled_as

__all__ = ["BASIC", "PasswordQueue"]

BASIC = "user name and password"
"""The kind of these credentials in errors."""


def _lower_priority() -> None:
    """Let the event loop go before this thread, and before those that argon2 starts in it."""
    with contextlib.suppress(OSError):  # a system whose threads have no priority of their own
        own = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, own) + VERIFICATION_NICENESS
        os.setpriority(os.PRIO_PROCESS, own, niceness)


@dataclasses.dataclass(slots=True, eq=False)
class _Job:
    host: str
    result: asyncio.Future[bool]
    admit: Callable[[], None]
    verify: Callable[[], bool]
    count: Callable[[bool], None]
    peer: Peer
    has_waited: bool = False


class PasswordQueue:
    """Verifies passwords in threads. The event loop's thread owns it.

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
        self._running = 0
        self._closed = False
        self._threads = ThreadPoolExecutor(
            VERIFICATIONS_AT_ONCE_MAX,
            thread_name_prefix="penstock-passwords",
            initializer=_lower_priority,
        )

    def __len__(self) -> int:
        return self._count

    async def run(
        self,
        peer: Peer,
        *,
        admit: Callable[[], None],
        verify: Callable[[], bool],
        count: Callable[[bool], None],
    ) -> bool:
        """Return the result of `verify`, which runs in a thread when it is its turn.

        `admit` is called first, at that time, and raises AuthenticationFailed to refuse. Raise it
        also if too many wait, or if the client has closed its side while it waited. (A client that
        does so earlier may still read its answer.) `count` gets the result before the next turn,
        even if the client has left. If the caller is cancelled, the job is removed.
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
        while self._waiting and self._running < VERIFICATIONS_AT_ONCE_MAX and not self._closed:
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
                continue
            self._running += 1
            running = asyncio.get_running_loop().run_in_executor(self._threads, job.verify)
            running.add_done_callback(functools.partial(self._finished, job))

    def _finished(self, job: _Job, done: asyncio.Future[bool]) -> None:
        self._running -= 1
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
        """Stop the threads."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
