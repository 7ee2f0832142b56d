"""How LamaMQ is recognised: by authentication method 0. The length of the name tells the order."""

from typing import Final

from penstock.protocols.lamamq import LAMAMQ, LAMAMQ_IDENTITY_NAME_BYTES_MAX
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection

__all__ = ["DETECTION"]


def _recognise(data: Buffer) -> Detected | None:
    # The limit is below 64 KiB: no length but zero is plausible in both orders. A name that is
    # empty or too long in both is refused by the codec, in network order.
    length = bytes(data[1:5])
    for size in range(1, len(length) + 1):
        big_least = int.from_bytes(length[:size].ljust(4, b"\0"), "big")
        little_least = int.from_bytes(length[:size], "little")
        if min(big_least, little_least) > LAMAMQ_IDENTITY_NAME_BYTES_MAX:
            return Detected(LAMAMQ, "big")
    if len(length) < 4:
        return None
    big = int.from_bytes(length, "big") <= LAMAMQ_IDENTITY_NAME_BYTES_MAX
    return Detected(LAMAMQ, "big" if big else "little")


DETECTION: Final = Detection(b"\x00", _recognise)
