"""The encoders of Rheos v1 and v2."""

from penstock._kernels import rheos1, rheos2
from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Encoder, Rows
from penstock.model import ByteOrder

__all__ = ["Rheos1Encoder", "Rheos2Encoder"]


class Rheos1Encoder(Encoder):
    """Encodes Response Packets."""

    def encode(
        self,
        batch: Batch,
        rows: Rows,
        *,
        order: ByteOrder,  # noqa: ARG002  (Rheos has one)
    ) -> bytes:
        """See Encoder."""
        return rheos1.encode(batch, self.context.topics, rows=rows)


class Rheos2Encoder(Encoder):
    """Encodes PUBLISH event packets."""

    def encode(
        self,
        batch: Batch,
        rows: Rows,
        *,
        order: ByteOrder,  # noqa: ARG002  (Rheos has one)
    ) -> bytes:
        """See Encoder."""
        return rheos2.encode(batch, self.context.topics, rows=rows)
