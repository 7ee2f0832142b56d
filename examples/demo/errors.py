"""The error that ends the demo."""

__all__ = ["DemoFailed"]


class DemoFailed(Exception):
    """The demo cannot continue; the text says why, and what to do."""
