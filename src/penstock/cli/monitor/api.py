"""A client of the broker's HTTP API."""

import base64
import http.client
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import msgspec
import typer

from penstock.cli.common.client_options import utf8
from penstock.cli.common.failure import CommandFailed
from penstock.cli.monitor.kept_connection import KeptConnection, PlainHandler, TlsHandler
from penstock.limits import HTTP_REQUEST_SECONDS_MAX

__all__ = ["API_URL_DEFAULT", "Api", "ApiCa", "ApiUrl", "authorization"]

API_URL_DEFAULT: Final = "http://127.0.0.1:7080"
URL_VARIABLE: Final = "PENSTOCK_HTTP_URL"
PAGE_ENTRIES: Final = 1000
ANSWER_SECONDS_MAX: Final = 15.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_NOTHING: Final[Mapping[str, object]] = {}
_CREDENTIALS: Final = "set PENSTOCK_TOKEN, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD"

ApiUrl = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="The HTTP address of the broker.", envvar=URL_VARIABLE
    ),
]
ApiCa = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Certificates to trust with https, instead of the system's.",
        show_default=False,
    ),
]


class Api:
    """A client of the HTTP API at a URL; every error is a CommandFailed.

    Credentials come from the environment: other users of a machine can read a command line.
    With `kept`, the connection of the last request is kept there.
    """

    def __init__(
        self, url: str, *, ca: Path | None = None, kept: KeptConnection | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise CommandFailed(
                f"{url!r} is not an HTTP URL",
                f"give --url or set {URL_VARIABLE} to one such as {API_URL_DEFAULT}",
            )
        self.url = url.rstrip("/")
        self._answered = False
        handlers: list[Any] = [ProxyHandler({})]
        if parts.scheme == "https":
            tls = _tls(ca)
            handlers.append(HTTPSHandler(context=tls) if kept is None else TlsHandler(kept, tls))
        elif kept is not None:
            handlers.append(PlainHandler(kept))
        self._opener = build_opener(*handlers)

    def get(
        self, path: str, query: Mapping[str, object] = _NOTHING, *, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Return the response to a GET that takes the broker `seconds`; raise CommandFailed."""
        given = {key: value for key, value in query.items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(given)}" if given else "")
        request = Request(address, headers=authorization())  # noqa: S310  (http and https only)
        return self._answer(request, seconds)

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Return the response to a POST of JSON; raise CommandFailed."""
        headers = {**authorization(), "Content-Type": "application/json"}
        data = msgspec.json.encode(body)
        request = Request(self.url + path, data, headers)  # noqa: S310  (http and https only)
        return self._answer(request, HTTP_REQUEST_SECONDS_MAX)

    def delete(self, path: str) -> dict[str, Any]:
        """Return the response to a DELETE; raise CommandFailed."""
        request = Request(self.url + path, headers=authorization(), method="DELETE")  # noqa: S310
        return self._answer(request, HTTP_REQUEST_SECONDS_MAX)

    def _answer(self, request: Request, seconds: float) -> dict[str, Any]:
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS_MAX + seconds) as answer:
                document = self._decoded(answer.read(_ANSWER_BYTES_MAX))
        except HTTPError as error:
            raise self._refused(error) from None
        except URLError as error:
            raise self._unreachable(error.reason) from None
        except http.client.HTTPException as error:
            raise self._unreachable(error) if self._answered else self._not_a_broker() from None
        except OSError as error:
            raise self._unreachable(error) from None
        self._answered = True
        return document

    def pages(
        self, path: str, key: str, query: Mapping[str, object] = _NOTHING, *, limit: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list page by page, at most `limit`."""
        after: object = None
        left = limit
        while left > 0:
            answer = self.get(path, {**query, "limit": min(left, PAGE_ENTRIES), "after": after})
            yield from answer[key]
            left -= len(answer[key])
            after = answer["next"]
            if after is None:
                return

    def _decoded(self, data: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise self._not_a_broker() from None

    def _not_a_broker(self) -> CommandFailed:
        return CommandFailed(
            f"the server at {self.url} is not a broker's HTTP API",
            f"give --url or set {URL_VARIABLE} to the http address of `penstock serve`",
        )

    def _refused(self, error: HTTPError) -> CommandFailed:
        try:
            found = msgspec.json.decode(error.read(65_536))
            message = str(found["error"]["message"])
        except (msgspec.MsgspecError, TypeError, KeyError, OSError):
            return self._not_a_broker()
        if error.code == 401:
            return CommandFailed(f"{self.url} requires valid credentials", _CREDENTIALS)
        return CommandFailed(f"{self.url}: {message}")

    def _unreachable(self, reason: object) -> CommandFailed:
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        lost = f"the connection to {self.url} was lost" if self._answered else ""
        return CommandFailed(
            f"{lost or f'no broker answers at {self.url}'}: {str(text).lower()}",
            f"start one with penstock serve, or give --url or {URL_VARIABLE}",
        )


def _tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandFailed(f"{ca}: {reason.lower()}", "give --ca a PEM file") from None


def authorization() -> dict[str, str]:
    """Return the header with the credentials of the environment, or none."""
    secret = os.environ.get("PENSTOCK_TOKEN") or os.environ.get("PENSTOCK_API_KEY")
    if secret:
        secret = utf8(secret, "PENSTOCK_TOKEN or PENSTOCK_API_KEY")
        return {"Authorization": f"Bearer {secret}"}
    name, password = os.environ.get("PENSTOCK_USERNAME"), os.environ.get("PENSTOCK_PASSWORD")
    if name and password is not None:
        pair = base64.b64encode(os.fsencode(f"{name}:{password}")).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
