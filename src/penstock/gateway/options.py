"""What a listener says about the connections it takes."""

import dataclasses

from penstock.core.access import ANYONE, Principal
from penstock.limits import HANDSHAKE_SECONDS_MAX
from penstock.model import ByteOrder, Protocol

__all__ = ["GatewayOptions"]


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayOptions:
    """One listener's settings, shared by all gateways behind it.

    `protocol` pins all connections to one protocol, in `order` where it has two; None detects both.
    `anonymous` is who a client is that brings no credentials; None refuses such clients.
    """

    protocol: Protocol | None = None
    order: ByteOrder = "little"
    echo: bool = True
    anonymous: Principal | None = ANYONE
    handshake_seconds_max: float = HANDSHAKE_SECONDS_MAX
