"""Authentication of Flight calls: by bearer token, client certificate or address."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow.flight as pf
import structlog

from penstock.core.access import Peer, Principal
from penstock.errors import AuthenticationFailed
from penstock.flight.errors import BadRequest, with_failure

__all__ = [
    "AUTH",
    "AuthMiddlewareFactory",
    "FlightAuth",
    "Login",
    "login_of",
    "method_of",
]

AUTH = "penstock"
"""Key of the middleware that holds the credentials of a call."""

log = structlog.get_logger("penstock.flight")

_SCHEME: Final = "bearer "


class FlightAuth:
    """Authenticates calls by their header, or by certificate or address if they have none.

    `anonymous` is the principal of calls without any of them; None refuses them. `verify` returns
    the principal of a token, `identify` that of a certificate or address, or None. Both raise
    AuthenticationFailed. `seconds_left` returns the seconds until a token expires, None if it does
    not.
    """

    def __init__(
        self,
        *,
        anonymous: Principal | None,
        verify: Callable[[str, Peer], Principal] | None,
        identify: Callable[[Peer], Principal | None] | None = None,
        seconds_left: Callable[[str], float | None] | None = None,
    ) -> None:
        self._anonymous = anonymous
        self._verify = verify
        self._identify = identify
        self._seconds_left = seconds_left

    def authenticate(self, authorization: str | None, peer: Peer) -> Principal:
        """Return the principal of a call; raise AuthenticationFailed."""
        if authorization is None:
            found = self._identify(peer) if self._identify is not None else None
            found = found or self._anonymous
            if found is None:
                raise AuthenticationFailed("call without a token", "no token")
            return found
        if not authorization.lower().startswith(_SCHEME):
            raise AuthenticationFailed("authorization", "not a bearer token")
        if self._verify is None:
            raise AuthenticationFailed("token", "no principal has credentials")
        return self._verify(_token_of(authorization), peer)

    def seconds_left(self, authorization: str | None) -> float | None:
        """Return the seconds until the token of an authenticated call expires, None if never."""
        if authorization is None or self._seconds_left is None:
            return None
        return self._seconds_left(_token_of(authorization))


def _token_of(authorization: str) -> str:
    return authorization[len(_SCHEME) :].strip()


class Login:
    """The principal of a call, as long as its credentials are valid."""

    def __init__(self, principal: Principal, seconds_left: float | None = None) -> None:
        self.principal = principal
        self._version = principal.credentials_version
        self._expires = None if seconds_left is None else time.monotonic() + seconds_left

    def check(self) -> None:
        """Raise AuthenticationFailed if the credentials changed or expired since the call began."""
        if self.principal.credentials_version != self._version:
            raise AuthenticationFailed("call", "changed meanwhile")
        if self._expires is not None and time.monotonic() >= self._expires:
            raise AuthenticationFailed("expired token", "expired meanwhile")


class _Credentials(pf.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The credentials of a call."""

    def __init__(self, auth: FlightAuth, authorization: str | None, method: str) -> None:
        self.auth = auth
        self.authorization = authorization
        self.method = method


class AuthMiddlewareFactory(pf.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Reads the header of each call. Its peer is known later, in the handler."""

    def __init__(self, auth: FlightAuth) -> None:
        super().__init__()
        self._auth = auth

    def start_call(
        self, info: pf.CallInfo, headers: Mapping[str, list[str]]
    ) -> pf.ServerMiddleware:
        """Keep the credentials of a call; `login_of` verifies them.

        Raise FlightServerError for GetSchema: its handler would send a traceback.
        """
        if info.method == pf.FlightMethod.GET_SCHEMA:
            refused = BadRequest("GetSchema", "use DoGet, which sends the schema first")
            raise pf.FlightServerError(with_failure(refused))
        given = next(
            (values[0] for key, values in headers.items() if key.lower() == "authorization"), None
        )
        return _Credentials(self._auth, given, str(info.method))


def login_of(context: pf.ServerCallContext, peer: Peer) -> Login:
    """Authenticate a call of a client; raise AuthenticationFailed."""
    given: _Credentials = context.get_middleware(AUTH)
    try:
        principal = given.auth.authenticate(given.authorization, peer)
        login = Login(principal, given.auth.seconds_left(given.authorization))
        # Again: a reload may have come between, since calls run in threads.
        given.auth.authenticate(given.authorization, peer)
    except AuthenticationFailed as error:
        log.info("call refused", method=given.method, address=peer.host, reason=error.reason)
        raise
    return login


def method_of(context: pf.ServerCallContext) -> str:
    """Return how a call proves its identity, for the audit log."""
    given: _Credentials = context.get_middleware(AUTH)
    return "anonymous" if given.authorization is None else "token"
