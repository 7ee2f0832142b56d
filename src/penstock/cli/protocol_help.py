"""Facts about protocols that commands and their help texts use, from the declarations."""

from typing import Final

from penstock.protocols import PROTOCOLS, Protocol

__all__ = [
    "LABELS",
    "MESSAGES_DEFAULT",
    "PROTOCOL_CHOICE",
    "REQUESTS_DEFAULT",
    "WEBSOCKET_DEFAULT",
    "credential_variable",
    "credentials_advice",
]

MESSAGES_DEFAULT: Final = next(each.label for each in PROTOCOLS if each.carries.headers)
"""The protocol of `pub` and `sub`: its messages carry the most."""
REQUESTS_DEFAULT: Final = next(each.label for each in PROTOCOLS if each.carries.requests)
"""The protocol of `req` and `reply`."""
WEBSOCKET_DEFAULT: Final = next(each.label for each in PROTOCOLS if "ws" in each.transports)
"""The protocol of ws and wss URLs."""
LABELS: Final = PROTOCOLS.labels
"""The labels of all protocols."""
PROTOCOL_CHOICE: Final = "|".join(LABELS)
"""The labels as help texts show them."""

_ALONE: Final = ("token", "api_key", "key")
"""Credentials that need no other."""


def credential_variable(option: str) -> str:
    """Return the environment variable of a credential.

    Secrets come from the environment: other users of a machine can read a command line.
    """
    return f"PENSTOCK_{option.upper()}"


def credentials_advice(protocol: Protocol) -> str:
    """Return the remedy if a broker requires credentials from a client of `protocol`."""
    if not protocol.credentials:
        able = " or ".join(each.label for each in PROTOCOLS if each.credentials)
        return (
            f"{protocol.label} carries no credentials: use {able}, or a listener that accepts "
            "anonymous clients"
        )
    ways = [credential_variable(each) for each in protocol.credentials if each in _ALONE]
    if "password" in protocol.credentials:
        ways.append(f"{credential_variable('username')} and {credential_variable('password')}")
    text = ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"
    return f"set {text} and give --name" if protocol.identity_key else f"set {text}"
