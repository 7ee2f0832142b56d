"""One client interface over five protocols, asynchronous and synchronous."""

from penstock.client.client import Client, connect
from penstock.client.consumer import Consumer, GroupMessage
from penstock.client.errors import (
    BadOption,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    InvalidAddress,
    InvalidValue,
    NotAChannel,
    NotResumed,
    PartlyRefused,
    Refused,
    RequestFailed,
    TimedOut,
    TlsFailed,
    Unreachable,
    Unsupported,
    Untrusted,
)
from penstock.client.options import Backoff, ClientEvent, ErrorReported, State, StateChanged
from penstock.client.registrations import Middleware, NamedService, Service
from penstock.client.streams import Stream
from penstock.client.sync import (
    SyncClient,
    SyncConsumer,
    SyncGroupMessage,
    SyncStream,
    connect_sync,
)
from penstock.client.values import Delivery, HookCall, InvalidMessage, Notification, Reply, Request
from penstock.errors import (
    CallerError,
    FieldOutOfRange,
    InvalidStart,
    InvalidTopicName,
    PeerError,
)
from penstock.middleware import HasHeader, HeaderIs, HookStrategy, HookType, TopicIs
from penstock.wire.messagepack import Unencodable

__all__ = [
    "Backoff",
    "BadOption",
    "CallerError",
    "Client",
    "ClientClosed",
    "ClientEvent",
    "ConnectFailed",
    "ConnectionLost",
    "Consumer",
    "Delivery",
    "ErrorReported",
    "FieldOutOfRange",
    "GroupMessage",
    "HasHeader",
    "HeaderIs",
    "HookCall",
    "HookStrategy",
    "HookType",
    "InvalidAddress",
    "InvalidMessage",
    "InvalidStart",
    "InvalidTopicName",
    "InvalidValue",
    "Middleware",
    "NamedService",
    "NotAChannel",
    "NotResumed",
    "Notification",
    "PartlyRefused",
    "PeerError",
    "Refused",
    "Reply",
    "Request",
    "RequestFailed",
    "Service",
    "State",
    "StateChanged",
    "Stream",
    "SyncClient",
    "SyncConsumer",
    "SyncGroupMessage",
    "SyncStream",
    "TimedOut",
    "TlsFailed",
    "TopicIs",
    "Unencodable",
    "Unreachable",
    "Unsupported",
    "Untrusted",
    "connect",
    "connect_sync",
]
