"""What a listener says about the connections it takes."""

import dataclasses
from collections.abc import Mapping

from penstock import limits
from penstock.core.access import ANYONE, Authenticator, Principal
from penstock.model import ByteOrder
from penstock.protocols import Protocol

__all__ = ["GatewayOptions"]


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayOptions:
    """One listener's settings, shared by all gateways behind it.

    `protocol` pins all connections to one protocol; None detects it. `order` pins the byte order of
    a protocol that has several; None detects that.
    `strict` holds fleximq to its table of header fields where its own handshake does not.
    `anonymous` is who a client is that brings no credentials; None refuses such clients. Without
    an `authenticator` credentials are not looked at.
    `herald_replay` says of herald channels, whose subscriptions have no names, where in history
    they start: `{7: "@earliest"}`. Channels that it does not name start with what comes next.
    `frame_limits` has the limits of protocols that are not the declared ones, by the names that
    `[limits]` has for them: `{"herald_payload_bytes_max": 4096}`.
    """

    protocol: Protocol | None = None
    order: ByteOrder | None = None
    echo: bool = True
    strict: bool = False
    anonymous: Principal | None = ANYONE
    authenticator: Authenticator | None = None
    handshake_seconds_max: float = limits.HANDSHAKE_SECONDS_MAX
    messages_per_second_max: int | None = None
    handshake_bytes_max: int = limits.DETECT_BYTES_MAX
    frame_limits: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    herald_replay: Mapping[int, str] = dataclasses.field(default_factory=dict, hash=False)

    def limits_of(self, protocol: Protocol) -> dict[str, int]:
        """Return the limits of a protocol, by the names of its declaration."""
        return {
            limit.name: self.frame_limits.get(f"{protocol.label}_{limit.name}", limit.default)
            for limit in protocol.limits
        }
