"""Writers of sinks whose state several nodes share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from typing import Protocol as Port

import msgspec

from penstock.ports.log import Prepared

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SinkEpoch", "SinkStore", "SinkWriter"]


class SinkEpoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """An epoch whose publication has begun.

    `starts` has, for each node that may have published a part, an offset in the node's partition:
    no rows of the epoch are below it. `processes` has the last process of each of these nodes.
    `source` names the staged rows that are published; it is empty if they were staged again.
    """

    epoch: int
    starts: dict[int, int]
    processes: dict[int, str] = {}
    source: str = ""
    final: bool = False


class SinkWriter(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a writer: the last published epoch and its rows, and the epoch that has begun.

    `owner` is a principal. The store sets the other fields: `turn` grows with each state of the
    writer; the process `process` of `node` has stored this one at the time `updated_us`.
    """

    owner: str
    epoch: int = -1
    rows: int = 0
    final: bool = False
    begun: SinkEpoch | None = None
    turn: int = 0
    node: int = -1
    process: str = ""
    updated_us: int = 0


class SinkStore(Port):
    """Keeps the state of writers, for all nodes. Any thread may call; methods may block.

    Methods raise OSError.
    """

    @property
    def process(self) -> str:
        """The name of this process."""

    def load(self, writer: str) -> SinkWriter | None:
        """Return the state of a writer, None if it has none."""

    def all(self) -> Mapping[str, SinkWriter]:
        """Return the states of all writers that were read so far."""

    def store(self, writer: str, state: SinkWriter, *, after: SinkWriter | None) -> SinkWriter:
        """Store a state in place of `after`, and return it with the fields that the store sets.

        Raise SinkElsewhere if another node has stored one meanwhile.
        """

    def store_with(
        self, rows: Prepared, writer: str, state: SinkWriter, *, after: SinkWriter
    ) -> None:
        """Attach a state to rows that are appended next; both are stored together or not at all."""

    def release(self, writer: str, state: SinkWriter) -> None:
        """Raise SinkElsewhere if the process that has begun the epoch of a state still runs."""

    def end_others(self, state: SinkWriter) -> None:
        """Fence all other processes that have published rows of the begun epoch."""

    def scan(
        self, partition: int, start: int, *, columns: Sequence[str]
    ) -> "Iterator[pa.RecordBatch]":
        """Yield all messages of a partition from an offset on; see ports.Storage."""

    def guard(self) -> Callable[[], None]:
        """Return a check that raises LogUnavailable if an append has failed since this call.

        Raise LogUnavailable if appends are refused now. Guard and check are called in the thread
        of the event loop.
        """

    def forget(self, writer: str) -> None:
        """Remove the state of a writer."""
