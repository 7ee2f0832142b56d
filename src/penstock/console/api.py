"""A client of the broker's HTTP API, with the credentials of one log-in."""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from penstock.console.limits import ANSWER_SECONDS_MAX

__all__ = ["ApiRefused", "BrokerApi", "BrokerAway", "basic", "bearer"]

_NOTHING: Final[Mapping[str, object]] = {}


class ApiRefused(Exception):
    """The broker answered with another status than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


class BrokerAway(Exception):
    """The broker does not answer."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"no broker answers at {self.url}: {self.reason}"


def bearer(secret: str) -> str:
    """Return the header Authorization for a token or an API key."""
    return f"Bearer {secret}"


def basic(username: str, password: str) -> str:
    """Return the header Authorization for a user name and password."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


class BrokerApi:
    """The HTTP API at a URL; every method raises ApiRefused or BrokerAway."""

    def __init__(
        self, url: str, *, authorization: str | None = None, ca: Path | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._authorization = authorization
        self._ca = ca
        verify: ssl.SSLContext | bool = True
        if ca is not None:
            verify = ssl.create_default_context(cafile=str(ca))
        headers = {} if authorization is None else {"Authorization": authorization}
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=ANSWER_SECONDS_MAX,
            verify=verify,
            trust_env=False,  # the broker is reached directly, never by a proxy
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=4),
        )

    @property
    def has_credentials(self) -> bool:
        """Whether requests have credentials."""
        return self._authorization is not None

    @property
    def is_closed(self) -> bool:
        """Whether the log-in has ended."""
        return self._client.is_closed

    def with_credentials(self, authorization: str | None) -> "BrokerApi":
        """Return a client of the same broker with other credentials."""
        return BrokerApi(self.url, authorization=authorization, ca=self._ca)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, path: str, query: Mapping[str, object] = _NOTHING) -> dict[str, Any]:
        """Return the answer to a GET; parameters that are None are left out."""
        given = {key: str(value) for key, value in query.items() if value is not None}
        return await self._ask("GET", path, params=given)

    async def post(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the answer to a POST, with JSON if there is a body."""
        if body is None:
            return await self._ask("POST", path)
        return await self._ask("POST", path, json=dict(body))

    async def delete(self, path: str) -> dict[str, Any]:
        """Return the answer to a DELETE."""
        return await self._ask("DELETE", path)

    async def _ask(self, method: str, path: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
        if self.is_closed:
            raise ApiRefused(401, "logged-out", "you have logged out")
        try:
            answer = await self._client.request(method, path, **given)
        except httpx.HTTPError as error:
            raise BrokerAway(self.url, str(error) or type(error).__name__) from None
        try:
            found = msgspec.json.decode(answer.content, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise BrokerAway(self.url, "its answer is not that of a broker") from None
        if answer.status_code == 200:
            return found
        fault = found.get("error", {})
        raise ApiRefused(
            answer.status_code, str(fault.get("code", "")), str(fault.get("message", ""))
        )
