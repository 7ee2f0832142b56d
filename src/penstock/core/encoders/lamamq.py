"""The encoder of LamaMQ."""

from penstock._kernels import lamamq
from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Encoder, Rows
from penstock.model import ByteOrder

__all__ = ["LamamqEncoder"]


class LamamqEncoder(Encoder):
    """Encodes Forwards, each with an id of the broker's."""

    def encode(
        self,
        batch: Batch,
        rows: Rows,
        *,
        order: ByteOrder,
    ) -> bytes:
        """See Encoder."""
        first = self.context.forward_ids.take(len(batch) if rows is None else len(rows))
        return lamamq.encode(
            batch, self.context.topics, order=order, rows=rows, first_message_id=first
        )
