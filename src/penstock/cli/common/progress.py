"""A progress bar on standard error, if it is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(what: str, total: int | None, *, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the amount of work done; `unit` is "bytes" or another noun.

    `total` is None if it is not known.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  (only a terminal shows it)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    amount: list[ProgressColumn] = (
        [DownloadColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda more: progress.update(task, advance=more)
