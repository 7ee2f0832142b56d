"""Handlers of a client: for requests to the paths it serves and calls of its middleware."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from penstock.client.connection import Connection
from penstock.client.errors import BadOption, RequestFailed
from penstock.client.sessions.base import Hook
from penstock.client.values import HookCall, Request, packed
from penstock.wire.fleximq import StatusCode

__all__ = ["Handlers", "HookHandler", "RequestHandler"]

RequestHandler: TypeAlias = Callable[[Request], Awaitable[Any] | Any]
"""Returns the payload of the answer, or an awaitable of it. Raises RequestFailed for a status."""

HookHandler: TypeAlias = Callable[[HookCall], Awaitable[str | None] | str | None]
"""Returns None to accept the event, a text to refuse it, or an awaitable of either."""


class Handlers:
    """A `connection.Responder` that runs one task per request, up to `requests_max`."""

    def __init__(self, *, requests_max: int, report: Callable[[Exception], None]) -> None:
        self._requests_max = requests_max
        self._report = report
        self._paths: dict[str, RequestHandler] = {}
        self._hooks: dict[str, tuple[Hook, HookHandler]] = {}
        self.named: dict[str, None] = {}
        """Paths that are registered by name, and again after a reconnect."""
        self._tasks: set[asyncio.Task[None]] = set()

    def add_path(self, path: str, handler: RequestHandler) -> None:
        """Answer requests to `path`; raise BadOption if it has a handler already."""
        if path in self._paths:
            raise BadOption("path", f"{path!r} is served already")
        self._paths[path] = handler

    def drop_path(self, path: str) -> None:
        """Stop answering requests to `path`."""
        self._paths.pop(path, None)

    def add_hook(self, hook: Hook, handler: HookHandler) -> None:
        """Answer calls of a hook; raise BadOption if it has a handler already."""
        if hook.name in self._hooks:
            raise BadOption("name", f"{hook.name!r} is a middleware already")
        self._hooks[hook.name] = (hook, handler)

    def drop_hook(self, name: str) -> None:
        """Stop answering calls of a hook."""
        self._hooks.pop(name, None)

    def hooks(self) -> list[Hook]:
        """Return the registered hooks."""
        return [hook for hook, _ in self._hooks.values()]

    async def close(self) -> None:
        """Cancel all handlers, except the one that closes the client."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # --- connection.Responder ---------------------------------------------------------------------

    def requested(self, connection: Connection, request: Request) -> None:
        """See connection.Responder."""
        handler = self._paths.get(request.path)
        if handler is None:
            connection.session.reply(request, StatusCode.NOT_FOUND, packed("no such path"))
        elif len(self._tasks) >= self._requests_max:
            connection.session.reply(request, StatusCode.SERVICE_UNAVAILABLE, packed("too busy"))
        else:
            self._spawn(self._answer_request(connection, request, handler))

    def hook_called(self, connection: Connection, call: HookCall) -> None:
        """See connection.Responder; an event without a handler is accepted."""
        if call.hook not in self._hooks:
            connection.session.answer_hook(call, None)
        elif len(self._tasks) >= self._requests_max:
            connection.session.answer_hook(call, "the middleware is too busy")
        else:
            self._spawn(self._answer_hook(connection, call, self._hooks[call.hook][1]))

    def reported(self, error: Exception) -> None:
        """See connection.Responder."""
        self._report(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_request(
        self, connection: Connection, request: Request, handler: RequestHandler
    ) -> None:
        status: int = StatusCode.OK
        try:
            result = handler(request)
            if inspect.isawaitable(result):
                result = await result
            payload = packed(result)
        except RequestFailed as failed:
            status, payload = failed.status, packed(failed.payload)
        except Exception as error:  # noqa: BLE001
            # Any failure of the handler is answered and reported; the client goes on.
            status, payload = StatusCode.INTERNAL_SERVER_ERROR, packed("the handler failed")
            self._report(error)
        connection.session.reply(request, status, payload)
        connection.flush()

    async def _answer_hook(
        self, connection: Connection, call: HookCall, handler: HookHandler
    ) -> None:
        try:
            refusal = handler(call)
            if inspect.isawaitable(refusal):
                refusal = await refusal
        except Exception as error:  # noqa: BLE001
            # Any failure of the handler is answered and reported; the client goes on.
            refusal = "the middleware failed"
            self._report(error)
        connection.session.answer_hook(call, refusal)
        connection.flush()
