"""How fleximq is recognised: by version 1, type JOIN and client id 0."""

from typing import Final

from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, by_magic

__all__ = ["DETECTION"]

_JOIN: Final = bytes.fromhex("01 00 00000000")


def _recognise(data: Buffer) -> Detected | None:
    return by_magic(data, _JOIN, Detected(FLEXIMQ, "big"))


DETECTION: Final = Detection(_JOIN[:1], _recognise)
