"""Open a log for reading, select topics and offsets, and report what cannot be read."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import typer

from penstock.cli.common.text import shown
from penstock.errors import CannotRead, InvalidPattern, LogDamaged
from penstock.patterns import compile_pattern
from penstock.replay import Ago, AtOffset, AtTime, Earliest, split_replay
from penstock.storage.arrow.read.browse import LogView

__all__ = ["EXIT_DAMAGED", "Losses", "Range", "find_range", "open_view", "topic_filter"]

EXIT_DAMAGED: Final = 1


class Range(NamedTuple):
    """Offsets from `start` up to `end`."""

    start: int
    end: int


class Losses:
    """Counts messages that cannot be read, and prints a line on standard error for each range."""

    def __init__(self) -> None:
        self.found: list[LogDamaged] = []

    def tell(self, error: LogDamaged) -> None:
        """Record and print a range of messages that is left out."""
        self.found.append(error)
        typer.echo(f"penstock: {error}", err=True)

    def exit(self) -> None:
        """End the command with EXIT_DAMAGED if messages were left out."""
        if self.found:
            raise typer.Exit(EXIT_DAMAGED)


def open_view(data: Path, partition: int) -> LogView:
    """Open a log for reading; raise OperatorError."""
    try:
        return LogView(data, partition=partition)
    except OSError as error:
        raise CannotRead(str(error.filename or data), error.strerror or str(error)) from error


def topic_filter(pattern: str | None) -> Callable[[str], bool] | None:
    """Return a function that matches topic names, None for all; raise typer.BadParameter."""
    if pattern is None:
        return None
    try:
        expression = compile_pattern(pattern)
    except InvalidPattern:
        raise typer.BadParameter(
            f"{shown(pattern[:200])!r} matches no topic. Use + or * for any one level, "
            "# or > at the end for the rest.",
            param_hint="PATTERN",
        ) from None
    if expression is None:
        return lambda name: name == pattern
    return lambda name: expression.fullmatch(name) is not None


def find_range(view: LogView, start: str, end: str | None) -> Range:
    """Return the offsets that --from and --to name; raise LogError or typer.BadParameter."""
    first = _offset(view, start, "--from")
    return Range(first, view.end if end is None else max(first, _offset(view, end, "--to")))


def _offset(view: LogView, text: str, option: str) -> int:
    pattern, place = split_replay(f"@#{text}" if text.isdecimal() else f"@{text}")
    match place if not pattern else None:
        case Earliest():
            return view.horizon
        case AtOffset(offset):
            return offset
        case AtTime(us):
            return view.find_time(us)
        case Ago(us):
            return view.find_time(time.time_ns() // 1000 - us)
    raise typer.BadParameter(
        f"{text!r} is no position in a log. Give earliest, an offset, a time such as "
        "2026-11-01T08:00:00Z, or -15m.",
        param_hint=option,
    )
