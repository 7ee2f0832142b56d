"""Write the messages of a log to a Parquet file."""

from pathlib import Path

import msgspec
import typer

from penstock.cli.common.columns import size_text
from penstock.cli.common.progress import progress_bar
from penstock.cli.log.opening import Losses, find_range, open_view, topic_filter
from penstock.errors import CannotExport
from penstock.storage.arrow.read.export import export_exists, export_parquet
from penstock.storage.arrow.read.records import record_batches

__all__ = ["export_messages"]


def export_messages(
    out: Path | str,
    data: Path,
    partition: int,
    *,
    pattern: str | None,
    start: str,
    end: str | None,
    force: bool,
    json: bool,
) -> None:
    """Write messages to a Parquet file, at a path or a URL, and print a summary."""
    if export_exists(out) and not force:
        raise CannotExport(str(out), "it exists already", "remove it, or give --force")
    wanted = topic_filter(pattern)
    view = open_view(data, partition)
    first, last = find_range(view, start, end)
    losses = Losses()
    with progress_bar("exporting", last - first, unit="messages") as progress:
        exported = export_parquet(
            record_batches(
                view, start=first, end=last, wanted=wanted, coalesce=True,
                damaged=losses.tell, progress=progress,
            ),
            out,
        )  # fmt: skip
    if json:
        document = {
            "file": str(out),
            **exported._asdict(),
            "start": first,
            "end": last,
            "left_out": [
                {"first_offset": each.offset, "resumes_at": each.resumes_at, "reason": each.reason}
                for each in losses.found
            ],
        }
        typer.echo(msgspec.json.encode(document).decode())
    else:
        typer.echo(f"{out}: {exported.messages:,} messages, {size_text(exported.size)}.")
    losses.exit()
