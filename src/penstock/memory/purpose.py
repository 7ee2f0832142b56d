"""The purposes that memory is held for."""

import enum
from typing import Final

__all__ = ["PURPOSES", "Purpose"]


class Purpose(enum.IntEnum):
    """The purposes that memory is held for; the label of a metric."""

    CONNECTIONS = 0
    """Objects of a connection."""
    INPUT = enum.auto()
    """Unfinished frames, WebSocket messages and datagrams."""
    OUTPUT = enum.auto()
    """Bytes that clients have not read."""
    REPLAY = enum.auto()
    """Messages from the log, and live messages queued until a client has caught up."""
    SUBSCRIPTIONS = enum.auto()
    """Start offsets of subscriptions in partitions that are not found yet."""
    GROUPS = enum.auto()
    """Lists of messages that members of consumer groups have not acknowledged."""
    ANSWERS = enum.auto()
    """Answers that wait for the disk."""
    REQUESTS = enum.auto()
    """Requests that await an answer."""
    HOOKS = enum.auto()
    """Messages that wait for middleware."""
    HTTP = enum.auto()
    """Bodies of requests, and responses."""
    LOG = enum.auto()
    """Messages that wait for the disk."""
    CACHES = enum.auto()
    FLIGHT = enum.auto()
    """Rows that Arrow Flight stages and publishes."""
    NAMES = enum.auto()
    """Topics and their names."""
    KEYS = enum.auto()
    """Keys of messages, for deduplication."""
    PASSWORDS = enum.auto()
    """Verifications of passwords."""
    OVERHEAD = enum.auto()
    """Memory of the process that no other purpose counts."""

    @property
    def label(self) -> str:
        """The name in metrics."""
        return self.name.lower()


PURPOSES: Final = len(Purpose)
