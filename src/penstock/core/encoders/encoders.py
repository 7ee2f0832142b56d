"""The encoders of all protocols, each made when its first subscriber is served."""

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.audiences import Encoding
from penstock.core.counters import Counters
from penstock.core.encoders.encoder import Encoder, EncoderContext, ForwardIds, Rows
from penstock.protocols import Protocol, load

__all__ = ["Encoders"]


class Encoders:
    """Looks up the encoder of a protocol."""

    def __init__(self, topics: TopicTable, counters: Counters) -> None:
        self.forward_ids = ForwardIds()
        self._context = EncoderContext(topics, counters, self.forward_ids)
        self._encoders: dict[Protocol, Encoder] = {}
        self.encoded: Rows = None
        """The rows that were encoded last, without those that the protocol cannot carry."""

    def encode(self, encoding: Encoding, batch: Batch, rows: Rows = None) -> bytes:
        """Return the frames of `rows`."""
        encoder = self._encoders.get(encoding.protocol)
        if encoder is None:
            kind: type[Encoder] = load(encoding.protocol.encoder)
            encoder = self._encoders[encoding.protocol] = kind(self._context)
        encoder.fitting = rows
        frames = encoder.encode(batch, rows, order=encoding.order)
        self.encoded = encoder.fitting
        return frames
