"""The broker's HTTP API, for commands: where it is, who asks, and what is wrong if it fails."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import CommandFailed, utf8

if TYPE_CHECKING:
    from urllib.error import HTTPError

__all__ = ["API_URL_DEFAULT", "Api", "ApiCa", "ApiUrl"]

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
        "--url", metavar="URL", help="Where the broker answers HTTP.", envvar=URL_VARIABLE
    ),
]
ApiCa = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Certificates to trust with https, in place of the system's.",
        show_default=False,
    ),
]


class Api:
    """Asks the broker at a URL; every problem is a CommandFailed, in one line.

    Credentials come from the environment: other users of a machine can read a command line.
    """

    def __init__(self, url: str, *, ca: Path | None = None) -> None:
        from urllib.parse import urlsplit  # noqa: PLC0415
        from urllib.request import HTTPSHandler, ProxyHandler, build_opener  # noqa: PLC0415

        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise CommandFailed(
                f"{url!r} is not where a broker answers HTTP",
                f"give --url or set {URL_VARIABLE} to one such as {API_URL_DEFAULT}",
            )
        self.url = url.rstrip("/")
        self._answered = False
        handlers: list[Any] = [ProxyHandler({})]
        if parts.scheme == "https":
            handlers.append(HTTPSHandler(context=_tls(ca)))
        self._opener = build_opener(*handlers)

    def get(
        self, path: str, query: Mapping[str, object] = _NOTHING, *, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Return the answer to a GET, which takes `seconds` by itself; raise CommandFailed."""
        import http.client  # noqa: PLC0415
        from urllib.error import HTTPError, URLError  # noqa: PLC0415
        from urllib.parse import urlencode  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        given = {key: value for key, value in query.items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(given)}" if given else "")
        request = Request(address, headers=_authorization())  # noqa: S310  (http and https only)
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS_MAX + seconds) as answer:
                document = self._decoded(answer.read(_ANSWER_BYTES_MAX))
        except HTTPError as error:
            raise self._refused(error) from None
        except URLError as error:
            raise self._unreachable(error.reason) from None
        except http.client.HTTPException as error:
            raise self._unreachable(error) if self._answered else self._stranger() from None
        except OSError as error:
            raise self._unreachable(error) from None
        self._answered = True
        return document

    def pages(
        self, path: str, key: str, query: Mapping[str, object] = _NOTHING, *, limit: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list, page by page, `limit` of them at most."""
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
        import msgspec  # noqa: PLC0415

        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise self._stranger() from None

    def _stranger(self) -> CommandFailed:
        return CommandFailed(
            f"what answers at {self.url} is no broker's HTTP",
            f"give --url or set {URL_VARIABLE} to where `penstock serve` says http",
        )

    def _refused(self, error: "HTTPError") -> CommandFailed:
        import msgspec  # noqa: PLC0415

        try:
            found = msgspec.json.decode(error.read(65_536))
            message = str(found["error"]["message"])
        except (msgspec.MsgspecError, TypeError, KeyError, OSError):
            return self._stranger()
        if error.code == 401:
            return CommandFailed(f"{self.url} wants credentials that it knows", _CREDENTIALS)
        return CommandFailed(f"{self.url}: {message}")

    def _unreachable(self, reason: object) -> CommandFailed:
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        lost = f"the connection to {self.url} was lost" if self._answered else ""
        return CommandFailed(
            f"{lost or f'no broker answers at {self.url}'}: {str(text).lower()}",
            f"start one with penstock serve, or give --url or {URL_VARIABLE}",
        )


def _tls(ca: Path | None) -> Any:  # noqa: ANN401
    import ssl  # noqa: PLC0415

    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandFailed(f"{ca}: {reason.lower()}", "give --ca a PEM file") from None


def _authorization() -> dict[str, str]:
    import base64  # noqa: PLC0415

    secret = os.environ.get("PENSTOCK_TOKEN") or os.environ.get("PENSTOCK_API_KEY")
    if secret:
        secret = utf8(secret, "PENSTOCK_TOKEN or PENSTOCK_API_KEY")
        return {"Authorization": f"Bearer {secret}"}
    name, password = os.environ.get("PENSTOCK_USERNAME"), os.environ.get("PENSTOCK_PASSWORD")
    if name and password is not None:
        pair = base64.b64encode(os.fsencode(f"{name}:{password}")).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
