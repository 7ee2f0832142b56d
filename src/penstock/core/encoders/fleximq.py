"""The encoder of fleximq."""

from array import array
from typing import Final

from penstock._kernels import fleximq
from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Encoder, Rows
from penstock.errors import ValueNotDeliverable
from penstock.model import ByteOrder
from penstock.protocols.fleximq import FLEXIMQ, FLEXIMQ_HEADER_BYTES_MAX

__all__ = ["FleximqEncoder"]

_TOPIC_BYTES_MAX: Final = FLEXIMQ_HEADER_BYTES_MAX - 10
"""A header is a map of one pair (1 byte), the key "topic" (6), the length of a str (3), a name."""


class FleximqEncoder(Encoder):
    """Encodes PUB messages. Messages whose topic does not fit a header are left out and counted."""

    def encode(
        self,
        batch: Batch,
        rows: Rows,
        *,
        order: ByteOrder,  # noqa: ARG002  (fleximq has one)
    ) -> bytes:
        """See Encoder."""
        try:
            return fleximq.encode(batch, self.context.topics, rows=rows)
        except ValueNotDeliverable:
            fitting = self.fitting = self._fitting_rows(batch, rows)
            return fleximq.encode(batch, self.context.topics, rows=fitting)

    def _fitting_rows(self, batch: Batch, rows: Rows) -> "memoryview[int]":
        """Leave out the rows whose topic is too long for a header."""
        names = self.context.topics
        given = range(len(batch)) if rows is None else rows
        topics = {batch.topic_id(row) for row in given}
        short = {topic for topic in topics if len(names.name(topic).encode()) <= _TOPIC_BYTES_MAX}
        fitting = array("I", [row for row in given if batch.topic_id(row) in short])
        self.context.counters.messages_undeliverable[FLEXIMQ] += len(given) - len(fitting)
        return memoryview(fitting)
