"""Conformance cases of Rheos v1."""

from penstock.conform.rheos1.suite import SUITE

__all__ = ["SUITE"]
