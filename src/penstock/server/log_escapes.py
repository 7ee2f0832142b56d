"""Control characters in log events: names and topics of clients cannot forge lines."""

from collections.abc import MutableMapping
from typing import Any

__all__ = ["escape_controls"]


def escape_controls(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    r"""Escape characters that are not printable in all values (`\x1b`); a processor of structlog.

    Line ends of a traceback are left to the renderer, which writes them as `\n`.
    """
    for key, value in event.items():
        if isinstance(value, bool | int | float) or value is None:
            continue
        text = str(value)
        if not text.isprintable():
            event[key] = "".join(
                character
                if character.isprintable() or (character == "\n" and key == "exception")
                else character.encode("unicode_escape", "backslashreplace").decode()
                for character in text
            )
    return event
