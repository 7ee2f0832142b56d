"""Messages by which clients of all protocols ask and answer services through topics.

    topic                     published by   value
    service/request/PATH      a requester    `ID REPLY-TOPIC`, a line feed, the request
    service/serve/PATH        the broker     the same, with an id and a reply topic of the broker
    the reply topic           a server       `ID STATUS`, a line feed, the answer

The first line is UTF-8. An id has no space and no line feed; the statuses are those of fleximq.
"""

import dataclasses
import itertools
from typing import Final

from penstock.errors import ErrorCode, WireError
from penstock.limits import REQUEST_ID_BYTES_MAX, SERVICE_LINE_BYTES_MAX

__all__ = [
    "BROKER",
    "BROKER_REPLY_PREFIX",
    "HANDLER_FAILED",
    "REPLY_PREFIX",
    "REQUEST_PREFIX",
    "SERVE_PATH",
    "SERVE_PREFIX",
    "SUCCESS",
    "UNSERVE_PATH",
    "InvalidServiceMessage",
    "ServiceReply",
    "ServiceRequest",
    "decode_reply",
    "decode_request",
    "path_of_requests",
]

SERVE_PATH: Final = "/serve"
UNSERVE_PATH: Final = "/unserve"
"""Paths of fleximq requests to the broker that begin and end a service."""
REQUEST_PREFIX: Final = "service/request/"
"""Before the path of a service: the topic on which it is asked."""
SERVE_PREFIX: Final = "service/serve/"
"""Before the path of a service: the topic that its servers subscribe to."""
REPLY_PREFIX: Final = "service/reply/"
"""Before the names of reply topics that the broker and the client library choose."""
BROKER_REPLY_PREFIX: Final = f"{REPLY_PREFIX}broker/"
"""Before the number of a node: the topic on which servers answer it."""
BROKER: Final = 1
"""The fleximq client id of the broker."""
SUCCESS: Final = 200
HANDLER_FAILED: Final = 500
_STATUSES: Final = range(65_536)
_SERVE_PREFIXES: Final = tuple(
    SERVE_PREFIX.replace("/", "{}").format(*separators)
    for separators in itertools.product("/.", repeat=SERVE_PREFIX.count("/"))
)
"""A pattern with wildcards matches both separators of levels."""


class InvalidServiceMessage(WireError):
    """The first line of a request or an answer on a topic is not valid."""

    code = ErrorCode.INVALID_SERVICE_MESSAGE
    template = "invalid first line: {reason}"

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request to a service."""

    identifier: str
    reply_topic: str
    value: bytes

    def encode(self) -> bytes:
        """Return the value of the message."""
        return f"{self.identifier} {self.reply_topic}\n".encode() + self.value


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceReply:
    """The answer to a request."""

    identifier: str
    status: int
    value: bytes

    def encode(self) -> bytes:
        """Return the value of the message."""
        return f"{self.identifier} {self.status}\n".encode() + self.value

    @property
    def is_success(self) -> bool:
        """Whether the request was answered with success."""
        return 200 <= self.status < 300


def path_of_requests(text: str) -> str | None:
    """Return what follows `service/serve/` in a topic or pattern; None if it does not begin so."""
    return text[len(SERVE_PREFIX) :] if text.startswith(_SERVE_PREFIXES) else None


def decode_request(value: bytes) -> ServiceRequest:
    """Return the request in a message; raise InvalidServiceMessage."""
    identifier, reply_topic, rest = _split(value)
    return ServiceRequest(identifier, reply_topic, rest)


def decode_reply(value: bytes) -> ServiceReply:
    """Return the answer in a message; raise InvalidServiceMessage."""
    identifier, status, rest = _split(value)
    if not (status.isascii() and status.isdigit()) or int(status) not in _STATUSES:
        raise InvalidServiceMessage("the status is not a number from 0 to 65535")
    return ServiceReply(identifier, int(status), rest)


def _split(value: bytes) -> tuple[str, str, bytes]:
    """Return the two words of the first line, and what follows it."""
    end = value.find(b"\n", 0, SERVICE_LINE_BYTES_MAX + 1)
    if end < 0:
        raise InvalidServiceMessage(f"no line feed in the first {SERVICE_LINE_BYTES_MAX} bytes")
    try:
        identifier, _, word = value[:end].decode().partition(" ")
    except UnicodeDecodeError:
        raise InvalidServiceMessage("it is not UTF-8") from None
    if not identifier or not word:
        raise InvalidServiceMessage("expected two words")
    if len(identifier.encode()) > REQUEST_ID_BYTES_MAX:
        raise InvalidServiceMessage(f"the id has more than {REQUEST_ID_BYTES_MAX} bytes")
    return identifier, word, value[end + 1 :]
