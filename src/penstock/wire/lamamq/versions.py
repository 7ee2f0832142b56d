"""The protocol versions Penstock speaks."""

from typing import Final

from penstock.wire.lamamq.packets import VersionChoice, VersionOffer

__all__ = ["VERSIONS_OFFERED", "accepts"]

VERSIONS_OFFERED: Final = VersionOffer(maximum=(1, 0), minimum=(1, 0))


def accepts(choice: VersionChoice) -> bool:
    """Tell whether `choice` lies within what the broker offers."""
    version = (choice.major, choice.minor)
    return VERSIONS_OFFERED.minimum <= version <= VERSIONS_OFFERED.maximum
