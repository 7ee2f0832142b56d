"""What ends the demo."""

__all__ = ["DemoFailed"]


class DemoFailed(Exception):
    """The story cannot go on; its text says why, and what to do."""
