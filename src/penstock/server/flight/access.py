"""Who calls: the token of a call, judged like that of any other client."""

from collections.abc import Callable, Mapping

import pyarrow.flight as pf
import structlog

from penstock.core.access import Principal
from penstock.errors import AuthenticationFailed, PeerError

__all__ = ["ACCESS", "Door", "Doorkeeper", "principal_of"]

ACCESS = "penstock"
"""Under which a call finds who it is from."""

log = structlog.get_logger("penstock.flight")

_SCHEME = "bearer "


class Door:
    """Who is let in. `anonymous` is who brings no token, None if such a one is not let in.

    `verify` returns whose token it is, or raises AuthenticationFailed.
    """

    def __init__(
        self, *, anonymous: Principal | None, verify: Callable[[str], Principal] | None
    ) -> None:
        self._anonymous = anonymous
        self._verify = verify

    def admit(self, headers: Mapping[str, list[str]]) -> Principal:
        """Return who a call is from; raise AuthenticationFailed."""
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


class _Admitted(pf.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """What a call carries: who it is from, or why it is refused."""

    def __init__(self, found: Principal | PeerError) -> None:
        self.found = found


class Doorkeeper(pf.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at each call."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door

    def start_call(
        self, info: pf.CallInfo, headers: Mapping[str, list[str]]
    ) -> pf.ServerMiddleware:
        """See pyarrow. A call that is refused is told so where it can be told why."""
        try:
            return _Admitted(self._door.admit(headers))
        except AuthenticationFailed as error:
            log.info("call refused", method=str(info.method), reason=error.reason)
            return _Admitted(error)


def principal_of(context: pf.ServerCallContext) -> Principal:
    """Return who a call is from; raise AuthenticationFailed."""
    found = context.get_middleware(ACCESS).found
    if isinstance(found, Principal):
        return found
    raise found
