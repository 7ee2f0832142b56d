"""Interfaces between the broker and the outside: clock, connections, storage, audit log."""

from penstock.ports.audit import NO_AUDIT, Audit, AuditEvent
from penstock.ports.connection import AcknowledgedLink, Clock, Handler, Link, UnprovenLink
from penstock.ports.log import Fetched, LogReader, LogWriter, Prepared, Receipt, Record, Stored
from penstock.ports.storage import (
    Bounds,
    ConsumerGroups,
    DamagedRange,
    GroupState,
    KnownTopic,
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
from penstock.ports.topic_filter import TopicFilter, new_topic_filter

__all__ = [
    "NO_AUDIT",
    "AcknowledgedLink",
    "Audit",
    "AuditEvent",
    "Bounds",
    "Clock",
    "ConsumerGroups",
    "DamagedRange",
    "Fetched",
    "GroupState",
    "Handler",
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
    "Storage",
    "StorageStatus",
    "Stored",
    "Subscription",
    "SyncTimes",
    "TierStatus",
    "TopicCounts",
    "TopicFilter",
    "UnprovenLink",
    "new_topic_filter",
]
