"""Errors that the other end of a connection must act on: bytes, requests, reads of the log."""

from penstock.errors.base import PeerError, WireError
from penstock.errors.codes import ErrorCode

__all__ = [
    "AlreadySubscribed",
    "AuthenticationFailed",
    "BadMagic",
    "BrokerFull",
    "FrameTooLarge",
    "GroupDamaged",
    "GroupDiffers",
    "GroupElsewhere",
    "GroupNotStored",
    "HookRefused",
    "HookTimeout",
    "InvalidAcknowledgment",
    "InvalidHook",
    "InvalidMessageKey",
    "InvalidPattern",
    "InvalidServicePath",
    "InvalidStart",
    "KeyWithRouting",
    "LogDamaged",
    "LogError",
    "LogReplaced",
    "LogUnavailable",
    "MemoryExhausted",
    "MessageTooLarge",
    "MiddlewareMissing",
    "NoHistory",
    "NoLastValues",
    "NoSuchGroup",
    "NotAllowed",
    "NotSubscribed",
    "OffsetBelowHorizon",
    "OffsetPastEnd",
    "OutOfSequence",
    "ReservedHeader",
    "SinkElsewhere",
    "TierUnavailable",
    "TooManyMessages",
    "TooManyPatternShapes",
    "TooManyServices",
    "TooManyStoredBytes",
    "TooManySubscriptions",
    "UnrecognisedProtocol",
]


class BadMagic(WireError):
    """A frame does not start with a magic number of its protocol: framing is lost."""

    code = ErrorCode.BAD_MAGIC

    found: bytes
    expected: tuple[bytes, ...]

    def __str__(self) -> str:
        expected = " or ".join(magic.hex(" ") for magic in self.expected)
        return f"frame starts with {self.found.hex(' ')}, expected {expected}"


class FrameTooLarge(WireError):
    """A frame, or a part of it, announces more bytes than its limit: framing is lost."""

    code = ErrorCode.FRAME_TOO_LARGE
    template = "{part} of {size} bytes exceeds the limit of {size_max}"

    part: str
    size: int
    size_max: int


class OutOfSequence(WireError):
    """A well-formed packet arrived in a state that does not allow it."""

    code = ErrorCode.OUT_OF_SEQUENCE
    template = "{packet} is not allowed in state {state}"

    state: str
    packet: str


class MemoryExhausted(WireError):
    """The broker has no memory left for a frame, a request or a connection.

    `share` is the part of the budget that is used up: total, address, principal or unauthenticated.
    """

    code = ErrorCode.MEMORY_EXHAUSTED
    is_temporary = True
    template = "the broker's memory is used up ({share}); send it again later"

    share: str


class UnrecognisedProtocol(WireError):
    """The first bytes of a connection match none of the protocols allowed on it."""

    code = ErrorCode.UNRECOGNISED_PROTOCOL

    first_bytes: bytes
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} (first bytes: {self.first_bytes.hex(' ')})"


class InvalidPattern(PeerError):
    """A subscription pattern that is empty or too long, or has levels after `#` or too many."""

    code = ErrorCode.INVALID_PATTERN
    template = "nothing can be subscribed to by {pattern!r}"

    pattern: str


class InvalidStart(InvalidPattern):
    """A subscription ends in what is almost a start position, or in one that is not supported."""

    code = ErrorCode.INVALID_START
    template = "{suffix} is no start position: {hint}"

    suffix: str
    hint: str


class NotAllowed(PeerError):
    """The access rules of the principal do not allow this action.

    `rule` is the rule that denies it, empty if no rule allows it. It is no field, so that it does
    not reach the client, who would learn of other names.
    """

    code = ErrorCode.NOT_ALLOWED
    rule = ""

    principal: str
    action: str
    topic: str  # or another name, see core.access

    def __str__(self) -> str:
        words = {"publish": "publish to", "subscribe": "subscribe to", "group": "use group"}
        action = words.get(self.action, self.action)
        return f"{self.principal} may not {action} {self.topic!r}"


class BrokerFull(PeerError):
    """The broker, or a principal, has reached its limit of connected clients."""

    code = ErrorCode.BROKER_FULL
    template = "the limit of {sessions} {unit} is reached"

    sessions: int
    unit: str = "clients"


class TooManyMessages(PeerError):
    """The client, or its principal, exceeds its limit of messages or bytes per second."""

    code = ErrorCode.TOO_MANY_MESSAGES
    template = "the limit of {per_second_max} {unit} a second is exceeded"

    per_second_max: int
    unit: str = "messages"


class TooManyStoredBytes(PeerError):
    """The principal has as many bytes in the log as it may."""

    code = ErrorCode.TOO_MANY_STORED_BYTES
    template = (
        "principal {principal} has its {stored_bytes_max} bytes in the log, which is its limit;"
        " it may publish again when retention has removed earlier messages"
    )

    stored_bytes_max: int
    principal: str


class TooManySubscriptions(PeerError):
    """The client has reached its limit of subscriptions, or of the bytes of their patterns."""

    code = ErrorCode.TOO_MANY_SUBSCRIPTIONS
    template = "the limit of {subscriptions_max} {unit} is reached"

    subscriptions_max: int
    unit: str = "subscriptions"


class InvalidServicePath(PeerError):
    """A path cannot be the name of a service."""

    code = ErrorCode.INVALID_SERVICE_PATH
    template = "not a path of a service: {reason}"

    reason: str


class TooManyServices(PeerError):
    """A client serves as many paths as it may, or a path has as many servers as it may."""

    code = ErrorCode.TOO_MANY_SERVICES
    template = "the limit of {services_max} {unit} is reached"

    services_max: int
    unit: str


class TooManyPatternShapes(PeerError):
    """The client has reached its limit of different places of wildcards in its subscriptions."""

    code = ErrorCode.TOO_MANY_PATTERN_SHAPES
    template = (
        "the subscriptions of a client may have wildcards in {shapes_max} different places; "
        "use fewer, wider patterns"
    )

    shapes_max: int


class AuthenticationFailed(PeerError):
    """Credentials are wrong, or name no known principal.

    `reason` is for the broker's log. It must not reach the client, which would learn whether the
    principal exists.
    """

    code = ErrorCode.AUTHENTICATION_FAILED
    template = "{kind} refused"

    kind: str
    reason: str


class LogError(PeerError):
    """The log cannot store or return messages."""


class LogUnavailable(LogError):
    """The log takes no messages at the moment; none of those sent was stored."""

    code = ErrorCode.LOG_UNAVAILABLE
    is_temporary = True
    template = "the message cannot be kept: {reason}; send it again later"

    reason: str


class GroupNotStored(LogUnavailable):
    """The state of a consumer group cannot be written, so a client cannot join it."""

    template = "the group cannot be stored: {reason}; try again later"


class MessageTooLarge(LogUnavailable):
    """The log takes no message of this size; none of those sent with it was stored."""

    is_temporary = False
    template = "the message cannot be kept: {reason}"


class OffsetBelowHorizon(LogError):
    """Retention has removed the messages at this offset."""

    code = ErrorCode.OFFSET_BELOW_HORIZON
    template = "offset {offset} is no longer kept; the first that is kept is {horizon}"

    offset: int
    horizon: int


class OffsetPastEnd(LogError):
    """No message has this offset yet."""

    code = ErrorCode.OFFSET_PAST_END
    template = "offset {offset} is not taken yet; the next message gets {end}"

    offset: int
    end: int


class LogReplaced(LogError):
    """A request is for messages of another log than the one that is here; both are log ids."""

    code = ErrorCode.LOG_REPLACED
    template = "the request is for log {expected}, and this is log {found}"

    expected: str
    found: str


class LogDamaged(LogError):
    """Messages from `offset` up to `resumes_at` (exclusive) cannot be read."""

    code = ErrorCode.LOG_DAMAGED

    offset: int
    resumes_at: int
    reason: str

    def __str__(self) -> str:
        return (
            f"messages {self.offset} to {self.resumes_at - 1} cannot be read: {self.reason}; "
            f"see penstock log verify"
        )


class TierUnavailable(LogError):
    """Messages are in an object store that cannot be read at the moment.

    The reason is in the log only: it names the store.
    """

    code = ErrorCode.TIER_UNAVAILABLE
    is_temporary = True
    template = (
        "messages from offset {offset} on are in the object store, which does not answer; "
        "read them again later"
    )

    offset: int


class NoHistory(LogError):
    """A subscription asks for history, and the broker has no log."""

    code = ErrorCode.NO_HISTORY
    template = "this broker keeps no log: subscribe without @"


class NoLastValues(LogError):
    """A subscription asks for the last message of each topic, which the storage cannot find."""

    code = ErrorCode.NO_LAST_VALUES
    template = "the log of this broker has no index of topics: subscribe without @last"


class AlreadySubscribed(PeerError):
    """A subscription asks for history, but the client is subscribed to the pattern already."""

    code = ErrorCode.ALREADY_SUBSCRIBED
    template = (
        "already subscribed to {pattern}, without this start: unsubscribe first, "
        "or use another connection"
    )

    pattern: str


class GroupDamaged(LogError):
    """The stored state of a consumer group cannot be decoded; it is kept until it is removed."""

    code = ErrorCode.GROUP_DAMAGED
    template = (
        "the stored state of group {group} is damaged: {reason}; "
        "restore it from a backup, or remove the group"
    )

    group: str
    reason: str


class GroupDiffers(PeerError):
    """A client joins a consumer group with other topics or another order than the group has.

    Also if a reader reports its position in a group whose members are clients of the broker.
    """

    code = ErrorCode.GROUP_DIFFERS
    template = "group {group} {difference}; choose another name, or remove the group"

    group: str
    difference: str


class GroupElsewhere(PeerError):
    """A client joins a consumer group, or changes one, whose members are at another node."""

    code = ErrorCode.GROUP_ELSEWHERE
    is_temporary = True
    template = "group {group} has its members at node {node}; connect to that node"

    group: str
    node: int


class SinkElsewhere(PeerError):
    """Another node publishes an epoch of the writer."""

    code = ErrorCode.SINK_ELSEWHERE
    template = (
        "writer {writer!r} publishes through node {node} at the moment; "
        "try again; if the error persists, publish through that node or stop it"
    )

    writer: str
    node: int


class NoSuchGroup(PeerError):
    """A consumer group does not exist."""

    code = ErrorCode.NO_SUCH_GROUP
    template = "there is no group {group!r}"

    group: str


class InvalidAcknowledgment(PeerError):
    """A client acknowledges messages of a consumer group, but does not say which."""

    code = ErrorCode.INVALID_ACKNOWLEDGMENT
    template = "{reason}"

    reason: str


class NotSubscribed(PeerError):
    """A client unsubscribes from a pattern that it has not subscribed to."""

    code = ErrorCode.NOT_SUBSCRIBED

    pattern: str

    def __str__(self) -> str:
        return f"there is no subscription to {self.pattern[:200]!r}"


class InvalidHook(PeerError):
    """A hook cannot be registered, or is not registered and cannot be removed."""

    code = ErrorCode.INVALID_HOOK
    template = "hook {hook!r}: {reason}"

    hook: str
    reason: str


class HookRefused(PeerError):
    """A middleware refused the request; `reason` is its own text and may be empty."""

    code = ErrorCode.HOOK_REFUSED

    hook: str
    reason: str

    def __str__(self) -> str:
        return self.reason or f"refused by hook {self.hook!r}"


class ReservedHeader(PeerError):
    """A message brings a header that only the broker may set."""

    code = ErrorCode.RESERVED_HEADER
    template = "header {header!r} is reserved for the broker; choose a name without penstock-"

    header: str


class InvalidMessageKey(PeerError):
    """The key of a message, for deduplication, is empty or too long."""

    code = ErrorCode.INVALID_MESSAGE_KEY
    template = "a message key of {size} bytes; expected 1 to {size_max}"

    size: int
    size_max: int


class KeyWithRouting(PeerError):
    """A message for some clients only has a key: nothing is known about such messages."""

    code = ErrorCode.KEY_WITH_ROUTING
    template = "a PUB with routing has no message key; leave out {field!r}"

    field: str


class HookTimeout(PeerError):
    """A middleware that must consent gave no answer in time."""

    code = ErrorCode.HOOK_TIMEOUT
    is_temporary = True
    template = "hook {hook!r} gave no answer"

    hook: str


class MiddlewareMissing(PeerError):
    """No middleware consented to a message whose topic requires one, by the configuration."""

    code = ErrorCode.MIDDLEWARE_MISSING
    is_temporary = True
    template = "messages to {topic!r} need the consent of a middleware, and none gave it"

    topic: str
