"""Registration of services by name: REQ to client 1 with the path `/serve` or `/unserve`.

The payload is the path of the service, a text. A path that the broker answers itself cannot be
registered.
"""

from typing import Final

from penstock.core.access import Action, path_name
from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.errors import InvalidServicePath, PeerError
from penstock.gateway.fleximq.acknowledgments import ACKNOWLEDGMENTS
from penstock.gateway.fleximq.services import SERVICES
from penstock.limits import SERVICE_PATH_BYTES_MAX
from penstock.positions import ASK_PATH
from penstock.service_messages import SERVE_PATH, UNSERVE_PATH
from penstock.wire import messagepack
from penstock.wire.fleximq import StatusCode

__all__ = ["REGISTRATIONS", "register"]

REGISTRATIONS: Final = frozenset({SERVE_PATH, UNSERVE_PATH})
_RESERVED: Final = frozenset(
    path_name(path) for path in (*SERVICES, *ACKNOWLEDGMENTS, *REGISTRATIONS, ASK_PATH)
)
_LIMITS: Final = {"depth_max": 1, "elements_max": 1, "string_bytes_max": SERVICE_PATH_BYTES_MAX}


def register(
    broker: Broker, session: Session, *, path: str, payload: bytes
) -> tuple[StatusCode, str]:
    """Process a registration; return the status of its answer, and the text of a refusal.

    Raise NotAllowed, InvalidServicePath or TooManyServices.
    """
    service = _service(payload)
    if path == UNSERVE_PATH:
        if broker.services.withdraw(session, service):
            return StatusCode.OK, ""
        return StatusCode.NOT_FOUND, "this client does not serve the path"
    if path_name(service) in _RESERVED:
        return StatusCode.CONFLICT, "the broker itself answers this path"
    broker.authorize(session, Action.SERVE, path_name(service))
    created = broker.services.register(session, service)
    return StatusCode.CREATED if created else StatusCode.OK, ""


def _service(payload: bytes) -> str:
    try:
        value = messagepack.decode(payload, **_LIMITS) if payload else None
    except PeerError as error:
        raise InvalidServicePath(str(error)) from error
    if not isinstance(value, str):
        raise InvalidServicePath("the payload is not a text")
    return value
