"""Conformance cases of LamaMQ."""

from penstock.conform.lamamq.suite import SUITE

__all__ = ["SUITE"]
