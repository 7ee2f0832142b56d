"""The nodes of a log on Kafka: which process writes which partition, and how far each follows.

Nodes do not talk to each other, so each one reports to the state topic.
"""

import contextlib
import time
from collections.abc import Mapping

import msgspec
import structlog

from penstock.ports.nodes import Followed, NodeStatus
from penstock.storage.kafka.follower import PartitionFollower
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.state import FOLLOWED, NODE, NodeReport, NodeState, StateTopic

__all__ = ["Nodes"]

log = structlog.get_logger("penstock.log")


class Nodes:
    """All nodes, seen from `node`. Any thread may use it; methods may block."""

    def __init__(
        self,
        state: StateTopic,
        partitions: Mapping[int, KafkaPartition],
        follower: PartitionFollower,
        *,
        node: int,
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._follower = follower
        self._node = node
        self._ends: dict[int, int] = {}  # of the partitions when Kafka was last asked

    def look(self, number: int) -> None:
        """Ask Kafka for the end of a partition, if this node follows it; raise OSError."""
        found = self._follower.progress().get(number)
        if found is not None:
            _, place = found
            self._ends[number] = self._partitions[number].committed_end(place)

    def report(self) -> None:
        """Write how far this node follows the others, as far as is known; raise OSError."""
        report = NodeReport(time.time_ns() // 1000, self._followed())
        self._state.send(f"{FOLLOWED}{self._node}", msgspec.json.encode(report))

    def status(self) -> list[NodeStatus]:
        """Return all nodes that have written, by number; without Kafka, what is known of them."""
        with contextlib.suppress(OSError):
            self._state.refresh()
        for number in self._follower.progress():
            with contextlib.suppress(OSError):
                self.look(number)
        states = self._state.all(NODE, NodeState)
        reports = self._state.all(FOLLOWED, NodeReport)
        found = {int(name): state for name, state in states.items() if name.isdecimal()}
        own = self._followed()
        return [
            self._status(number, found[number], reports.get(str(number)), own)
            for number in sorted(found)
        ]

    def _status(
        self, number: int, state: NodeState, report: NodeReport | None, own: dict[int, Followed]
    ) -> NodeStatus:
        partition = self._partitions.get(number)
        horizon, end = (0, 0) if partition is None else partition.bounds
        if number in own:
            end = own[number].end
        if number == self._node:
            report = NodeReport(time.time_ns() // 1000, own)
        return NodeStatus(
            number=number,
            host=state.host,
            process=state.process,
            since_us=state.since_us,
            horizon=horizon,
            end=end,
            last_us=None if partition is None else partition.last_us,
            reported_us=None if report is None else report.at_us,
            followed={} if report is None else report.followed,
        )

    def _followed(self) -> dict[int, Followed]:
        """Return how far this node follows the partitions of the others, as far as is known."""
        return {
            number: Followed(offset, max(offset, self._ends.get(number, 0)))
            for number, (offset, _) in self._follower.progress().items()
        }
