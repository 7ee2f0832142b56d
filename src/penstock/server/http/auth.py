"""Authentication of HTTP requests: origins of web pages, and credentials."""

import asyncio
import base64
import binascii

from starlette.requests import Request

from penstock.core.access import Authenticator, Peer, Principal
from penstock.errors import AuthenticationFailed, PeerError
from penstock.gateway.options import GatewayOptions
from penstock.server.http.errors import ApiError
from penstock.transport.addresses import Address
from penstock.transport.origin_policy import OriginPolicy

__all__ = ["HttpAuth", "method_of"]


def method_of(request: Request) -> str:
    """Return how a request proves its identity, for the audit log."""
    scheme, _, _ = request.headers.get("authorization", "anonymous").partition(" ")
    return {"bearer": "token", "basic": "password"}.get(scheme.lower(), scheme[:20].lower())


def peer_of(request: Request) -> Peer:
    """Return the peer of the connection of a request."""
    peer: Peer = request.scope["state"]["peer"]
    return peer


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
            principal = self._options.identify(peer_of(request))
            if not self._origins.allows_host(request.headers.get("host")):
                message = "ask for localhost or 127.0.0.1, or send credentials"
                raise ApiError(403, "host-not-allowed", message)
            return principal
        authenticator = self._options.active_authenticator(kind="authorization")
        if authenticator is None:
            raise AuthenticationFailed("request", "no principal has credentials")
        scheme, _, rest = given.partition(" ")
        match scheme.lower():
            case "bearer":
                return authenticator.verify_bearer(rest.strip(), peer_of(request))
            case "basic":
                return await self._basic(authenticator, rest.strip(), peer_of(request))
        raise AuthenticationFailed("authorization", "neither Bearer nor Basic")

    async def _basic(self, authenticator: Authenticator, encoded: str, peer: Peer) -> Principal:
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

        cancel = authenticator.check_basic(username, password, peer, finish)
        try:
            found = await verdict
        finally:
            cancel()
        if isinstance(found, Principal):
            return found
        raise found
