"""How herald is recognised: by its magic number, whose order is that of all integers."""

from typing import Final

from penstock.protocols.herald import HERALD
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, by_magic

__all__ = ["DETECTION"]

_LITTLE: Final = bytes.fromhex("FECA")
_BIG: Final = bytes.fromhex("CAFE")


def _recognise(data: Buffer) -> Detected | None:
    if data[0] == _BIG[0]:
        return by_magic(data, _BIG, Detected(HERALD, "big"))
    return by_magic(data, _LITTLE, Detected(HERALD, "little"))


DETECTION: Final = Detection(_LITTLE[:1] + _BIG[:1], _recognise)
