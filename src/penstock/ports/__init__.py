"""Interfaces between the broker and the outside: clock, connections, storage, audit log."""

from penstock.ports.audit import NO_AUDIT, Audit, AuditEvent
from penstock.ports.connection import AcknowledgedLink, Clock, Handler, Link, UnprovenLink
from penstock.ports.log import (
    Follower,
    KnownTopic,
    LogReader,
    LogWriter,
    Prepared,
    Receipt,
    Record,
    Stored,
)
from penstock.ports.sessions import KeptSession, SessionStore
from penstock.ports.storage import (
    Bounds,
    ConsumerGroups,
    DamagedRange,
    GroupState,
    Matched,
    PartitionRange,
    SegmentStatus,
    Storage,
    StorageStatus,
    Subscription,
    SyncTimes,
    TierStatus,
    TopicCounts,
)

__all__ = [
    "NO_AUDIT",
    "AcknowledgedLink",
    "Audit",
    "AuditEvent",
    "Bounds",
    "Clock",
    "ConsumerGroups",
    "DamagedRange",
    "Follower",
    "GroupState",
    "Handler",
    "KeptSession",
    "KnownTopic",
    "Link",
    "LogReader",
    "LogWriter",
    "Matched",
    "PartitionRange",
    "Prepared",
    "Receipt",
    "Record",
    "SegmentStatus",
    "SessionStore",
    "Storage",
    "StorageStatus",
    "Stored",
    "Subscription",
    "SyncTimes",
    "TierStatus",
    "TopicCounts",
    "UnprovenLink",
]
