"""Penstock: one message broker for five wire protocols, an Arrow log and a Spark pipeline."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import connect, connect_sync

__all__ = ["__version__", "connect", "connect_sync"]

__version__ = "0.1.0"

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load the client when it is asked for: importing the package costs nothing."""
        if name not in ("connect", "connect_sync"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from penstock import client  # noqa: PLC0415

        return getattr(client, name)
