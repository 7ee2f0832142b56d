"""Responses of the API about nodes, hooks and requests. Times are in UTC."""

from datetime import datetime

from msgspec import Struct

from penstock.server.http.schemas import Count

__all__ = ["Cluster", "ClusterNode", "Durations", "FollowedPartition", "HookEntry", "Hooks"]


# --- Nodes ----------------------------------------------------------------------------------------


class FollowedPartition(Struct, frozen=True):
    """How far a node delivers the partition of another: its next offset, and messages behind."""

    partition: int
    offset: Count
    behind: Count


class ClusterNode(Struct, frozen=True):
    """A node, and the partition of its number: offsets from `horizon` up to, not with, `end`.

    `reported` is the time of its last report about what it follows, null if there is none.
    """

    node: int
    host: str
    process: int
    started: datetime
    horizon: Count
    end: Count
    last_time: datetime | None
    reported: datetime | None
    follows: list[FollowedPartition]


class Cluster(Struct, frozen=True):
    """The nodes that write a log together; `node` is the one that answers.

    `log` is `kafka`, or the kind of a log that one broker writes alone; then there are no nodes.
    """

    log: str
    location: str
    node: int
    nodes: list[ClusterNode]


# --- Hooks and requests ---------------------------------------------------------------------------


class Durations(Struct, frozen=True):
    """How long answers took. The percentiles are estimates from a histogram."""

    count: Count
    mean_seconds: float
    p50_seconds: float
    p99_seconds: float
    max_seconds: float


class HookEntry(Struct, frozen=True):
    """A hook: what it sees, and its calls since it was registered.

    `connected` is false for a hook that must consent and whose client has left; `waiting` are calls
    whose answer is awaited.
    """

    name: str
    event: str
    strategy: str
    priority: int
    topics: list[str]
    headers: list[str]
    client: str
    principal: str
    connected: bool
    timeout_seconds: float
    calls: Count
    waiting: Count
    refusals: Count
    unanswered: Count
    answers: Durations


class Hooks(Struct, frozen=True):
    """All hooks in the order in which they were registered, and requests between clients.

    `timed_out` and `target_left` are requests that ended without an answer since the start.
    """

    hooks: list[HookEntry]
    requests_pending: Count
    requests_timed_out: Count
    requests_target_left: Count
    request_answers: Durations
