"""Facts about protocols that commands and their help texts use, by protocol label."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = [
    "MESSAGES_DEFAULT",
    "PROTOCOLS",
    "PROTOCOL_CHOICE",
    "REQUESTS_DEFAULT",
    "WEBSOCKET_DEFAULT",
    "ProtocolHelp",
    "protocol_help",
]

MESSAGES_DEFAULT: Final = "lamamq"
"""The protocol of `pub` and `sub`."""
REQUESTS_DEFAULT: Final = "fleximq"
"""The protocol of `req` and `reply`: the only one with requests."""
WEBSOCKET_DEFAULT: Final = "fleximq"
"""The protocol of ws and wss URLs."""

_NO_CREDENTIALS: Final = (
    "carries no credentials: use lamamq or fleximq, or a listener that accepts anonymous clients"
)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ProtocolHelp(NamedTuple):
    """What a command must know about a protocol.

    `credentials` maps options of `connect` to environment variables. `credentials_advice` is what
    to do if the broker asks for credentials. `unauthenticated` is the answer that tells a client to
    authenticate, None if there is none; `unauthenticated_words` are words of its text where the
    number does not tell. `closes_on_refusal` is whether a broker refuses an unauthenticated client
    by closing the connection. `unknown_version` starts the text of a refusal that any server of
    another protocol seems to give. `acknowledges` is whether publishes are answered.
    """

    credentials_advice: str
    credentials: Mapping[str, str] = _NOTHING
    unauthenticated: int | None = None
    unauthenticated_words: tuple[str, ...] = ()
    unknown_version: str | None = None
    closes_on_refusal: bool = False
    acknowledges: bool = True
    has_headers: bool = False
    has_requests: bool = False
    has_channels: bool = False
    creates_topics: bool = False


# Secrets come from the environment: other users of a machine can read a command line.
_PROTOCOLS: Final[Mapping[str, ProtocolHelp]] = MappingProxyType({
    "rheos1": ProtocolHelp(
        f"rheos1 {_NO_CREDENTIALS}", closes_on_refusal=True, creates_topics=True
    ),
    "rheos2": ProtocolHelp(
        f"rheos2 {_NO_CREDENTIALS}", closes_on_refusal=True, creates_topics=True
    ),
    "fleximq": ProtocolHelp(
        "set PENSTOCK_TOKEN, PENSTOCK_API_KEY, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD",
        credentials=MappingProxyType({
            "token": "PENSTOCK_TOKEN",
            "username": "PENSTOCK_USERNAME",
            "password": "PENSTOCK_PASSWORD",
            "api_key": "PENSTOCK_API_KEY",
        }),
        unauthenticated=401,
        acknowledges=False,
        has_requests=True,
    ),
    "herald": ProtocolHelp(
        f"herald {_NO_CREDENTIALS}", unauthenticated=8, acknowledges=False, has_channels=True
    ),
    "lamamq": ProtocolHelp(
        "set PENSTOCK_KEY and give --name",
        credentials=MappingProxyType({"key": "PENSTOCK_KEY"}),
        # One error number stands for all refusals. A broker that wants a key waits for it until
        # the handshake times out.
        unauthenticated_words=("identity", "handshake"),
        # The first answer is four bytes with two versions, so any bytes look like one.
        unknown_version="versions ",
        has_headers=True,
    ),
})  # fmt: skip

PROTOCOLS: Final = tuple(_PROTOCOLS)
"""The labels of all protocols."""
PROTOCOL_CHOICE: Final = "|".join(PROTOCOLS)
"""The labels as help texts show them."""


def protocol_help(label: str) -> ProtocolHelp:
    """Return the facts about a protocol; raise KeyError if there is none of that label."""
    return _PROTOCOLS[label]
