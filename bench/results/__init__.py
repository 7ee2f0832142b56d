"""Measured figures, each with date, commit and machine."""

from bench.results.files import FOLDER, load, save

__all__ = ["FOLDER", "load", "save"]
