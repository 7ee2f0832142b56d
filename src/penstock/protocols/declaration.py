"""The declaration of a protocol: one value with everything that other layers look up.

Plain facts (number, label, byte orders, features, limits) are fields of the value. Code is in the
layer that it belongs to, in a file for the protocol, and the declaration refers to it as
`"package.module:name"`. A layer loads its part when it needs it, so a command that only reads a log
loads no gateway, and no layer imports a higher one.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from penstock.model import ByteOrder

__all__ = ["NUMBER_MAX", "Carries", "Limit", "Protocol", "RefusalSigns", "Source", "load"]

NUMBER_MAX: Final = 199
"""The highest protocol number; higher numbers are for other sources, such as HTTP."""


@dataclasses.dataclass(frozen=True, slots=True)
class Carries:
    """The features of a protocol: parts of a publish besides topic and value, and more."""

    headers: bool = False
    created: bool = False
    """The sender's timestamp."""
    status: bool = False
    sender_ids: bool = False
    """Each message carries a 16-byte sender id."""
    messagepack: bool = False
    """Payloads are MessagePack values; a bin is plain bytes."""
    requests: bool = False
    """Clients can send requests and notifications to each other."""
    hooks: bool = False
    """Clients can register as middleware."""
    acknowledgments: bool = False
    """Each publish is acknowledged."""
    message_ids: bool = False
    """The acknowledgment of a publish carries the message's id."""
    group_answers: bool = False
    """Clients acknowledge each message of a consumer group; otherwise receiving its bytes does."""
    channels: bool = False
    """Topics are numbered channels; a channel has no name on the wire."""
    topics_created: bool = False
    """A topic must be created before it is used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A limit that can be configured, in `[limits]` as `<label>_<name>`."""

    name: str
    default: int
    least: int
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class RefusalSigns:
    """How a client can tell why a broker does not accept it."""

    unauthenticated: int | None = None
    """The error code for missing or wrong credentials."""
    unauthenticated_words: tuple[str, ...] = ()
    """Part of that error's text, where one code is used for several errors."""
    closes_unauthenticated: bool = False
    """A client without credentials is refused by closing the connection."""
    other_protocol: str = ""
    """The start of the error that a client reports if the server speaks another protocol."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Source:
    """An interface that messages arrive by. Its number never changes and is never reused."""

    number: int
    label: str
    """The name in configuration, records, metrics and URLs."""
    title: str
    """The name in prose."""
    carries: Carries = Carries()

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"<{self.label}>"

    def __reduce__(self) -> tuple[Callable[[str], "Source"], tuple[str]]:
        """Pickle by label: there is one value of each source in a process."""
        return _by_label, (self.label,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Protocol(Source):
    """A wire protocol.

    A reference to code may be empty. For example, without a `conform` suite `penstock conform` has
    no cases for the protocol.
    """

    orders: tuple[ByteOrder, ...]
    """The byte orders that clients may use; the specification's is the first."""
    transports: frozenset[str]
    """URL schemes of listeners that accept its clients."""
    limits: tuple[Limit, ...] = ()
    credentials: tuple[str, ...] = ()
    """The client options that carry credentials."""
    retriable: frozenset[int] = frozenset()
    """Error codes after which the same request may succeed later."""
    refusal: RefusalSigns = RefusalSigns()
    identity_key: bool = False
    """Clients have an identity name, and a key that proves it."""

    detection: str
    """A `wire.detection.Detection`: how first bytes are recognised."""
    encoder: str
    """A subclass of `core.encoders.Encoder`: rows of a batch to delivery frames."""
    gateway: str
    """A subclass of `gateway.base.Gateway`."""
    remote: str = ""
    """A class `(Broker)` whose `receive` takes private messages of clients of other nodes."""
    services: str = ""
    """A function `(Broker)` that lets clients of all protocols ask and answer by topics."""
    client: str
    """A function `(Credentials) -> Callable[[], Session]`: sessions of the client library."""
    decode: str = ""
    """A `decode.reading.Reading`: how captures are read and explained."""
    capture: str = ""
    """A function `(CapturedSide) -> Role`: how captures become rows in Spark."""
    conform: str = ""
    """A `conform.case.Suite`: conformance cases."""
    bench: str = ""
    """A subclass of `cli.bench.wire.Wire`: load for benchmarks."""


@functools.cache
def load(reference: str) -> Any:  # noqa: ANN401  (the layer that asks knows the type)
    """Return the object that `"package.module:name"` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _by_label(label: str) -> Source:
    from penstock.protocols.registry import SOURCES  # noqa: PLC0415  (it imports this module)

    return SOURCES[label]
