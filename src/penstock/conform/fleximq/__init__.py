"""Conformance cases of fleximq."""

from penstock.conform.fleximq.suite import SUITE

__all__ = ["SUITE"]
