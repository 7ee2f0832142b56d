"""The suite of each protocol, by the protocol's label."""

from penstock.conform.case import Suite
from penstock.protocols import PROTOCOLS, load

__all__ = ["suite"]


def suite(label: str) -> Suite:
    """Return the suite of the protocol with this label; raise KeyError if unknown."""
    found: Suite = load(PROTOCOLS[label].conform)
    return found
