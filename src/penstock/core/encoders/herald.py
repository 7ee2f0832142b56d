"""The encoder of herald."""

from array import array
from typing import Final

from penstock._kernels import herald
from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Encoder, Rows
from penstock.errors import ValueNotDeliverable
from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD, HERALD_PAYLOAD_BYTES_MAX

__all__ = ["HeraldEncoder"]

_NO_ROUTES: Final = array("I")
_VALUE_BYTES_MAX: Final = HERALD_PAYLOAD_BYTES_MAX - 9


class HeraldEncoder(Encoder):
    """Encodes MESSAGE frames. Values that no MESSAGE can carry are left out and counted."""

    def encode(self, batch: Batch, rows: Rows, *, order: ByteOrder) -> bytes:
        """See Encoder."""
        topics = self.context.topics
        try:
            return herald.encode(batch, topics, order=order, rows=rows)
        except ValueNotDeliverable:
            fitting = self.fitting = self._fitting_rows(batch, rows)
            return herald.encode(batch, topics, order=order, rows=fitting)

    def _fitting_rows(self, batch: Batch, rows: Rows) -> "memoryview[int]":
        """Leave out the rows whose values are too long; see docs/decisions/0004."""
        fitting = batch.select(_NO_ROUTES, None, value_bytes_max=_VALUE_BYTES_MAX)
        count = len(batch)
        if rows is not None:
            count = len(rows)
            fitting = memoryview(array("I", sorted(set(rows).intersection(fitting))))
        self.context.counters.messages_undeliverable[HERALD] += count - len(fitting)
        return fitting
