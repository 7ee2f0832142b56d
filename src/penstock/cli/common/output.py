"""Output of commands: lines, JSON, and messages on standard error."""

import base64
import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from penstock.cli.common.text import printable, text_of

__all__ = [
    "Json",
    "Raw",
    "json_line",
    "line_of",
    "quiet_pipe",
    "sum_up",
    "tell",
    "time_text",
    "value_fields",
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Print the reply byte for byte, without a newline.")
]


@contextlib.contextmanager
def quiet_pipe() -> Iterator[None]:
    """End the command without an error when the reader of its output closes the pipe."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def value_fields(value: bytes) -> dict[str, str]:
    """Return a value for JSON: its text, or base64 with `encoding` if it is not UTF-8."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(value).decode(), "encoding": "base64"}


def line_of(payload: object, *, raw: bool) -> bytes:
    """Return a payload as a line: bytes and text escaped, all else as JSON.

    With `raw`, nothing is escaped and no newline is added.
    """
    if isinstance(payload, str):
        payload = payload.encode()
    if isinstance(payload, bytes):
        return payload if raw else text_of(payload).encode() + b"\n"
    line = b"\n" if payload is None else json_line(payload)
    return line[:-1] if raw else line


def json_line(document: object) -> bytes:
    """Return a document as one line of JSON; values without a JSON form become text."""
    return msgspec.json.encode(document, enc_hook=str) + b"\n"


def time_text(us: int | None) -> str:
    """Return a time in microseconds as text, in UTC; `-` if there is none."""
    if us is None:
        return "-"
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def sum_up(text: str) -> None:
    """Print the summary of an interrupted command, below the ^C of a terminal."""
    sys.stderr.write(f"\n{text}\n" if sys.stderr.isatty() else f"{text}\n")


def tell(text: str) -> None:
    """Print a message on standard error."""
    sys.stderr.write(f"penstock: {printable(' '.join(text.split()))}\n")
    sys.stderr.flush()
