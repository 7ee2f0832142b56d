"""Listener settings that gateways use."""

import dataclasses
from collections.abc import Mapping

from penstock import limits
from penstock.core.access import ANYONE, Authenticator, Principal
from penstock.model import ByteOrder, Protocol

__all__ = ["FrameLimits", "GatewayOptions"]


@dataclasses.dataclass(frozen=True, slots=True)
class FrameLimits:
    """Size limits of client frames, by protocol, for codecs and kernels."""

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

    `protocol` is the protocol of all connections; None detects it. `order` is the byte order of
    herald and LamaMQ; None detects it.
    `strict` enforces fleximq's table of header fields, also in the handshake.
    `anonymous` is the principal of clients without credentials; None refuses them. Without an
    `authenticator`, credentials are ignored.
    `herald_replay` sets where in history subscriptions to a herald channel start, by channel:
    `{7: "@earliest"}`. Other channels start with the next message.
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
