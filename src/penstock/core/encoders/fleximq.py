"""The encoder of fleximq."""

from penstock._kernels import fleximq
from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Encoder, Rows
from penstock.model import ByteOrder

__all__ = ["FleximqEncoder"]


class FleximqEncoder(Encoder):
    """Encodes PUB messages."""

    def encode(
        self,
        batch: Batch,
        rows: Rows,
        *,
        order: ByteOrder,  # noqa: ARG002  (fleximq has one)
        wanted: bytes | None,  # noqa: ARG002
    ) -> bytes:
        """See Encoder."""
        return fleximq.encode(batch, self.context.topics, rows=rows)
