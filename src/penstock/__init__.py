"""Penstock: one message broker for five wire protocols, an Arrow log and a Spark pipeline."""

__all__ = ["__version__"]

__version__ = "0.1.0"
