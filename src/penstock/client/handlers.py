"""What a client is asked: requests to the paths it serves, calls of its middleware."""

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
"""Returns the payload of the answer, or an awaitable of it; raises RequestFailed for a status."""

HookHandler: TypeAlias = Callable[[HookCall], Awaitable[str | None] | str | None]
"""Returns None, or an awaitable of it, to let the event pass; a text to refuse it."""


class Handlers:
    """A `connection.Asked`: one task for each question, up to a bound."""

    def __init__(self, *, requests_max: int, report: Callable[[Exception], None]) -> None:
        self._requests_max = requests_max
        self._report = report
        self._paths: dict[str, RequestHandler] = {}
        self._hooks: dict[str, tuple[Hook, HookHandler]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add_path(self, path: str, handler: RequestHandler) -> None:
        """Answer requests to `path`; raise BadOption if someone does already."""
        if path in self._paths:
            raise BadOption("path", f"{path!r} is served already")
        self._paths[path] = handler

    def drop_path(self, path: str) -> None:
        """Answer requests to `path` no more."""
        self._paths.pop(path, None)

    def add_hook(self, hook: Hook, handler: HookHandler) -> None:
        """Answer calls of a hook; raise BadOption if someone does already."""
        if hook.name in self._hooks:
            raise BadOption("name", f"{hook.name!r} is a middleware already")
        self._hooks[hook.name] = (hook, handler)

    def drop_hook(self, name: str) -> None:
        """Answer calls of a hook no more."""
        self._hooks.pop(name, None)

    def hooks(self) -> list[Hook]:
        """Return the hooks, to register them again."""
        return [hook for hook, _ in self._hooks.values()]

    async def close(self) -> None:
        """Stop answering; a handler that closes its client goes on."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # --- connection.Asked -------------------------------------------------------------------------

    def requested(self, connection: Connection, request: Request) -> None:
        """See connection.Asked."""
        handler = self._paths.get(request.path)
        if handler is None:
            connection.session.reply(request, StatusCode.NOT_FOUND, packed("no such path"))
        elif len(self._tasks) >= self._requests_max:
            connection.session.reply(request, StatusCode.SERVICE_UNAVAILABLE, packed("too busy"))
        else:
            self._spawn(self._answer(connection, request, handler))

    def hook_called(self, connection: Connection, call: HookCall) -> None:
        """See connection.Asked: what nobody answers here passes."""
        if call.hook not in self._hooks:
            connection.session.answer_hook(call, None)
        elif len(self._tasks) >= self._requests_max:
            connection.session.answer_hook(call, "the middleware is too busy")
        else:
            self._spawn(self._judge(connection, call, self._hooks[call.hook][1]))

    def reported(self, error: Exception) -> None:
        """See connection.Asked."""
        self._report(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
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
            # Whatever broke, the asker gets an answer and the client goes on.
            status, payload = StatusCode.INTERNAL_SERVER_ERROR, packed("the handler failed")
            self._report(error)
        connection.session.reply(request, status, payload)
        connection.flush()

    async def _judge(self, connection: Connection, call: HookCall, handler: HookHandler) -> None:
        try:
            refusal = handler(call)
            if inspect.isawaitable(refusal):
                refusal = await refusal
        except Exception as error:  # noqa: BLE001
            # Whatever broke, the broker gets an answer and the client goes on.
            refusal = "the middleware failed"
            self._report(error)
        connection.session.answer_hook(call, refusal)
        connection.flush()
