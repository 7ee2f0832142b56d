"""Rheos v1 and v2: the packets of both versions, and the cases that both have."""

from penstock.conform.rheos.encoding import RHEOS1, RHEOS2, Rheos

__all__ = ["RHEOS1", "RHEOS2", "Rheos"]
