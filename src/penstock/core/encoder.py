"""Rows of a batch as the bytes that subscribers of a protocol receive."""

from array import array

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.core.routing import Encoding, Router
from penstock.errors import ValueNotDeliverable
from penstock.limits import HERALD_PAYLOAD_BYTES_MAX
from penstock.model import Protocol

__all__ = ["Encoder"]

HERALD_VALUE_BYTES_MAX = HERALD_PAYLOAD_BYTES_MAX - 9


class Encoder:
    """The kernels of all protocols, and the ids of what LamaMQ clients are sent."""

    def __init__(self, topics: TopicTable, router: Router, counters: Counters) -> None:
        self._topics = topics
        self._router = router
        self._counters = counters
        self._forward_id = 0

    def encode(
        self,
        encoding: Encoding,
        batch: Batch,
        rows: "memoryview[int] | None",
        wanted: bytes | None,
    ) -> bytes:
        """Return the frames of `rows`, or of all rows; `wanted` marks the routes they are on.

        Values that no herald MESSAGE can carry are left out for herald, and counted.
        """
        match encoding.protocol:
            case Protocol.RHEOS1:
                return rheos1_kernel.encode(batch, self._topics, rows=rows)
            case Protocol.RHEOS2:
                return rheos2_kernel.encode(batch, self._topics, rows=rows)
            case Protocol.FLEXIMQ:
                return fleximq_kernel.encode(batch, self._topics, rows=rows)
            case Protocol.LAMAMQ:
                first = self.next_forward_id(len(batch) if rows is None else len(rows))
                return lamamq_kernel.encode(
                    batch, self._topics, order=encoding.order, rows=rows, first_message_id=first
                )
            case Protocol.HERALD:
                try:
                    return herald_kernel.encode(
                        batch, self._topics, order=encoding.order, rows=rows
                    )
                except ValueNotDeliverable:
                    fitting = self._what_herald_carries(batch, rows, wanted)
                    return herald_kernel.encode(
                        batch, self._topics, order=encoding.order, rows=fitting
                    )

    def next_forward_id(self, count: int = 1) -> int:
        """Return the first of `count` ids for what LamaMQ clients are sent: 31 bits, in a ring."""
        first = self._forward_id
        self._forward_id = (first + count) & 0x7FFFFFFF
        return first

    def _what_herald_carries(
        self, batch: Batch, rows: "memoryview[int] | None", wanted: bytes | None
    ) -> "memoryview[int]":
        """Leave out the values that no MESSAGE can carry; see docs/decisions/0004."""
        routes = self._router.route_of_topic
        all_routes = b"\x01" * (max(routes, default=0) + 1)
        fitting = batch.select(routes, wanted or all_routes, value_bytes_max=HERALD_VALUE_BYTES_MAX)
        count = len(batch)
        if rows is not None:
            count = len(rows)
            kept = array("I", sorted(set(rows).intersection(fitting)))
            fitting = memoryview(kept)
        self._counters.messages_undeliverable[Protocol.HERALD] += count - len(fitting)
        return fitting
