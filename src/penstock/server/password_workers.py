"""The processes that verify passwords: started when needed, replaced when they end."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from typing import Final

import structlog

from penstock.environment import own_module_variables
from penstock.errors import AuthenticationFailed
from penstock.limits import VERIFICATION_RETRY_SECONDS, VERIFICATION_SECONDS_MAX
from penstock.server.password_worker import RIGHT, UNKNOWN, WRONG, encode_request

__all__ = ["BASIC", "PasswordWorkers"]

log = structlog.get_logger("penstock.passwords")

BASIC: Final = "user name and password"
"""The kind of these credentials in errors."""
_COMMAND: Final = (sys.executable, "-P", "-m", "penstock.server.password_worker")


class PasswordWorkers:
    """Verifies each password in an idle process, or in a new one if there is none.

    The event loop's thread owns it. The caller limits how many verifications run at a time, and so
    how many processes there are.
    """

    def __init__(
        self,
        *,
        retry_seconds: float = VERIFICATION_RETRY_SECONDS,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        self.seconds_max = VERIFICATION_SECONDS_MAX
        """Time for one verification."""
        self._retry_seconds = retry_seconds
        self._command = command
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._retry_at = float("-inf")
        self._closed = False

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in (*self._idle, *self._busy)]

    async def verify(self, encoded: str, password: bytes) -> bool:
        """Return whether a password is that of a hash.

        Raise AuthenticationFailed if that is not known, because the process ended or took too long.
        """
        while (worker := self._take_idle()) is None:
            await self._start()
        self._busy.add(worker)
        answer = b""
        try:
            async with asyncio.timeout(self.seconds_max):
                answer = await worker.ask(encode_request(encoded, password))
        except TimeoutError:
            log.warning("password verification took too long", seconds_max=self.seconds_max)
        except OSError:
            pass  # it has ended
        finally:
            self._busy.discard(worker)
            if answer and not self._closed:
                self._idle.append(worker)
            else:  # also if the caller is cancelled: the next one must not get its answer
                self._end(worker)
        if answer in {RIGHT, WRONG}:
            return answer == RIGHT
        if answer == UNKNOWN:
            log.warning("password not verified")
        raise AuthenticationFailed(BASIC, "it could not be verified, try again")

    def _take_idle(self) -> "_Worker | None":
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            self._end(worker)
        return None

    async def _start(self) -> None:
        """Start a process, which is idle then; raise AuthenticationFailed."""
        now = time.monotonic()
        if self._closed or now < self._retry_at:
            raise AuthenticationFailed(BASIC, "it cannot be verified now, try again")
        try:
            await asyncio.to_thread(self._spawn)
        except OSError as error:
            self._retry_at = now + self._retry_seconds
            log.warning("password worker not started", error=error.strerror or str(error))
            reason = "it cannot be verified now, try again"
            raise AuthenticationFailed(BASIC, reason) from error

    def _spawn(self) -> None:
        """Start a process, in a thread: even if the caller is cancelled, it is in the list."""
        self._idle.append(_spawn(self._command))
        if self._closed:
            self._end_idle()

    def _end_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._end(self._idle.pop())

    def _end(self, worker: "_Worker") -> None:
        code = worker.end()
        if self._closed:
            return
        log.warning("password worker ended", code=code)
        if not worker.has_answered:  # the next one may end as soon
            self._retry_at = time.monotonic() + self._retry_seconds

    def close(self) -> None:
        """End all processes. Verifications under way have no result."""
        self._closed = True
        for worker in self._busy:
            worker.kill()
        self._end_idle()


class _Worker:
    """A process, and the socket to it. It verifies one password at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket) -> None:
        self.process = process
        self.has_answered = False
        self._channel = channel

    async def ask(self, request: bytes) -> bytes:
        """Return the answer to a request, nothing if the process has ended; raise OSError."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._channel, request)
        answer = await loop.sock_recv(self._channel, 1)
        self.has_answered = bool(answer)
        return answer

    def kill(self) -> None:
        """End the process; `ask` returns nothing."""
        self.process.kill()
        self.process.wait()  # it is killed: this takes no time

    def end(self) -> int:
        """End the process, and close the socket; return the exit code."""
        self.kill()
        self._channel.close()
        return self.process.returncode


def _spawn(command: tuple[str, ...]) -> _Worker:
    """Start a process; raise OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=own_module_variables(),
                close_fds=True,
                # A process group of its own: Ctrl-C reaches only the broker. In a session of its
                # own, the low priority would have no effect, because Linux may divide processor
                # time between sessions first (autogroups).
                process_group=0,
            )
        except BaseException:
            ours.close()
            raise
    ours.settimeout(0)
    return _Worker(process, ours)
