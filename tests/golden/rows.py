"""Rows of a golden log, in a form that JSON can keep."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["row_of"]


def row_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with bytes in base 64 and times as `penstock log read --json` prints them."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value
