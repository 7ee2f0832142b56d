"""Conformance cases for any server of the five protocols, and the run that reports on them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.conform import fleximq, herald, lamamq, rheos1, rheos2
from penstock.conform.case import Case
from penstock.conform.fleximq_peer import joined
from penstock.conform.runner import Outcome, Result, run
from penstock.conform.stage import Stage

__all__ = ["CASES", "ENTRIES", "Case", "Outcome", "Result", "run"]

CASES: Final[Mapping[str, tuple[Case, ...]]] = MappingProxyType(
    {
        "rheos1": rheos1.CASES,
        "rheos2": rheos2.CASES,
        "fleximq": fleximq.CASES,
        "herald": herald.CASES,
        "lamamq": lamamq.CASES,
    }
)
"""The cases by the label of their protocol."""

ENTRIES: Final[Mapping[str, Callable[[Stage], object]]] = MappingProxyType(
    {
        "rheos1": rheos1.enter,
        "rheos2": rheos2.enter,
        "fleximq": joined,
        "herald": herald.publisher,
        "lamamq": lamamq.enter,
    }
)
"""How a client is let in, by the same labels; raises Skipped where it is refused."""
