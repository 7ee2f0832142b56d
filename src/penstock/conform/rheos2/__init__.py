"""Conformance cases of Rheos v2."""

from penstock.conform.rheos2.suite import SUITE

__all__ = ["SUITE"]
