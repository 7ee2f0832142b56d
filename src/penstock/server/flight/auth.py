"""Authentication of Flight calls: bearer tokens, as on every other listener."""

from collections.abc import Callable, Mapping

import pyarrow.flight as pf
import structlog

from penstock.core.access import Principal
from penstock.errors import AuthenticationFailed, PeerError
from penstock.flight.errors import BadRequest, with_failure

__all__ = ["AUTH", "AuthMiddlewareFactory", "FlightAuth", "principal_of"]

AUTH = "penstock"
"""Key of the middleware that holds the result of authentication."""

log = structlog.get_logger("penstock.flight")

_SCHEME = "bearer "


class FlightAuth:
    """Authenticates calls by their headers.

    `anonymous` is the principal of calls without a token; None refuses them. `verify` returns the
    principal of a token, or raises AuthenticationFailed.
    """

    def __init__(
        self, *, anonymous: Principal | None, verify: Callable[[str], Principal] | None
    ) -> None:
        self._anonymous = anonymous
        self._verify = verify

    def authenticate(self, headers: Mapping[str, list[str]]) -> Principal:
        """Return the principal of a call; raise AuthenticationFailed."""
        given = next(
            (values[0] for key, values in headers.items() if key.lower() == "authorization"), None
        )
        if given is None:
            if self._anonymous is None:
                raise AuthenticationFailed("call without a token", "no token")
            return self._anonymous
        if not given.lower().startswith(_SCHEME):
            raise AuthenticationFailed("authorization", "not a bearer token")
        if self._verify is None:
            raise AuthenticationFailed("token", "nobody has credentials")
        return self._verify(given[len(_SCHEME) :].strip())


class _AuthResult(pf.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The principal of a call, or the error that refuses it."""

    def __init__(self, found: Principal | PeerError) -> None:
        self.found = found


class AuthMiddlewareFactory(pf.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Authenticates each call when it starts."""

    def __init__(self, auth: FlightAuth) -> None:
        super().__init__()
        self._auth = auth

    def start_call(
        self, info: pf.CallInfo, headers: Mapping[str, list[str]]
    ) -> pf.ServerMiddleware:
        """Authenticate a call; the handler raises the error, because it can send its details.

        Raise FlightServerError for GetSchema: its handler would send a traceback.
        """
        if info.method == pf.FlightMethod.GET_SCHEMA:
            refused = BadRequest("GetSchema", "use DoGet, which sends the schema first")
            raise pf.FlightServerError(with_failure(refused))
        try:
            return _AuthResult(self._auth.authenticate(headers))
        except AuthenticationFailed as error:
            log.info("call refused", method=str(info.method), reason=error.reason)
            return _AuthResult(error)


def principal_of(context: pf.ServerCallContext) -> Principal:
    """Return the principal of a call; raise AuthenticationFailed."""
    found = context.get_middleware(AUTH).found
    if isinstance(found, Principal):
        return found
    raise found
