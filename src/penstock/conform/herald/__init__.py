"""Conformance cases of herald."""

from penstock.conform.herald.suite import SUITE

__all__ = ["SUITE"]
