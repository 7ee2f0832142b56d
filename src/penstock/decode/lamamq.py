"""Layouts of LamaMQ packets; names are those of the specification, else of the profile."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.decode.layout import Choice, Data, Form, Layout, Number, Repeat
from penstock.limits import (
    LAMAMQ_HEADERS_MAX,
    LAMAMQ_HOOK_CONDITIONS_MAX,
    LAMAMQ_HOOK_NAME_BYTES_MAX,
    LAMAMQ_IDENTITY_KEY_BYTES_MAX,
    LAMAMQ_IDENTITY_NAME_BYTES_MAX,
    LAMAMQ_PAYLOAD_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
)

__all__ = [
    "ANSWER",
    "AUTHENTICATION",
    "AUTHENTICATION_WITH_KEY",
    "MESSAGE",
    "MESSAGES",
    "VERSION_CHOICE",
    "VERSION_OFFER",
]


def _string(name: str, maximum: int | None = None, form: Form = Form.TEXT) -> Layout:
    """Return the layout of a STRING or BUFFER."""
    return Number(f"{name} size", 4, maximum=maximum), Data(name, f"{name} size", form)


# --- Handshake ------------------------------------------------------------------------------------

AUTHENTICATION: Final[Layout] = (
    Number("auth_method", 1, MappingProxyType({0: "the only one"}), closed=True),
    *_string("identity_name", LAMAMQ_IDENTITY_NAME_BYTES_MAX),
)
AUTHENTICATION_WITH_KEY: Final[Layout] = (
    *AUTHENTICATION,
    *_string("identity_key", LAMAMQ_IDENTITY_KEY_BYTES_MAX, Form.BYTES),
)
VERSION_OFFER: Final[Layout] = (
    Number("max_version_major_supported", 1),
    Number("max_version_minor_supported", 1),
    Number("min_version_major_supported", 1),
    Number("min_version_minor_supported", 1),
)
VERSION_CHOICE: Final[Layout] = (
    Number("version_used_major", 1),
    Number("version_used_minor", 1),
)

# --- Messages -------------------------------------------------------------------------------------

MESSAGES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "Push message",
        1: "Forward message",
        32: "Topic subscribe",
        33: "Topic unsubscribe",
        64: "Middleware register",
        65: "Middleware unregister",
    }
)
_ERRORS: Final = MappingProxyType(
    {
        0: "no error",
        1: "Server Exception",
        2: "Bad request",
        3: "Middleware timeout",
        4: "Middleware refused",
    }
)
_PAYLOADS: Final = MappingProxyType({0: "payload_empty", 1: "payload_string", 2: "payload_buffer"})
_STRATEGIES: Final = MappingProxyType(
    {
        0: "tell and go on",
        1: "wait and refuse when no answer",
        2: "wait and go on when no answer",
    }
)
_HOOKS: Final = MappingProxyType(
    {
        0: "connect",
        1: "disconnect",
        16: "message pushed",
        32: "subscribed",
        33: "unsubscribed",
        64: "registered",
        65: "unregistered",
    }
)
_CONDITIONS: Final = MappingProxyType({0: "topic is", 4: "header is", 5: "has header"})

_PAYLOAD: Final[Layout] = _string("payload", LAMAMQ_PAYLOAD_BYTES_MAX, Form.NAME)
_CONTENT: Final[Layout] = (
    Number("created at", 4),
    *_string("routing key", TOPIC_NAME_BYTES_MAX),
    Number("headers", 2, maximum=LAMAMQ_HEADERS_MAX),
    Repeat("headers", "headers", (*_string("key"), *_string("value", form=Form.NAME))),
    Number("payload type", 1, _PAYLOADS, closed=True),
    Choice("payload type", MappingProxyType({1: _PAYLOAD, 2: _PAYLOAD}), other=()),
)
_CONDITION: Final[Layout] = (
    Number("condition type", 1, _CONDITIONS, closed=True),
    Choice(
        "condition type",
        MappingProxyType(
            {
                0: _string("topic", TOPIC_NAME_BYTES_MAX),
                4: (*_string("header"), *_string("value", form=Form.NAME)),
                5: _string("header"),
            }
        ),
        other=(),
    ),
)
_REGISTER: Final[Layout] = (
    *_string("hook name", LAMAMQ_HOOK_NAME_BYTES_MAX),
    Number("priority", 4),
    Number("timeout in ms", 4),
    Number("strategy", 1, _STRATEGIES, closed=True),
    Number("hook type", 1, _HOOKS, closed=True),
    Choice(
        "hook type",
        MappingProxyType(
            {
                16: (
                    Number("conditions", 2, maximum=LAMAMQ_HOOK_CONDITIONS_MAX),
                    Repeat("conditions", "conditions", _CONDITION),
                )
            }
        ),
        other=(),
    ),
)
_SUBSCRIPTION: Final[Layout] = _string("routing key", TOPIC_NAME_BYTES_MAX)

MESSAGE: Final[Layout] = (
    Number("Message id", 4),
    Number("Message type", 1, MESSAGES, closed=True),
    Choice(
        "Message type",
        MappingProxyType(
            {
                0: _CONTENT,
                1: _CONTENT,
                32: _SUBSCRIPTION,
                33: _SUBSCRIPTION,
                64: _REGISTER,
                65: _string("hook name", LAMAMQ_HOOK_NAME_BYTES_MAX),
            }
        ),
        other=(),
    ),
)

ANSWER: Final[Layout] = (
    Number("message id", 4),
    Number("error", 1, _ERRORS, closed=True),
    Choice("error", MappingProxyType({0: ()}), other=_string("error_message")),
)
