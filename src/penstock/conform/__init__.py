"""Conformance cases for any server of the five protocols, and the runner that reports on them."""

from penstock.conform.case import Case, Setup, Suite
from penstock.conform.runner import Outcome, Result, run
from penstock.conform.suites import suite

__all__ = ["Case", "Outcome", "Result", "Setup", "Suite", "run", "suite"]
