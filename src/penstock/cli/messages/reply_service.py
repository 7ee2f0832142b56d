"""A client that answers requests, prints them and counts them."""

import asyncio
import os
import signal
import sys
import time
from typing import Any

from penstock.cli.common.client_options import Broker
from penstock.cli.common.columns import plural
from penstock.cli.common.output import json_line, line_of, quiet_pipe, sum_up, tell
from penstock.cli.common.remedies import client_errors
from penstock.cli.common.text import shown
from penstock.cli.messages.payload import decoded, payload_fields, payload_of
from penstock.cli.messages.reply_command import Answer
from penstock.cli.messages.request_options import Form
from penstock.client import (
    Client,
    ClientEvent,
    Request,
    RequestFailed,
    State,
    StateChanged,
    connect,
)

__all__ = ["Constant", "Service", "echo_request", "run_service"]


def run_service(
    broker: Broker, path: str, answer: Answer, *, count: int | None, json: bool
) -> None:
    """Answer requests until a signal or `count` replies; raise OperatorError."""
    with quiet_pipe(), client_errors(broker):
        asyncio.run(Service(broker, path, answer, count=count, json=json).run())


class Constant:
    """An `Answer` that is always the same value."""

    def __init__(self, value: str, form: Form) -> None:
        self._payload = payload_of(os.fsencode(value), form)

    async def __call__(self, request: Request) -> object:  # noqa: ARG002
        """See Answer."""
        return self._payload


async def echo_request(request: Request) -> object:
    """Return the payload of the request."""
    return decoded(request)


class Service:
    """Answers requests, prints them and counts them."""

    def __init__(
        self, broker: Broker, path: str, answer: Answer, *, count: int | None, json: bool
    ) -> None:
        self._broker = broker
        self._path = path
        self._answer = answer
        self._count = count
        self._json = json
        self._answered = 0
        self._failed = 0
        self._registered = False
        self._done = asyncio.Event()
        self._broken: OSError | None = None
        self._client: Client

    async def run(self) -> None:
        """Serve until a signal or enough replies."""
        loop = asyncio.get_running_loop()
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            self._done.set()

        self._client = connect(self._broker.url, **self._broker.options, on_event=self._observe)  # type: ignore[misc]
        async with self._client as client:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, interrupt)
            await client.register_service(self._path, self._handle)
            self._registered = True
            self._tell_identity()
            await self._done.wait()
            await asyncio.sleep(0)  # the task of the last answer sends it
        if self._broken is not None:
            raise self._broken
        if interrupted:
            failed = f", {self._failed:,} of them failed" if self._failed else ""
            sum_up(f"{plural(self._answered, 'request')} answered{failed}.")

    def _observe(self, event: ClientEvent) -> None:

        if not isinstance(event, StateChanged):
            tell(str(event.error))
        elif event.state is State.CONNECTED and self._registered:
            self._tell_identity()
        elif event.state is State.RECONNECTING:
            tell(f"the connection was lost: {event.reason}; reconnecting")
        elif event.state is State.CLOSED:
            self._done.set()

    def _tell_identity(self) -> None:
        """Print the client id to send requests to; it changes with each connection."""
        identity = self._client.identity
        if self._json:
            self._write(json_line({"path": self._path, "client_id": identity}))
        else:
            self._write(f"client {identity} answers {self._path}\n".encode())

    async def _handle(self, request: Request) -> object:

        started = time.monotonic()
        status, result = 200, None
        try:
            result = await self._answer(request)
        except RequestFailed as failed:
            status, result = failed.status, failed.payload
            self._failed += 1
            raise
        finally:
            self._print(request, status, result, time.monotonic() - started)
        return result

    def _print(self, request: Request, status: int, result: object, seconds: float) -> None:
        self._answered += 1
        if self._json:
            fields: dict[str, Any] = {"path": self._path, "sender": request.sender}
            fields |= {**payload_fields(request), "status": status, "ms": seconds * 1000}
            if status != 200:
                fields["error"] = str(result)
            self._write(json_line(fields))
        else:
            asked = line_of(decoded(request), raw=False)[:-1].decode()
            error = "" if status == 200 else f"\t{shown(str(result))}"
            self._write(f"{request.sender}\t{status}\t{asked}{error}\n".encode())
        if self._count is not None and self._answered >= self._count:
            asyncio.get_running_loop().call_soon(self._done.set)

    def _write(self, line: bytes) -> None:
        try:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            self._broken = error
            self._done.set()
