"""The line of a page that says what is shown, or why nothing is."""

from nicegui import ui

__all__ = ["Note"]


class Note:
    """A line of text; a failure is shown as one, and read out by screen readers."""

    def __init__(self) -> None:
        self._label = ui.label("").classes("note-line trouble muted").props('aria-live="polite"')

    def say(self, text: str) -> None:
        """Show what there is to know."""
        self._label.classes(replace="note-line trouble muted").props(remove="role")
        self._label.set_text(text)

    def fail(self, text: str) -> None:
        """Show what went wrong."""
        self._label.classes(replace="note-line trouble failed").props("role=alert")
        self._label.set_text(text)
