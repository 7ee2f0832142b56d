"""The writers of sinks, in the state topic: see decision 47.

A writer is published by one process at a time. A state is stored with a turn, and the order of the
state topic decides between two nodes. Rows of an epoch are appended only by the process whose state
has begun the epoch. A process that takes an epoch over first fences the producers of the others:
their transactions end, so that the rows in the log can be counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import structlog
from confluent_kafka import KafkaException

from penstock.errors import LogUnavailable, SinkElsewhere
from penstock.limits import (
    KAFKA_OPEN_SECONDS_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_RECORD_BYTES_MIN,
)
from penstock.ports import PartitionRange, Prepared
from penstock.ports.selection import Selection
from penstock.ports.sinks import SinkWriter
from penstock.storage.appends import Appends
from penstock.storage.arrow.write.prepared import PreparedRowGroup
from penstock.storage.kafka.client import Connection, failure
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.scanner import KafkaScanner
from penstock.storage.kafka.state import NODE, SINK, NodeState, StateTopic

__all__ = ["KafkaSinks"]

log = structlog.get_logger("penstock.log")

_RETRY_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 0.5
"""Time limit of a call of librdkafka."""


class KafkaSinks:
    """A `ports.SinkStore` of a node. `partition` makes a reader of the partition of any node."""

    def __init__(
        self,
        connection: Connection,
        state: StateTopic,
        appends: Appends,
        *,
        process: str,
        partition: Callable[[int], KafkaPartition],
    ) -> None:
        self._connection = connection
        self._node = connection.options.node
        self._state = state
        self._appends = appends
        self._process = process
        self._partition = partition

    @property
    def process(self) -> str:
        """See ports.SinkStore."""
        return self._process

    # --- States -----------------------------------------------------------------------------------

    def load(self, writer: str) -> SinkWriter | None:
        """See ports.SinkStore."""
        self._state.refresh()
        return self._state.sink(writer)

    def all(self) -> Mapping[str, SinkWriter]:
        """See ports.SinkStore."""
        return self._state.sinks()

    def store(self, writer: str, state: SinkWriter, *, after: SinkWriter | None) -> SinkWriter:
        """See ports.SinkStore. Reads the state topic up to the new record before it returns."""
        stored = self._next(state, after)
        place = self._state.put(self._key(writer), msgspec.json.encode(stored))
        deadline = time.monotonic() + KAFKA_READ_SECONDS_MAX
        self._state.refresh()
        while self._state.place <= place:  # a transaction of another node is not committed yet
            if time.monotonic() > deadline:
                raise self._connection.timed_out(KAFKA_READ_SECONDS_MAX)
            time.sleep(_RETRY_SECONDS)
            self._state.refresh()
        found = self._state.sink(writer)
        if found != stored:
            raise SinkElsewhere(writer, -1 if found is None else found.node)
        for process, node in self._state.sink_processes(writer):
            if node == self._node and process != self._process:  # an earlier process of this node
                self._state.send(f"{SINK}{writer}/{process}", None)
        return stored

    def store_with(
        self, rows: Prepared, writer: str, state: SinkWriter, *, after: SinkWriter
    ) -> None:
        """See ports.SinkStore: rows and state are in the same transaction."""
        if not isinstance(rows, PreparedRowGroup):
            raise TypeError("the rows were prepared for another storage")
        rows.state = {self._key(writer): msgspec.json.encode(self._next(state, after))}

    def _next(self, state: SinkWriter, after: SinkWriter | None) -> SinkWriter:
        begun = state.begun
        if begun is not None:
            processes = {**begun.processes, self._node: self._process}
            begun = msgspec.structs.replace(begun, processes=processes)
        return msgspec.structs.replace(
            state,
            begun=begun,
            turn=1 if after is None else after.turn + 1,
            node=self._node,
            process=self._process,
            updated_us=time.time_ns() // 1000,
        )

    def _key(self, writer: str) -> str:
        return f"{SINK}{writer}/{self._process}"

    def forget(self, writer: str) -> None:
        """See ports.SinkStore: the record of the state is the last to be removed."""
        for process, _ in self._state.sink_processes(writer):
            self._state.send(f"{SINK}{writer}/{process}", None)

    # --- Other processes --------------------------------------------------------------------------

    def release(self, writer: str, state: SinkWriter) -> None:
        """See ports.SinkStore.

        A process that does not report is fenced: its open transaction would hide the state.
        """
        if state.begun is None or state.node == self._node:
            return
        if self._may_write(state.node, state.process):
            if self._state.is_running(state.node):
                raise SinkElsewhere(writer, state.node)
            self._fence(state.node)

    def end_others(self, state: SinkWriter) -> None:
        """See ports.SinkStore."""
        for node, process in state.begun.processes.items() if state.begun else ():
            if self._may_write(node, process):
                self._fence(node)

    def _may_write(self, node: int, process: str) -> bool:
        """Return whether a process of another node may still write if it is not fenced.

        A new process of a node fences the earlier ones before the state topic names it as owner.
        """
        if node == self._node:
            return False
        found = self._state.load(f"{NODE}{node}", NodeState)
        return found is None or found.owner == process

    def _fence(self, node: int) -> None:
        """Fence the producer of a node; raise OSError.

        If the node still runs, it makes a new producer; its appends fail until then.
        """
        log.warning("node fenced by a sink", log=self._connection.options.location, node=node)
        producers = [self._connection.transactional(KAFKA_RECORD_BYTES_MIN, node=node)]
        deadline = time.monotonic() + KAFKA_OPEN_SECONDS_MAX
        try:
            while True:
                try:
                    producers[0].init_transactions(_ANSWER_SECONDS)
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise failure(error) from None
                    if time.monotonic() > deadline:
                        raise self._connection.timed_out(KAFKA_OPEN_SECONDS_MAX) from None
                else:
                    return
        finally:
            self._connection.closing.drop("fence", producers)

    # --- The log ----------------------------------------------------------------------------------

    def scan(
        self, partition: int, start: int, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """See ports.SinkStore. Includes messages that this node has not delivered yet."""
        own = self._partition(partition)
        own.load_bounds()
        end = own.bounds.end
        if start < end:
            span = PartitionRange(partition, start, end)
            yield from KafkaScanner({partition: own}).scan(span, Selection(), columns)

    def guard(self) -> Callable[[], None]:
        """See ports.SinkStore."""
        appends = self._appends
        if appends.unavailable is not None:
            raise LogUnavailable(appends.unavailable.strerror or str(appends.unavailable))
        failures = appends.failures

        def check() -> None:
            if appends.failures != failures:
                raise LogUnavailable("a commit has failed")

        return check
