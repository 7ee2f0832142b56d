"""Authentication of HTTP requests: origins of web pages, and credentials."""

import asyncio
import base64
import binascii

from starlette.requests import Request

from penstock.core.access import Action, Principal
from penstock.errors import AuthenticationFailed, NotAllowed, PeerError
from penstock.gateway.options import GatewayOptions
from penstock.server.http.errors import ApiError
from penstock.transport.addresses import Address
from penstock.transport.origin_policy import OriginPolicy

__all__ = ["HttpAuth", "require_administer", "require_read_all"]

EVERYTHING = "#"
"""Permission to subscribe to this pattern covers clients, subscriptions, the log and groups."""


def require_read_all(principal: Principal) -> None:
    """Raise NotAllowed unless a principal may read all topics."""
    if not principal.may(Action.SUBSCRIBE, EVERYTHING):
        raise NotAllowed(principal.name, Action.SUBSCRIBE, EVERYTHING)


def require_administer(principal: Principal) -> None:
    """Raise NotAllowed unless a principal may publish and subscribe to all topics."""
    require_read_all(principal)
    if principal.restricted:
        raise NotAllowed(principal.name, Action.PUBLISH, EVERYTHING)


class HttpAuth:
    """Authenticates the requests of one listener."""

    def __init__(self, address: Address, options: GatewayOptions) -> None:
        self._origins = OriginPolicy(address)
        self._options = options

    def check_origin(self, request: Request) -> None:
        """Refuse requests of web pages from other origins; raise ApiError."""
        origin = request.headers.get("origin")
        if origin is not None and not self._origins.allows_request(
            origin, request.headers.get("host")
        ):
            message = f"pages of {origin[:200]} may not ask: add them to the listener's origins"
            raise ApiError(403, "origin-not-allowed", message)

    async def authenticate(self, request: Request) -> Principal:
        """Return the principal of a request; raise AuthenticationFailed or ApiError."""
        given = request.headers.get("authorization")
        if given is None:
            if self._options.anonymous is None:
                raise AuthenticationFailed("request", "no credentials")
            if not self._origins.allows_host(request.headers.get("host")):
                message = "ask for localhost or 127.0.0.1, or send credentials"
                raise ApiError(403, "host-not-allowed", message)
            return self._options.anonymous
        if self._options.authenticator is None:
            raise AuthenticationFailed("request", "nobody has credentials")
        scheme, _, rest = given.partition(" ")
        match scheme.lower():
            case "bearer":
                return self._bearer(rest.strip())
            case "basic":
                return await self._basic(rest.strip())
        raise AuthenticationFailed("authorization", "neither Bearer nor Basic")

    def _bearer(self, secret: str) -> Principal:
        authenticator = self._options.authenticator
        if authenticator is None:
            raise AssertionError("no authenticator")
        try:
            return authenticator.verify_token(secret)
        except AuthenticationFailed:
            return authenticator.verify_api_key(secret)

    async def _basic(self, encoded: str) -> Principal:
        authenticator = self._options.authenticator
        if authenticator is None:
            raise AssertionError("no authenticator")
        try:
            text = base64.b64decode(encoded, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise AuthenticationFailed("authorization", "not Base64 of UTF-8") from None
        username, _, password = text.partition(":")
        verdict: asyncio.Future[Principal | PeerError]
        verdict = asyncio.get_running_loop().create_future()

        def finish(found: Principal | PeerError) -> None:
            if not verdict.done():  # else the client has disconnected
                verdict.set_result(found)

        authenticator.check_basic(username, password, finish)
        found = await verdict
        if isinstance(found, Principal):
            return found
        raise found
