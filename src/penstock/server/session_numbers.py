"""Continues session numbers after a restart: reserves them on disk, without blocking the loop."""

import asyncio

import structlog

from penstock.core.sessions import Sessions
from penstock.limits import SESSION_NUMBERS_BLOCK
from penstock.storage.session_numbers import KeptNumbers

__all__ = ["NumberReserve"]

log = structlog.get_logger("penstock.server")


class NumberReserve:
    """Reserves session numbers. A number that cannot be reserved is assigned all the same."""

    def __init__(self, numbers: KeptNumbers) -> None:
        self._numbers = numbers
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, sessions: Sessions) -> None:
        """Continue where the last run stopped; blocks until the first numbers are reserved."""
        try:
            first = self._numbers.load() or sessions.numbers[0]
        except (OSError, ValueError) as error:
            log.warning("session numbers not read", error=str(error))
            first = sessions.numbers[0]
        sessions.continue_from(first, self._reserve)
        self._save(sessions.after(first, SESSION_NUMBERS_BLOCK))

    async def stop(self) -> None:
        """Wait until the last reservation is on disk."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _reserve(self, number: int) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._save, number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _save(self, number: int) -> None:
        try:
            self._numbers.save(number)
        except OSError as error:
            log.warning(
                "session numbers not reserved",
                error=str(error),
                hint="a restart may assign numbers of this run again; check the data folder",
            )
