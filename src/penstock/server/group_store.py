"""Loads and stores the states of consumer groups in a thread: a `ports.GroupStore`."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.ports import ConsumerGroups, GroupState

__all__ = ["ThreadedGroupStore"]

_T = TypeVar("_T")


class ThreadedGroupStore:
    """One thread, so that calls take effect in their order. `start` comes before the first call."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self.is_shared = groups.is_shared
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-groups")
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Call back in the running event loop."""
        self._loop = asyncio.get_running_loop()

    def load(self, group: str, then: Callable[[GroupState | Exception | None], None]) -> None:
        """See ports.GroupStore."""
        self._run(lambda: self._groups.load(group), then)

    def save(self, state: GroupState, then: Callable[[Exception | None], None]) -> None:
        """See ports.GroupStore."""
        self._run(
            lambda: self._groups.commit(
                state.group,
                state.offsets,
                lost=state.lost,
                subscription=state.subscription,
                progress=state.progress,
                owner=state.owner,
            ),
            then,
        )

    def forget(self, group: str, then: Callable[[Exception | None], None]) -> None:
        """See ports.GroupStore."""
        self._run(lambda: self._groups.forget(group), then)

    def _run(self, work: Callable[[], _T], then: Callable[[_T | Exception], None]) -> None:
        loop = self._loop
        if loop is None:
            raise AssertionError("the store of groups was not started")

        def run() -> None:
            result: _T | Exception
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  (the caller logs it)
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(then, result)

        self._thread.submit(run)

    def close(self) -> None:
        """End the thread after what it does now; what waits for it is not stored."""
        self._thread.shutdown(wait=False, cancel_futures=True)
