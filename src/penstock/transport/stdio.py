"""Programs that the broker starts and talks to over their standard input and output.

fleximq 6.4: the broker writes to a program's standard input and reads its standard output. The
client id is in the environment. Each line on standard error is logged. A program that exits is
restarted after a delay, which doubles while the program keeps exiting early.
"""

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from penstock._kernels.gathered import Gathered
from penstock.environment import inherited_variables
from penstock.errors import PenstockError
from penstock.limits import (
    MEMORY_BLOCK_BYTES,
    STDIO_ERROR_LINE_BYTES_MAX,
    STDIO_RESTART_SECONDS_MAX,
    STDIO_RESTART_SECONDS_MIN,
    STDIO_STOP_SECONDS_MAX,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.ports import Handler
from penstock.transport.links import InputBuffer, next_connection_number

__all__ = [
    "CLIENT_ID_VARIABLE",
    "Program",
    "ProgramLink",
    "ProgramOwner",
    "Supervisor",
]

log = structlog.get_logger("penstock.stdio")

CLIENT_ID_VARIABLE: Final = "PENSTOCK_CLIENT_ID"
_OUTPUT_DRAIN_SECONDS: Final = 0.5
"""Time to read the output of a program that exited; its children may keep the pipe open."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program to run. `command` is the executable and its arguments; no shell is involved."""

    name: str
    command: tuple[str, ...]
    directory: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class ProgramOwner(Protocol):
    """The listener that programs belong to."""

    @property
    def congested_bytes(self) -> int:
        """Bytes buffered for a program above which its link is congested."""

    def opened(self, link: "ProgramLink", program: Program) -> tuple[Handler, int]:
        """Register a program before it starts; return its handler and its client id.

        Raise a PenstockError if there is no room for it.
        """

    def closed(self, link: "ProgramLink") -> None:
        """Remove a program that has exited."""

    def failed(self, link: "ProgramLink", error: Exception) -> None:
        """Log an exception of a program's handler; the program is killed."""


class ProgramLink:
    """One run of a program; to its handler it is a `ports.Link`.

    `subprocess` starts the process, not the event loop: uvloop leaves duplicates of the pipes open
    inside the program, and then the broker never sees end-of-file.
    """

    def __init__(self, owner: ProgramOwner, program: Program) -> None:
        self._owner = owner
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._exit = -1  # a pidfd, readable once the program has exited
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._input = InputBuffer()
        self._input_closed = False
        self._output_ended = False
        self._written_early: list[bytes | memoryview] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._received = 0  # bytes since the start
        self.account: Account = unlimited_account()
        self.congested = False
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self.connection = next_connection_number()
        self.peer = f"stdio:{program.name}"
        self.host = ""
        self.certificate_names: frozenset[str] = frozenset()
        self.has_left = False

    # --- Called by the supervisor -----------------------------------------------------------------

    def open(self) -> int:
        """Register the program before it starts; return its client id. Raise PenstockError."""
        self._input.handler, client_id = self._owner.opened(self, self._program)
        return client_id

    async def start(self, client_id: int) -> None:
        """Run the program; raise OSError, and close the link, if it cannot be started."""
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
            env={
                **inherited_variables(os.environ),
                **program.environment,
                CLIENT_ID_VARIABLE: str(client_id),
            },
            close_fds=True,
            # A session of its own, so that terminal signals reach the broker only.
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
        self._stdin.writelines(self._written_early)
        self._written_early.clear()
        if self._input.paused:
            output.pause_reading()
        if self.ended.done():  # the program has exited already
            self._close_pipes()
        elif self._input_closed:
            self.stop(seconds_max=STDIO_STOP_SECONDS_MAX)

    def stop(self, *, seconds_max: float) -> None:
        """Close the program's input; terminate it after half of `seconds_max`, then kill it."""
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
            # Kill its children too: it leads a process group.
            os.killpg(self._process.pid, signal.SIGKILL)

    # --- Exit of the program, end of its pipes ----------------------------------------------------

    def _exited(self) -> None:
        """Read the rest of the output, for a short time, before the link ends."""
        self._loop.remove_reader(self._exit)
        os.close(self._exit)
        if self._process is not None:
            self._process.wait()  # returns at once: reap the process
        if self._output_ended:
            self._finish()
        else:
            self._later(_OUTPUT_DRAIN_SECONDS, self._finish)

    def output_ended(self) -> None:
        """Tell the handler that the program sends nothing more; replies may still be pending."""
        self._output_ended = True
        if not self._running:
            self._finish()
            return
        handler = self._input.handler
        if handler is None or self._input_closed:
            self.stop(seconds_max=STDIO_STOP_SECONDS_MAX)
            return
        try:
            handler.ended()
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own program only.
            self._owner.failed(self, error)
            self.abort()

    def input_ended(self) -> None:
        """Stop writing: the program has closed its input. It may still send."""
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
        handler = self._input.close()
        self.account.close()
        if handler is not None:
            handler.lost(reason)
            self._owner.closed(self)

    # --- Called by the pipes ----------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Offer `data` to the handler, or the waiting bytes if it is empty."""
        self._received += len(data)
        try:
            if data:
                self._input.feed(data)
            else:
                self._input.flush()
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own program only.
            self._owner.failed(self, error)
            self.abort()

    def drained(self) -> None:
        """Tell the handler that the link is no longer congested."""
        self.congested = False
        if self._input.handler is not None:
            self._input.handler.drained()

    # --- memory.Holder ----------------------------------------------------------------------------

    def measure(self) -> int:
        """See memory.Holder: a configured program is trusted, and always moves."""
        self.account.force(Purpose.INPUT, self._input.waiting_bytes)
        self.account.force(Purpose.OUTPUT, self.buffered)
        return self._received + MEMORY_BLOCK_BYTES * int(self._loop.time())

    def evict(self) -> None:
        """See memory.Holder."""
        self.abort()

    # --- ports.Link -------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        return self._stdin.get_write_buffer_size() if self._stdin is not None else 0

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._input.handler = handler

    def write_gathered(self, frames: Gathered) -> None:
        """See ports.Link: the frames are copied."""
        self.write(frames.copied())

    def write(self, data: bytes | memoryview) -> None:
        """See ports.Link."""
        if self._input_closed:
            return
        if self._stdin is not None:
            self._stdin.write(data)
        else:
            self._written_early.append(data)

    def pause(self) -> None:
        """See ports.Link."""
        if self._input.pause() and self._outputs and not self._output_ended:
            self._outputs[0].pause_reading()

    def resume(self) -> None:
        """See ports.Link: waiting bytes are offered first; the handler may pause again."""
        if not self._input.resume():
            return
        if self._outputs and not self._output_ended:
            self._outputs[0].resume_reading()
        self.take(b"")

    def close(self) -> None:
        """See ports.Link: the program sees end-of-file and has STDIO_STOP_SECONDS_MAX to exit."""
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
    """A program's standard error, logged line by line."""

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
        """Run the program, and restart it whenever it exits."""
        self._task = asyncio.create_task(self._keep_running())

    def stop_restarting(self) -> None:
        """Do not restart the program once it exits."""
        self._stopping.set()

    async def stop(self, *, seconds_max: float) -> None:
        """Stop the program: close its input, then terminate it, then kill it."""
        self._stopping.set()
        if self._link is not None:
            self._link.stop(seconds_max=seconds_max)
        if self._task is None:
            return
        # One second more, for the event loop to see that a killed program has exited.
        _, pending = await asyncio.wait([self._task], timeout=seconds_max + 1)
        for task in pending:
            task.cancel()

    def kill(self) -> None:
        """Kill the program, if it runs; any thread may call this."""
        link = self._link
        if link is not None:
            with contextlib.suppress(ProcessLookupError):
                link.abort()

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
                "program refused",
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
