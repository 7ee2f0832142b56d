"""A client that answers requests, prints them and counts."""

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.client_options import Broker, json_line, line_of, sum_up, tell
from penstock.cli.columns import plural
from penstock.cli.log_text import shown
from penstock.cli.reply_command import Answer
from penstock.cli.req_payload import decoded, payload_fields

if TYPE_CHECKING:
    from penstock.client import Client, ClientEvent, Request

__all__ = ["Constant", "Service", "echoed"]


class Constant:
    """Answers with one value."""

    def __init__(self, payload: object) -> None:
        self._payload = payload

    async def __call__(self, request: "Request") -> object:  # noqa: ARG002
        """See Answer."""
        return self._payload


async def echoed(request: "Request") -> object:
    """Answer with the request."""
    return decoded(request)


class Service:
    """Answers, prints and counts."""

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
        self._done = asyncio.Event()
        self._broken: OSError | None = None
        self._client: Client

    async def run(self) -> None:
        """Serve until a signal, or enough answers."""
        from penstock.client import connect  # noqa: PLC0415  (so that --help starts fast)

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
            client.serve(self._path, self._handle)
            await self._done.wait()
            await asyncio.sleep(0)  # the last answer leaves with the task that made it
        if self._broken is not None:
            raise self._broken
        if interrupted:
            failed = f", {self._failed:,} of them failed" if self._failed else ""
            sum_up(f"{plural(self._answered, 'request')} answered{failed}.")

    def _observe(self, event: "ClientEvent") -> None:
        from penstock.client import State, StateChanged  # noqa: PLC0415

        if not isinstance(event, StateChanged):
            tell(str(event.error))
        elif event.state is State.CONNECTED:
            self._tell_identity()
        elif event.state is State.RECONNECTING:
            tell(f"the connection was lost: {event.reason}; it is made again")
        elif event.state is State.CLOSED:
            self._done.set()

    def _tell_identity(self) -> None:
        """Say by which id requests reach this client; it is another with each connection."""
        identity = self._client.identity
        if self._json:
            self._write(json_line({"path": self._path, "client_id": identity}))
        else:
            self._write(f"client {identity} answers {self._path}\n".encode())

    async def _handle(self, request: "Request") -> object:
        from penstock.client import RequestFailed  # noqa: PLC0415

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

    def _print(self, request: "Request", status: int, result: object, seconds: float) -> None:
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
