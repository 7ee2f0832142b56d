"""Decoders of both roles, brought to where messages flow."""

from penstock.model import ByteOrder
from penstock.wire import lamamq

ORDERS: tuple[ByteOrder, ByteOrder] = ("big", "little")


def open_broker(
    *awaited: int, order: ByteOrder = "big", limits: lamamq.Limits = lamamq.DEFAULT_LIMITS
) -> lamamq.BrokerDecoder:
    """A broker's decoder behind authentication and version choice."""
    decoder = lamamq.BrokerDecoder(order=order, limits=limits)
    decoder.feed(b"\x00" + (1).to_bytes(4, order) + b"n")
    assert list(decoder) == [lamamq.Authentication("n")]
    decoder.feed(b"\x01\x00")
    assert list(decoder) == [lamamq.VersionChoice(1, 0)]
    decoder.awaited.update(awaited)
    return decoder


def open_client(
    *awaited: int, order: ByteOrder = "big", limits: lamamq.Limits = lamamq.DEFAULT_LIMITS
) -> lamamq.ClientDecoder:
    """A client's decoder behind the version offer."""
    decoder = lamamq.ClientDecoder(order=order, limits=limits)
    decoder.feed(b"\x01\x00\x01\x00")
    assert list(decoder) == [lamamq.VersionOffer((1, 0), (1, 0))]
    decoder.awaited.update(awaited)
    return decoder
