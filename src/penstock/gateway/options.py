"""What a listener says about the connections it takes."""

import dataclasses
from collections.abc import Mapping

from penstock import limits
from penstock.core.access import ANYONE, Authenticator, Principal
from penstock.model import ByteOrder, Protocol

__all__ = ["FrameLimits", "GatewayOptions"]


@dataclasses.dataclass(frozen=True, slots=True)
class FrameLimits:
    """How large what a client sends may be, by protocol; codec and kernel keep to the same."""

    handshake_bytes_max: int = limits.DETECT_BYTES_MAX
    rheos1_body_bytes_max: int = limits.RHEOS1_BODY_BYTES_MAX
    rheos2_body_bytes_max: int = limits.RHEOS_BODY_BYTES_MAX
    herald_payload_bytes_max: int = limits.HERALD_PAYLOAD_BYTES_MAX
    fleximq_header_bytes_max: int = limits.FLEXIMQ_HEADER_BYTES_MAX
    fleximq_message_bytes_max: int = limits.FLEXIMQ_MESSAGE_BYTES_MAX
    lamamq_headers_max: int = limits.LAMAMQ_HEADERS_MAX
    lamamq_headers_bytes_max: int = limits.LAMAMQ_HEADERS_BYTES_MAX
    lamamq_payload_bytes_max: int = limits.LAMAMQ_PAYLOAD_BYTES_MAX


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayOptions:
    """One listener's settings, shared by all gateways behind it.

    `protocol` pins all connections to one protocol; None detects it. `order` pins the byte order of
    herald and LamaMQ with it; None detects that.
    `strict` holds fleximq to its table of header fields where its own handshake does not.
    `anonymous` is who a client is that brings no credentials; None refuses such clients. Without
    an `authenticator` credentials are not looked at.
    `herald_replay` says of herald channels, whose subscriptions have no names, where in history
    they start: `{7: "@earliest"}`. Channels that it does not name start with what comes next.
    """

    protocol: Protocol | None = None
    order: ByteOrder | None = None
    echo: bool = True
    strict: bool = False
    anonymous: Principal | None = ANYONE
    authenticator: Authenticator | None = None
    handshake_seconds_max: float = limits.HANDSHAKE_SECONDS_MAX
    messages_per_second_max: int | None = None
    frames: FrameLimits = FrameLimits()
    herald_replay: Mapping[int, str] = dataclasses.field(default_factory=dict, hash=False)
