"""The HTTP application: authentication, decoding of requests, encoding of answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.access import Principal
from penstock.errors import (
    AuthenticationFailed,
    ErrorCode,
    MemoryExhausted,
    NotAllowed,
    PenstockError,
    TooManyMessages,
)
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    AUDIT_LIST_ENTRIES_MAX,
    HTTP_ANONYMOUS_REQUESTS_PER_SECOND_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_REQUEST_SECONDS_MAX,
    HTTP_RETRY_SECONDS,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.ports import AuditEvent
from penstock.ports.audit import AuditValue
from penstock.protocols import HTTP
from penstock.server.http import schemas
from penstock.server.http.auth import HttpAuth, method_of
from penstock.server.http.context import (
    CHANGED,
    MESSAGE_KEY,
    PEER,
    TRACE_PARENT,
    TRANSPORT,
    HttpContext,
)
from penstock.server.http.errors import ApiError, api_error
from penstock.server.http.metrics import exposition
from penstock.server.http.openapi import describe
from penstock.server.http.rates import CallerRates
from penstock.server.http.routes import Access, Operation, operations
from penstock.server.http.schemas import Failure, Fault
from penstock.server.http.turns import RequestTurns
from penstock.tracing import TRACE_HEADER
from penstock.transport.addresses import Address

__all__ = ["new_application"]

log = structlog.get_logger("penstock.http")

_CODES: Final = {404: "not-found", 405: "method-not-allowed"}
_ADVICE: Final = {
    404: "there is nothing here; GET /api/ lists what there is",
    405: "this path takes another method; GET /api/ lists what there is",
}
_HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})

Answering = Callable[[Request], Awaitable[Response]]


def new_application(context: HttpContext, address: Address, options: GatewayOptions) -> ASGIApp:
    """Return the application of one listener."""
    table = operations(lambda: describe(table))
    application = _Application(context, HttpAuth(address, options), options)
    routes = [
        # The name of a topic may have slashes.
        Route(
            each.path.replace("{name}", "{name:path}"),
            application.endpoint(each),
            methods=[each.method],
            name=each.name,
        )
        for each in table
    ]
    starlette = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _not_there},
    )
    starlette.router.redirect_slashes = False
    return _RequestGate(starlette, context)


class _Application:
    """Runs operations: authenticates the caller, decodes the request, encodes the answer."""

    def __init__(self, context: HttpContext, auth: HttpAuth, options: GatewayOptions) -> None:
        self._context = context
        self._auth = auth
        self._requests = CallerRates(
            HTTP_ANONYMOUS_REQUESTS_PER_SECOND_MAX,
            code="too-many-requests",
            noun="requests without credentials",
        )
        self._messages: CallerRates | None = None
        if options.messages_per_second_max is not None:
            self._messages = CallerRates(
                options.messages_per_second_max, code=TooManyMessages.code, noun="messages"
            )

    def endpoint(self, operation: Operation) -> Answering:
        """Return the handler of an operation."""

        async def answer(request: Request) -> Response:
            try:
                async with asyncio.timeout(HTTP_REQUEST_SECONDS_MAX):
                    response = await self._answer(operation, request)
                    _hold(request, response=len(response.body))
                    return response
            except ApiError as error:
                return _failure(error)
            except PenstockError as error:
                if isinstance(error, AuthenticationFailed):
                    log.info("request refused", **_peer(request), reason=error.reason)
                    self._context.broker.audit.record(
                        AuditEvent.LOGIN_FAILED,
                        **_peer(request),
                        protocol=HTTP.label,
                        method=method_of(request),
                        reason=error.reason,
                    )
                if isinstance(error, NotAllowed):
                    self._context.broker.record_refusal(
                        error, peer=_peer(request)["peer"], protocol=HTTP.label
                    )
                return _failure(api_error(error))
            except TimeoutError:
                message = f"no answer within {HTTP_REQUEST_SECONDS_MAX:g} s; ask again"
                return _failure(ApiError(503, "timed-out", message))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:  # a fault ends one request only
                log.exception("request failed", **_peer(request), path=operation.path)
                message = "a fault of the broker's own; its log has the details"
                return _failure(ApiError(500, "internal-error", message))

        return answer

    async def _answer(self, operation: Operation, request: Request) -> Response:
        if operation.access is Access.PUBLIC:
            return self._health(operation)
        self._auth.check_origin(request)
        host = request.client.host if request.client is not None else ""
        if "authorization" not in request.headers:
            self._requests.take(host)
        principal = await self._auth.authenticate(request)
        self._context.broker.audit.record(
            AuditEvent.LOGIN,
            principal=principal.name,
            **_peer(request),
            protocol=HTTP.label,
            method=method_of(request),
        )
        _account(request).identify(None if principal.is_anonymous else principal.name)
        if operation.run is None:
            accept = request.headers.get("accept", "")
            text, content_type = await exposition(self._context, principal, accept)
            return Response(text, headers={"Content-Type": content_type})
        version = principal.credentials_version
        asked = await self._decoded(operation, request)
        _check_version(principal, version)
        if self._messages is not None and operation.body is schemas.Message:
            self._messages.take(f"{principal.name} {host}")
        PEER.set(_peer(request)["peer"])
        MESSAGE_KEY.set(request.headers.get("idempotency-key"))
        TRACE_PARENT.set(request.headers.get(TRACE_HEADER))
        TRANSPORT.set(request.scope["state"]["peer"].transport)
        if operation.access is Access.ADMINISTERS and operation.method != "GET":
            return await self._administer(operation, request, principal, asked)
        answer = await self._run(operation.run, principal, asked)
        if operation.body is None:  # else it has taken effect
            _check_version(principal, version)
        return answer

    async def _administer(
        self,
        operation: Operation,
        request: Request,
        principal: Principal,
        asked: msgspec.Struct,
    ) -> Response:
        """Run an administrative act, and record its outcome. A failed act may have taken effect."""
        if operation.run is None:
            raise AssertionError("an act without a handler")
        CHANGED.set(None)
        reason: str | None = None
        try:
            return await self._run(operation.run, principal, asked)
        except (ApiError, PenstockError) as error:
            reason = error.code
            raise
        except asyncio.CancelledError:
            reason = "timed-out"
            raise
        except Exception:
            reason = "internal-error"
            raise
        finally:
            changed = CHANGED.get()
            if reason != NotAllowed.code or changed:  # a refusal has an event of its own
                peer = _peer(request)["peer"]
                acted = {"principal": principal.name, "peer": peer, "act": operation.name}
                self._record_act(acted, _target(asked), changed, reason)

    def _record_act(
        self,
        fields: Mapping[str, AuditValue],
        name: str,
        changed: list[str] | None,
        reason: str | None,
    ) -> None:
        """Record an act; if it changed many things, as several events."""
        pieces: list[dict[str, AuditValue]] = [{"name": name}]
        if changed is not None:
            pieces = [
                {"names": changed[first : first + AUDIT_LIST_ENTRIES_MAX]}
                for first in range(0, max(len(changed), 1), AUDIT_LIST_ENTRIES_MAX)
            ]
        for piece in pieces:
            self._context.broker.audit.record(
                AuditEvent.ADMINISTERED,
                **fields,
                protocol=HTTP.label,
                outcome="done" if reason is None else "failed",
                reason=reason,
                **piece,
            )

    async def _run(
        self,
        run: Callable[[HttpContext, Principal, Any], Awaitable[msgspec.Struct]],
        principal: Principal,
        asked: msgspec.Struct,
    ) -> Response:
        answer = await run(self._context, principal, asked)
        return _json(200, answer)

    def _health(self, operation: Operation) -> Response:
        problem = self._context.not_ready() if operation.path == "/readyz" else None
        text = "ok\n" if problem is None else f"{problem}\n"
        return Response(text, 200 if problem is None else 503, media_type="text/plain")

    async def _decoded(self, operation: Operation, request: Request) -> msgspec.Struct:
        """Return the decoded query or body; raise ApiError."""
        query = _converted({**request.query_params, **request.path_params}, operation.query)
        if operation.body is None:
            return query
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            message = "expected a body of JSON, with Content-Type: application/json"
            raise ApiError(415, "unsupported-media-type", message)
        body = await _body(request)
        try:
            return msgspec.json.decode(body, type=operation.body)
        except msgspec.MsgspecError as error:
            raise ApiError(400, "bad-request", _problem(error)) from None
        except RecursionError:
            raise ApiError(400, "bad-request", "the JSON is nested too deeply") from None
        except UnicodeDecodeError:
            raise ApiError(400, "bad-request", "expected JSON in UTF-8") from None


def _target(asked: msgspec.Struct) -> str:
    """Return the name of what an act changed, for the audit log."""
    found = getattr(asked, "name", getattr(asked, "connection", ""))
    return str(found)


def _check_version(principal: Principal, version: int) -> None:
    """Raise AuthenticationFailed if a principal's credentials have changed since the request."""
    if principal.credentials_version != version:
        raise AuthenticationFailed("request", "changed meanwhile")


async def _body(request: Request) -> bytes:
    """Return the body of a request; raise ApiError if it is too large or finds no memory."""
    chunks, size = [], 0
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        _check_body(int(declared))
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        _check_body(size)
        # Twice: as chunks and as one value, then as JSON and as a message.
        _hold(request, body=2 * size)
    return b"".join(chunks)


def _check_body(size: int) -> None:
    if size > HTTP_BODY_BYTES_MAX:
        message = (
            f"a body may have {HTTP_BODY_BYTES_MAX} bytes; "
            "send larger messages by one of the wire protocols"
        )
        raise ApiError(413, "body-too-large", message)


def _account(request: Request) -> Account:
    account: Account | None = request.scope.get("state", {}).get("account")
    return account or unlimited_account()


def _hold(request: Request, *, body: int = 0, response: int = 0) -> None:
    """Hold body and response of a request in the connection's account; raise MemoryExhausted."""
    if not _account(request).hold(Purpose.HTTP, body + response):
        raise MemoryExhausted("http")


def _converted(values: dict[str, str], kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message = _problem(error)
        if "unknown field" in message:
            known = ", ".join(field.name for field in msgspec.structs.fields(kind))
            message += f"; expected {known}" if known else "; nothing may stand behind the ?"
        raise ApiError(400, "bad-request", message) from None


def _problem(error: msgspec.MsgspecError) -> str:
    """Return the problem of a request, the field first."""
    text, _, place = str(error).partition(" - at `")
    field = place.rstrip("`").removeprefix("$.").removeprefix("$")
    text = text[:1].lower() + text[1:]
    if not isinstance(error, msgspec.ValidationError):
        return f"expected JSON: {text}"
    return f"{field}: {text}" if field else text


def _json(status: int, body: msgspec.Struct) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return Response(msgspec.json.encode(body), status, headers=headers)


def _failure(error: ApiError) -> Response:
    response = _json(error.status, Failure(Fault(error.code, error.message)))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer, Basic realm="penstock", charset="UTF-8"'
    if error.retry_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_seconds)
    if error.code == ErrorCode.MEMORY_EXHAUSTED:
        response.headers["Retry-After"] = str(HTTP_RETRY_SECONDS)
        response.headers["Connection"] = "close"  # the rest of the body is not read
    if error.status == 413:
        response.headers["Connection"] = "close"  # the rest of the body is not read
    return response


async def _not_there(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = _ADVICE.get(status, "the request is wrong")
    response = _failure(ApiError(status, _CODES.get(status, "bad-request"), message))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


def _peer(request: Request) -> dict[str, Any]:
    """Return the fields of log events that identify the connection of a request."""
    client = request.client
    return {
        "connection": request.scope.get("state", {}).get("connection"),
        "peer": f"{client.host}:{client.port}" if client else "",
    }


class _RequestGate:
    """Lets requests begin in turn, and counts them by the first digit of their status."""

    def __init__(self, inside: ASGIApp, context: HttpContext) -> None:
        self._inside = inside
        self._counts = context.requests
        self._turns = RequestTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                digit = message["status"] // 100
                self._counts[digit] = self._counts.get(digit, 0) + 1
            await send(message)

        if scope["type"] == "http" and scope["path"] not in _HEALTH_PATHS:
            await self._turns.wait()
        try:
            await self._inside(scope, receive, count)
        finally:
            account: Account | None = scope.get("state", {}).get("account")
            if account is not None:
                account.hold(Purpose.HTTP, 0)
