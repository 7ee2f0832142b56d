"""The log-in page: a form without scripts."""

import html
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.console.api import ApiRefused, BrokerApi, BrokerAway, basic, bearer
from penstock.console.limits import (
    ADDRESS_CHARACTERS_MAX,
    ANONYMOUS_REFUSED_SECONDS,
    LOGIN_BYTES_MAX,
    SESSION_SECONDS_MAX,
)
from penstock.console.sessions import COOKIE, LogIn, LogIns, login_of
from penstock.console.shell import PLACES

__all__ = ["LogInPage", "log_in_address", "page_theme", "target_of"]

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/console.css"><link rel="icon" href="/console.svg"></head>
<body class="login {theme}"><main><form method="post" action="/login" autocomplete="on">
<h1>Penstock</h1><p class="muted">Log in as a principal of the broker at {url}.</p>
{problem}
<input name="to" type="hidden" value="{target}">
<label>User name<input name="username" autocomplete="username" value="{username}"{at_name}></label>
<label>Password<input name="password" type="password"
 autocomplete="current-password"{at_password}></label>
<p class="muted or">or</p>
<label>Token or API key<input name="token" type="password" autocomplete="off"></label>
<button type="submit">Log in</button>
</form></main></body></html>
"""
_PROBLEM: Final = '<p class="problem" role="alert">{text}</p>'
_NOTHING: Final[Mapping[str, str]] = {}
_PATHS: Final = frozenset(place.path for place in PLACES)


def target_of(address: str) -> str:
    """Return the page of this console, with its query, that an address means; `/` if none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    is_other = parts.scheme or parts.netloc or parts.path not in _PATHS
    if is_other or len(address) > ADDRESS_CHARACTERS_MAX:
        return "/"
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def log_in_address(request: Request) -> str:
    """Return the address of the log-in that leads back to the page of a request."""
    url = request.url
    target = target_of(f"{url.path}?{url.query}" if url.query else url.path)
    return "/login" if target == "/" else f"/login?to={quote(target, safe='')}"


def page_theme(request: Request) -> str:
    """Return the theme that a visitor chose; empty for that of its system."""
    theme = request.cookies.get("theme", "")
    return theme if theme in {"dark", "light"} else ""


class LogInPage:
    """Handles log-ins and log-outs.

    `api` has no credentials: those of the console itself are not for its visitors. `open_to_all`
    says whether visitors may be what the broker takes the console for without credentials: only
    where all visitors are on this machine.
    """

    def __init__(self, api: BrokerApi, logins: LogIns, *, open_to_all: bool) -> None:
        self._api = api
        self._logins = logins
        self._open_to_all = open_to_all
        self._visitor: LogIn | None = None
        self._refused_until = 0.0

    async def show(self, request: Request) -> Response:
        """Show the form."""
        return self._page(request, given={"to": request.query_params.get("to", "")})

    async def log_in(self, request: Request) -> Response:
        """Check credentials with the broker; set the cookie, or show the form again."""
        form = await _form(request)
        if form is None:
            return self._page(request, "That is too long.", 413)
        if form.get("token"):
            authorization = bearer(form["token"])
        else:
            authorization = basic(form.get("username", ""), form.get("password", ""))
        if not authorization.isascii():
            return self._page(request, "A token consists of ASCII characters.", 401, given=form)
        api = self._api.with_credentials(authorization)
        try:
            login = login_of(api, await api.get("/api/me"))
        except ApiRefused as error:
            text = "These credentials are not valid." if error.status == 401 else str(error)
            return self._page(request, text, 401, given=form)
        except BrokerAway as error:
            return self._page(request, str(error), 502, given=form)
        answer = RedirectResponse(target_of(form.get("to", "")), 303)
        answer.set_cookie(
            COOKIE,
            self._logins.add(login),
            max_age=SESSION_SECONDS_MAX,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """Forget the credentials of a log-in."""
        login = self._logins.remove(request.cookies.get(COOKIE))
        if login is not None:
            await login.api.close()
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    async def find(self, cookie: str | None) -> LogIn | None:
        """Return the log-in of a cookie, else that of a visitor without credentials.

        Return None if credentials are wanted; raise BrokerAway.
        """
        login = self._logins.find(cookie)
        if login is not None and await self._renew(login):
            return login
        if login is not None:
            self._logins.remove(cookie)
            await login.api.close()
            return None
        if not self._open_to_all:
            return None
        if time.monotonic() < self._refused_until:
            return None
        try:
            found = login_of(self._api, await self._api.get("/api/me"))
        except ApiRefused as error:
            if error.status == 401:  # the broker records it, and every page would cause one
                self._refused_until = time.monotonic() + ANONYMOUS_REFUSED_SECONDS
            self._visitor = None
            return None
        if self._visitor is None:
            self._visitor = found
        self._visitor.administers, self._visitor.log = found.administers, found.log
        return self._visitor

    @staticmethod
    async def _renew(login: LogIn) -> bool:
        """Read the rights of a log-in again; return whether its credentials are still valid."""
        try:
            me = await login.api.get("/api/me")
        except ApiRefused as error:
            return error.status != 401
        login.administers, login.log = frozenset(me["administers"]), str(me["log"])
        return True

    def _page(
        self,
        request: Request,
        problem: str = "",
        status: int = 200,
        *,
        given: Mapping[str, str] = _NOTHING,
    ) -> Response:
        """Return the form, with the user name that was given, and why that did not suffice."""
        username = given.get("username", "")
        shown = _PROBLEM.format(text=html.escape(problem)) if problem else ""
        text = _PAGE.format(
            url=html.escape(self._api.url),
            problem=shown,
            theme=page_theme(request),
            target=html.escape(target_of(given.get("to", ""))),
            username=html.escape(username),
            at_name="" if username else " autofocus",
            at_password=" autofocus" if username else "",
        )
        return HTMLResponse(text, status)


async def _form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form, None if its body is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LOGIN_BYTES_MAX:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}
