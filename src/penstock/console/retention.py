"""How long messages are kept, in words."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.console.text import bytes_text, duration_text

__all__ = ["retention_text"]


def retention_text(log: Mapping[str, Any], now: float) -> str:
    """Return which messages of an answer of `/api/log` are kept, and which bound removes them."""
    if not log["kept"]:
        return "Messages are not kept: this broker has no log."
    if log["kind"] == "kafka":
        return "Messages of all topics are kept as long as the settings of the topic in Kafka say."
    age, size = log["retention"]["age_seconds_max"], log["retention"]["bytes_max"]
    if age is None and size is None:
        return "Messages of all topics are kept for good: neither an age nor a size is set."
    if size is None:
        return f"Messages of all topics are kept for {duration_text(age)}."
    if age is None:
        return f"Messages of all topics are kept until the log has {bytes_text(size)}."
    text = f"Messages of all topics are kept for {duration_text(age)}, {bytes_text(size)} at most"
    return f"{text}: at the moment the {_nearer(log, age, size, now)} is the nearer bound."


def _nearer(log: Mapping[str, Any], age: float, size: int, now: float) -> str:
    """Return which of two bounds is used more."""
    oldest = log["segments"][0]["last_time"] if log["segments"] else None
    held = 0.0 if oldest is None else now - datetime.fromisoformat(oldest).timestamp()
    return "size" if log["bytes"] / size >= held / age else "age"
