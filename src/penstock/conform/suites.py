"""The suite of each protocol, by the protocol's label."""

import importlib

from penstock.conform.case import Suite

__all__ = ["suite"]


def suite(label: str) -> Suite:
    """Return the suite of the protocol with this label; raise ModuleNotFoundError if unknown."""
    found: Suite = importlib.import_module(f"penstock.conform.{label}").SUITE
    return found
