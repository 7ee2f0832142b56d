"""Checks of every request to the console: its origin; and the content security policy of pages.

The content security policy allows scripts of the console itself, and inline ones with the nonce of
their answer. Nothing is loaded from another host. NiceGUI compiles the templates of its components
in the browser, so `unsafe-eval` is needed; the nonce keeps text of messages from becoming a script.
"""

import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PageSecurity", "content_policy", "cookies_of", "is_loopback_name"]

_FILES: Final = "/_nicegui/"
"""Where NiceGUI has its files, which have no inline scripts."""
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without it the form of a log-in has no Origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def content_policy(nonce: str) -> str:
    """Return the content security policy of a page whose scripts have this nonce."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


def is_loopback_name(name: str) -> bool:
    """Return whether a host name always means this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def cookies_of(scope: Scope) -> dict[str, str]:
    """Return the cookies of a request by name."""
    found: SimpleCookie = SimpleCookie()
    found.load(Headers(scope=scope).get("cookie", ""))
    return {name: each.value for name, each in found.items()}


class PageSecurity:
    """Refuses requests that other sites cause, and adds the headers of security to answers.

    `hosts` are the names by which browsers reach a console that is not only for this machine;
    without any, only names of this machine are accepted, which prevents DNS rebinding.
    """

    def __init__(self, inner: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._inner = inner
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem is not None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse(f"{problem}\n", 403)(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._inner(scope, receive, send)
            return
        if not scope["path"].startswith(_FILES):  # a nonce cannot be put into a compressed page
            scope["headers"] = [
                each for each in scope["headers"] if each[0].lower() != b"accept-encoding"
            ]
        await _Answer(send).run(self._inner, scope, receive)

    def _problem(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if name not in self._hosts and (self._hosts or not is_loopback_name(name)):
            return f"{name} is not a name of this console; --host allows one"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "a page of another site may not use the console"
        return None


class _Answer:
    """One answer: pages get a nonce in their scripts, all get the headers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._is_page = False
        self._body = b""

    async def run(self, inner: ASGIApp, scope: Scope, receive: Receive) -> None:
        await inner(scope, receive, self._pass)

    async def _pass(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            self._is_page = headers.get("content-type", "").startswith("text/html")
            headers["Content-Security-Policy"] = content_policy(self._nonce)
            headers.update(_HEADERS)
            self._start = message
            if not self._is_page:
                await self._send(message)
            return
        if not self._is_page or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send_page()

    async def _send_page(self) -> None:
        # Text from messages is escaped in pages: `<script` is in their own markup only.
        opening = b'<script nonce="%s"' % self._nonce.encode()
        body = self._body.replace(b"<script", opening)
        start = self._start
        if start is None:
            raise AssertionError("a body without a start")
        headers = MutableHeaders(scope=start)
        headers["Content-Length"] = str(len(body))
        headers["Cache-Control"] = "no-store"
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
