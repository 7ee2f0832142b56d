"""Listener settings that gateways use."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from penstock import limits
from penstock.core.access import ANYONE, Authenticator, Peer, Principal
from penstock.errors import AuthenticationFailed
from penstock.model import ByteOrder
from penstock.protocols import Protocol

__all__ = ["NO_CREDENTIALS", "GatewayOptions"]

NO_CREDENTIALS: Final = "no credentials"
"""Reason in the log if a client sent no credentials to a listener that requires them."""


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayOptions:
    """One listener's settings, shared by all gateways behind it.

    `protocol` is the protocol of all connections; None detects it. `order` is the byte order of
    a protocol that has several; None detects it.
    `strict` enforces fleximq's table of header fields, also in the handshake.
    `anonymous` is the principal of clients without credentials; None refuses them. Without an
    `authenticator`, or while it has no principals, credentials are ignored. Without
    `accepts_credentials` clients that send some are refused: others could read them.
    `herald_replay` sets where in history subscriptions to a herald channel start, by channel:
    `{7: "@earliest"}`. Other channels start with the next message.
    `herald_ping_seconds` is the silence after which a herald client gets a PING; 0 sends none. At
    SILENT_INTERVALS_MAX times that silence the connection ends.
    `frame_limits` overrides declared limits of protocols, by their names in `[limits]`:
    `{"herald_payload_bytes_max": 4096}`.
    """

    protocol: Protocol | None = None
    order: ByteOrder | None = None
    echo: bool = True
    strict: bool = False
    anonymous: Principal | None = ANYONE
    authenticator: Authenticator | None = None
    accepts_credentials: bool = True
    handshake_seconds_max: float = limits.HANDSHAKE_SECONDS_MAX
    messages_per_second_max: int | None = None
    handshake_bytes_max: int = limits.DETECT_BYTES_MAX
    frame_limits: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    herald_replay: Mapping[int, str] = dataclasses.field(default_factory=dict, hash=False)
    herald_ping_seconds: float = 0.0

    def active_authenticator(self, *, kind: str) -> Authenticator | None:
        """Return the authenticator for credentials that a client sent, None if they are ignored.

        `kind` is their name in the error. Raise AuthenticationFailed if they are not accepted.
        """
        if self.authenticator is None or not self.authenticator.active:
            return None
        if not self.accepts_credentials:
            raise AuthenticationFailed(f"{kind} without encryption", "cleartext credentials")
        return self.authenticator

    def identify(self, peer: Peer) -> Principal:
        """Return the principal of a client that sent no credentials; raise AuthenticationFailed.

        It is that of its certificate or its address, or the anonymous one.
        """
        found = None if self.authenticator is None else self.authenticator.identify(peer)
        found = found or self.anonymous
        if found is None:
            raise AuthenticationFailed("a client without credentials", NO_CREDENTIALS)
        return found

    def limits_of(self, protocol: Protocol) -> dict[str, int]:
        """Return the limits of a protocol, by the names of its declaration."""
        return {
            limit.name: self.frame_limits.get(f"{protocol.label}_{limit.name}", limit.default)
            for limit in protocol.limits
        }
