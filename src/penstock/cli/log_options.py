"""What the `log` commands have in common: their options, ranges of offsets, and how they end."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from penstock.cli.log_text import shown
from penstock.errors import CannotRead, InvalidPattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.errors import LogDamaged
    from penstock.storage.arrow.read.browse import LogView

__all__ = [
    "DATA_DEFAULT",
    "EXIT_DAMAGED",
    "Data",
    "From",
    "Json",
    "Losses",
    "Partition",
    "Pattern",
    "Range",
    "To",
    "find_range",
    "open_view",
    "quiet_pipe",
    "time_text",
    "topic_filter",
]

DATA_DEFAULT: Final = Path("penstock-data")
EXIT_DAMAGED: Final = 1

Data = Annotated[
    Path,
    typer.Option(metavar="DIR", help="The broker's data folder.", envvar="PENSTOCK_DATA__FOLDER"),
]
Partition = Annotated[int, typer.Option(min=0, max=4095, help="The partition.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Pattern = Annotated[
    str | None,
    typer.Argument(
        metavar="PATTERN",
        help="Topics, with wildcards as in a subscription; all without it.",
        show_default=False,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="The first message: earliest, an offset, a time, or -15m for as long ago.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="WHERE",
        help="End before this offset or time; with the last message without it.",
        show_default=False,
    ),
]


class Range(NamedTuple):
    """Offsets from `start` up to `end`."""

    start: int
    end: int


class Losses:
    """Messages that cannot be read: told on standard error, a line each, and counted."""

    def __init__(self) -> None:
        self.found: list[LogDamaged] = []

    def tell(self, error: "LogDamaged") -> None:
        """Take note of messages that are left out."""
        self.found.append(error)
        typer.echo(f"penstock: {error}", err=True)

    def exit(self) -> None:
        """End the command with EXIT_DAMAGED if there were any."""
        if self.found:
            raise typer.Exit(EXIT_DAMAGED)


def open_view(data: Path, partition: int) -> "LogView":
    """Open a log to look at; raise OperatorError."""
    from penstock.storage.arrow.read.browse import LogView  # noqa: PLC0415  (so that --help starts fast)

    try:
        return LogView(data, partition=partition)
    except OSError as error:
        raise CannotRead(str(error.filename or data), error.strerror or str(error)) from error


def topic_filter(pattern: str | None) -> "Callable[[str], bool] | None":
    """Return what tells whether a topic is wanted, None if all are; raise typer.BadParameter."""
    from penstock.patterns import compile_pattern  # noqa: PLC0415

    if pattern is None:
        return None
    try:
        expression = compile_pattern(pattern)
    except InvalidPattern:
        raise typer.BadParameter(
            f"no topic can be meant by {shown(pattern[:200])!r}. Levels are + or * for any one, "
            "# or > at the end for the rest.",
            param_hint="PATTERN",
        ) from None
    if expression is None:
        return lambda name: name == pattern
    return lambda name: expression.fullmatch(name) is not None


def find_range(view: "LogView", start: str, end: str | None) -> Range:
    """Return the offsets that --from and --to mean; raise LogError or typer.BadParameter."""
    first = _offset(view, start, "--from")
    return Range(first, view.end if end is None else max(first, _offset(view, end, "--to")))


def _offset(view: "LogView", text: str, option: str) -> int:
    from penstock.replay import Ago, AtOffset, AtTime, Earliest, split_replay  # noqa: PLC0415

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
        f"{text!r} is no place in a log. Give earliest, an offset, a time such as "
        "2026-11-01T08:00:00Z, or -15m.",
        param_hint=option,
    )


def time_text(us: int | None) -> str:
    """Return a time as text, in UTC."""
    if us is None:
        return "-"
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@contextlib.contextmanager
def quiet_pipe() -> Iterator[None]:
    """End quietly when whoever reads the output has enough of it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
