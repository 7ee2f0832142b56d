"""Interfaces between the broker and the outside: clock, connections, storage, audit log."""

from penstock.ports.audit import NO_AUDIT, Audit, AuditEvent
from penstock.ports.connection import AcknowledgedLink, Clock, Handler, Link, UnprovenLink
from penstock.ports.groups import GroupStore
from penstock.ports.log import LogReader, LogWriter, Prepared, Receipt, Record, Stored
from penstock.ports.storage import (
    Bounds,
    ConsumerGroups,
    DamagedRange,
    GroupProgress,
    GroupState,
    KnownTopic,
    Matched,
    PartitionRange,
    PendingRun,
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
    "GroupProgress",
    "GroupState",
    "GroupStore",
    "Handler",
    "KnownTopic",
    "Link",
    "LogReader",
    "LogWriter",
    "Matched",
    "PartitionRange",
    "PendingRun",
    "Prepared",
    "Receipt",
    "Record",
    "SegmentStatus",
    "Storage",
    "StorageStatus",
    "Stored",
    "Subscription",
    "SyncTimes",
    "TierStatus",
    "TopicCounts",
    "UnprovenLink",
]
