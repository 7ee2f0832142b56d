"""How fleximq is recognised: by version 1, or by a JOIN of another version, which is refused."""

from typing import Final

from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, by_magic

__all__ = ["DETECTION"]

_VERSION: Final = 1
_JOIN: Final = bytes.fromhex("00 00000000")
"""Behind the version: the type, and the client id of a client that has none."""


def _recognise(data: Buffer) -> Detected | None:
    detected = Detected(FLEXIMQ, "big")
    if data[0] == _VERSION:
        return detected
    return by_magic(data, bytes(data[:1]) + _JOIN, detected)


DETECTION: Final = Detection(bytes((_VERSION,)), _recognise, takes_other_bytes=True)
