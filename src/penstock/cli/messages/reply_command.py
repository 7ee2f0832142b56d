"""Answer requests with a command: one process per request, limited in time, number and output."""

import asyncio
import contextlib
import os
import shlex
import signal
from asyncio import StreamReader
from asyncio.subprocess import PIPE, Process
from typing import Protocol

import typer

from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import json_line
from penstock.cli.messages.payload import decoded, payload_of
from penstock.cli.messages.request_options import Form
from penstock.client import Request, RequestFailed
from penstock.limits import REPLY_BYTES_MAX, REPLY_ERROR_CHARACTERS_MAX

__all__ = ["Answer", "Command"]

_SHELL = "/bin/sh"


class Answer(Protocol):
    """A function that makes the reply to a request."""

    async def __call__(self, request: Request) -> object:
        """Return the payload; raise RequestFailed."""


class Command:
    """An `Answer` that is the output of a command, with or without a shell."""

    def __init__(
        self, text: str, *, shell: bool, parallel: int, seconds_max: float, form: Form
    ) -> None:
        try:
            self._arguments = [_SHELL, "-c", text] if shell else shlex.split(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r}: {error}.", param_hint="--exec") from None
        if not self._arguments:
            raise typer.BadParameter("is empty.", param_hint="--exec")
        self._turns = asyncio.Semaphore(parallel)
        self._seconds_max = seconds_max
        self._form = form

    async def __call__(self, request: Request) -> object:
        """See Answer."""
        async with self._turns:
            try:
                async with asyncio.timeout(self._seconds_max):
                    code, output, errors = await self._run(request)
            except TimeoutError:
                raise RequestFailed(504, f"no answer within {self._seconds_max:g} s") from None
            except OSError as error:
                reason = error.strerror or str(error)
                raise RequestFailed(500, f"{self._arguments[0]}: {reason}") from None
        if code:
            said = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise RequestFailed(500, f"ended with {code}: {said[:REPLY_ERROR_CHARACTERS_MAX]}")
        if len(output) > REPLY_BYTES_MAX:
            raise RequestFailed(500, f"answered with more than {REPLY_BYTES_MAX:,} bytes")
        try:
            return payload_of(output, self._form)
        except CommandFailed as error:
            raise RequestFailed(500, str(error)) from None

    async def _run(self, request: Request) -> tuple[int, bytes, bytes]:
        """Return exit code, output and errors of the command; kill what is left of it."""
        process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={
                **os.environ,
                "PENSTOCK_REQUEST_PATH": request.path,
                "PENSTOCK_REQUEST_SENDER": str(request.sender),
            },
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("a process without pipes")
        try:
            _, output, errors = await asyncio.gather(
                _feed(process, _input(request)),
                _read(process.stdout, REPLY_BYTES_MAX + 1),
                _read(process.stderr, REPLY_BYTES_MAX),
            )
            if len(output) > REPLY_BYTES_MAX:
                return 0, output, errors
            return await process.wait(), output, errors
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())


def _input(request: Request) -> bytes:
    payload = decoded(request)
    if payload is None or isinstance(payload, bytes | str):
        return request.value
    return json_line(payload)


async def _feed(process: Process, data: bytes) -> None:
    stdin = process.stdin
    if stdin is None:
        raise AssertionError("a process without pipes")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read all
        stdin.write(data)
        await stdin.drain()
    stdin.close()


async def _read(stream: StreamReader, size_max: int) -> bytes:
    """Return the whole stream, or its first `size_max` bytes."""
    found = bytearray()
    while len(found) < size_max and (more := await stream.read(size_max - len(found))):
        found += more
    return bytes(found)
