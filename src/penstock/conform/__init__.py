"""Conformance cases for any server of the five protocols, and the run that reports on them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.conform import fleximq, herald, lamamq, rheos1, rheos2
from penstock.conform.case import Case
from penstock.conform.runner import Outcome, Result, run

__all__ = ["CASES", "Case", "Outcome", "Result", "run"]

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
