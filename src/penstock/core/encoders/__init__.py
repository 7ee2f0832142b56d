"""Encoders: rows of a batch as the frames that subscribers of a protocol receive."""

from penstock.core.encoders.encoder import Encoder, EncoderContext, Rows
from penstock.core.encoders.encoders import Encoders

__all__ = ["Encoder", "EncoderContext", "Encoders", "Rows"]
