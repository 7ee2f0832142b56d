"""Statuses and texts of requests that are refused or get no answer."""

from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, runtime_checkable

from penstock.core.requests import Failure, Refusal, Requester
from penstock.wire.fleximq import StatusCode

__all__ = ["FAILURES", "REFUSALS", "Outcome", "ServiceRequester", "unserved"]


class Outcome(NamedTuple):
    """Why a request has no answer of its target."""

    status: StatusCode
    text: str


FAILURES: Final = MappingProxyType(
    {
        Failure.TIMED_OUT: Outcome(StatusCode.GATEWAY_TIMEOUT, "no answer in time"),
        Failure.TARGET_LEFT: Outcome(StatusCode.CLIENT_NOT_FOUND, "the client has left"),
    }
)
REFUSALS: Final = MappingProxyType(
    {
        Refusal.DUPLICATE: Outcome(
            StatusCode.CONFLICT, "a request with this id waits for its answer"
        ),
        Refusal.TOO_MANY: Outcome(
            StatusCode.TOO_MANY_REQUESTS, "too many requests wait for answers"
        ),
    }
)


@runtime_checkable
class ServiceRequester(Requester, Protocol):
    """Receives the answers of servers that are reached by topics, too."""

    takes_frames: bool
    """Whether the REP of a server is sent to the client as it is; else it is passed on."""

    def request_answered(self, identifier: str, status: int, payload: bytes) -> None:
        """Handle the answer to the request with this identifier; the payload is MessagePack."""


def unserved(path: str) -> Outcome:
    """Return the outcome of a request to a path without a server."""
    return Outcome(StatusCode.SERVICE_UNAVAILABLE, f"no client serves {path[:200]}")
