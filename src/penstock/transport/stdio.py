"""Programs that the broker starts and that speak over their standard input and output.

fleximq 6.4: the broker writes to a program's input and reads from its output; the client id is in
the environment. What a program writes to its standard error is logged, line by line. A program that
ends is started again, after a pause that grows while it keeps ending early.
"""

import asyncio
import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from penstock.errors import PenstockError
from penstock.limits import (
    STDIO_ERROR_LINE_BYTES_MAX,
    STDIO_RESTART_SECONDS_MAX,
    STDIO_RESTART_SECONDS_MIN,
    STDIO_STOP_SECONDS_MAX,
)
from penstock.ports import Handler
from penstock.transport.intake import Intake
from penstock.transport.numbers import next_connection

__all__ = ["CLIENT_ID_VARIABLE", "Program", "ProgramLink", "ProgramOwner", "Supervisor"]

log = structlog.get_logger("penstock.stdio")

CLIENT_ID_VARIABLE: Final = "PENSTOCK_CLIENT_ID"
_LAST_WORDS_SECONDS: Final = 0.5
"""For what a program wrote before it ended; a child of its own may hold the pipe open for ever."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program to run: `command` is the executable and its arguments, no shell reads it."""

    name: str
    command: tuple[str, ...]
    directory: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class ProgramOwner(Protocol):
    """Who the programs belong to: a listener."""

    @property
    def congested_bytes(self) -> int:
        """How much may be buffered for a program before its link is congested."""

    def opened(self, link: "ProgramLink", program: Program) -> tuple[Handler, int]:
        """Let a program in that is about to be started; return its handler and its client id.

        Raise a PenstockError if it cannot be let in now.
        """

    def closed(self, link: "ProgramLink") -> None:
        """Take note that a program has ended."""

    def failed(self, link: "ProgramLink", error: Exception) -> None:
        """Take note that a program's handler broke; the program is killed."""


class ProgramLink:
    """One run of a program; to its handler it is a `ports.Link`.

    The event loop does not start it: uvloop's pipes stay open inside a program under other numbers,
    and then it is never seen that the program has closed them.
    """

    def __init__(self, owner: ProgramOwner, program: Program) -> None:
        self._owner = owner
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._exit = -1  # readable once the program has ended
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._intake = Intake()
        self._input_closed = False
        self._output_ended = False
        self._early: list[bytes] = []
        self._timers: list[asyncio.TimerHandle] = []
        self.congested = False
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self.connection = next_connection()
        self.peer = f"stdio:{program.name}"

    # --- The supervisor's side --------------------------------------------------------------------

    def open(self) -> int:
        """Let the program in before it is started; return its client id or raise PenstockError."""
        self._intake.handler, client_id = self._owner.opened(self, self._program)
        return client_id

    async def start(self, client_id: int) -> None:
        """Run the program; raise OSError, and let it go again, if that cannot be."""
        try:
            process = await asyncio.to_thread(self._spawn, client_id)
        except OSError as error:
            self._end(error.strerror or str(error))
            raise
        self._process = process
        self.peer = f"stdio:{self._program.name}[{process.pid}]"
        self._exit = os.pidfd_open(process.pid)
        self._loop.add_reader(self._exit, self._exited)
        await self._connect(process)

    def _spawn(self, client_id: int) -> "subprocess.Popen[bytes]":
        program = self._program
        return subprocess.Popen(  # noqa: S603 - the operator lists what is run
            program.command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.directory,
            env={**os.environ, **program.environment, CLIENT_ID_VARIABLE: str(client_id)},
            # A session of its own, so that a signal from the terminal is the broker's alone.
            start_new_session=True,
        )

    async def _connect(self, process: "subprocess.Popen[bytes]") -> None:
        """Take over the pipes; their transports close them."""
        loop = self._loop
        output, _ = await loop.connect_read_pipe(lambda: _Output(self), process.stdout)
        errors, _ = await loop.connect_read_pipe(lambda: _Errors(self), process.stderr)
        self._outputs += (output, errors)
        self._stdin, _ = await loop.connect_write_pipe(lambda: _Input(self), process.stdin)
        high = self._owner.congested_bytes
        self._stdin.set_write_buffer_limits(high=high, low=high // 4)
        self._stdin.writelines(self._early)
        self._early.clear()
        if self._intake.paused:
            output.pause_reading()
        if self.ended.done():  # already
            self._close_pipes()
        elif self._input_closed:
            self.stop(seconds_max=STDIO_STOP_SECONDS_MAX)

    def stop(self, *, seconds_max: float) -> None:
        """Close the program's input; terminate it at half of the time, kill it when it is up."""
        self._input_closed = True
        if self._stdin is not None:
            self._stdin.close()
        if not self._running:
            return
        for timer in self._timers:
            timer.cancel()
        self._later(seconds_max / 2, self._terminate)
        self._later(seconds_max, self._kill)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, action))

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _terminate(self) -> None:
        if self._process is not None and self._running:
            self._process.terminate()

    def _kill(self) -> None:
        if self._process is not None and self._running:
            # Its own children too: it leads a group of processes.
            os.killpg(self._process.pid, signal.SIGKILL)

    # --- The ends of the program and of its pipes -------------------------------------------------

    def _exited(self) -> None:
        """Wait a moment for the output to be read to its end."""
        self._loop.remove_reader(self._exit)
        os.close(self._exit)
        if self._process is not None:
            self._process.wait()  # which it has done: this only asks how
        if self._output_ended:
            self._finish()
        else:
            self._later(_LAST_WORDS_SECONDS, self._finish)

    def output_ended(self) -> None:
        """Let the handler end a program that will not be heard any more; it may owe answers yet."""
        self._output_ended = True
        if not self._running:
            self._finish()
            return
        handler = self._intake.handler
        if handler is None or self._input_closed:
            self.stop(seconds_max=STDIO_STOP_SECONDS_MAX)
            return
        try:
            handler.ended()
        except Exception as error:  # noqa: BLE001
            # Whatever broke, it breaks one program only.
            self._owner.failed(self, error)
            self.abort()

    def input_ended(self) -> None:
        """Write no more to a program that does not listen; it may go on speaking."""
        self._input_closed = True
        self._stdin = None

    def _finish(self) -> None:
        if self.ended.done():
            return
        for timer in self._timers:
            timer.cancel()
        code = self._process.returncode if self._process is not None else None
        self._close_pipes()
        self._end(f"the program ended with code {code}")
        self.ended.set_result(code)

    def _close_pipes(self) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort()
        for output in self._outputs:
            output.close()

    def _end(self, reason: str) -> None:
        self._input_closed = True
        handler = self._intake.end()
        if handler is not None:
            handler.lost(reason)
            self._owner.closed(self)

    # --- The pipes' side --------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Let the handler take what it can of `data`, or of what waits if that is empty."""
        try:
            if data:
                self._intake.take(data)
            else:
                self._intake.take_waiting()
        except Exception as error:  # noqa: BLE001
            # Whatever broke, it breaks one program only.
            self._owner.failed(self, error)
            self.abort()

    def drained(self) -> None:
        """Let the handler know that the program has caught up."""
        self.congested = False
        if self._intake.handler is not None:
            self._intake.handler.drained()

    # --- The handler's side -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        return self._stdin.get_write_buffer_size() if self._stdin is not None else 0

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._intake.handler = handler

    def write(self, data: bytes) -> None:
        """See ports.Link."""
        if self._input_closed:
            return
        if self._stdin is not None:
            self._stdin.write(data)
        else:
            self._early.append(data)

    def pause(self) -> None:
        """See ports.Link."""
        if self._intake.pause() and self._outputs and not self._output_ended:
            self._outputs[0].pause_reading()

    def resume(self) -> None:
        """See ports.Link: what waits is handed on first, and may pause again."""
        if not self._intake.resume():
            return
        if self._outputs and not self._output_ended:
            self._outputs[0].resume_reading()
        self.take(b"")

    def close(self) -> None:
        """See ports.Link: the program sees the end of its input, and has a while to end too."""
        self.stop(seconds_max=STDIO_STOP_SECONDS_MAX)

    def abort(self) -> None:
        """See ports.Link."""
        self._input_closed = True
        self._kill()


class _Input(asyncio.BaseProtocol):
    """A program's standard input."""

    def __init__(self, link: ProgramLink) -> None:
        self._link = link

    def pause_writing(self) -> None:
        self._link.congested = True

    def resume_writing(self) -> None:
        self._link.drained()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._link.input_ended()


class _Output(asyncio.Protocol):
    """A program's standard output."""

    def __init__(self, link: ProgramLink) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.take(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._link.output_ended()


class _Errors(asyncio.Protocol):
    """A program's standard error: lines for the log."""

    def __init__(self, link: ProgramLink) -> None:
        self._link = link
        self._line = b""

    def data_received(self, data: bytes) -> None:
        lines = (self._line + data).split(b"\n")
        self._line = lines.pop()
        if len(self._line) > STDIO_ERROR_LINE_BYTES_MAX:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            text = line[:STDIO_ERROR_LINE_BYTES_MAX].decode(errors="replace").rstrip()
            if text:
                log.info(
                    "program wrote to standard error",
                    connection=self._link.connection,
                    program=self._link.peer,
                    line=text,
                )

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.data_received(b"\n")


class Supervisor:
    """Keeps one program running, from `start` until `stop`."""

    def __init__(
        self,
        owner: ProgramOwner,
        program: Program,
        *,
        restart_seconds_min: float = STDIO_RESTART_SECONDS_MIN,
        restart_seconds_max: float = STDIO_RESTART_SECONDS_MAX,
    ) -> None:
        self.program = program
        self.restarts = 0
        self._owner = owner
        self._restart_seconds_min = restart_seconds_min
        self._restart_seconds_max = restart_seconds_max
        self._link: ProgramLink | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the program, and run it again whenever it ends."""
        self._task = asyncio.create_task(self._keep_running())

    def stop_restarting(self) -> None:
        """Let it run, but only as long as it does not end."""
        self._stopping.set()

    async def stop(self, *, seconds_max: float) -> None:
        """End the program: its input closes, then it is terminated, then killed."""
        self._stopping.set()
        if self._link is not None:
            self._link.stop(seconds_max=seconds_max)
        if self._task is None:
            return
        # A killed program ends at once; the margin is for the loop to notice.
        _, pending = await asyncio.wait([self._task], timeout=seconds_max + 1)
        for task in pending:
            task.cancel()

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause = self._restart_seconds_min
        while not self._stopping.is_set():
            started = loop.time()
            await self._run_once()
            if self._stopping.is_set():
                return
            if loop.time() - started > self._restart_seconds_max:
                pause = self._restart_seconds_min
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pause = min(2 * pause, self._restart_seconds_max)
                self.restarts += 1

    async def _run_once(self) -> None:
        program = self.program
        link = ProgramLink(self._owner, program)
        try:
            client_id = link.open()
        except PenstockError as error:
            log.warning(
                "program cannot be let in",
                connection=link.connection,
                program=program.name,
                reason=str(error),
            )
            return
        try:
            await link.start(client_id)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            log.warning(
                "program cannot be started",
                connection=link.connection,
                program=program.name,
                reason=reason,
            )
            return
        self._link = link
        log.info(
            "program started",
            connection=link.connection,
            program=link.peer,
            client_id=client_id,
        )
        if self._stopping.is_set():  # while it was being started
            link.stop(seconds_max=STDIO_STOP_SECONDS_MAX)
        code = await link.ended
        self._link = None
        log.info("program ended", connection=link.connection, program=link.peer, code=code)
