"""`penstock log export`: messages of a log as a Parquet file."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.columns import size_text
from penstock.cli.log_options import (
    DATA_DEFAULT,
    Data,
    From,
    Json,
    Losses,
    Partition,
    Pattern,
    To,
    find_range,
    open_view,
    topic_filter,
)
from penstock.errors import CannotExport

__all__ = ["export"]


def export(
    out: Annotated[
        Path, typer.Argument(metavar="OUT.parquet", help="The file to make.", show_default=False)
    ],
    pattern: Pattern = None,
    *,
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    start: From = "earliest",
    end: To = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Write messages to a Parquet file, with the columns that Spark sees."""
    if out.suffix != ".parquet":
        raise typer.BadParameter("its name must end in .parquet.", param_hint="OUT.parquet")
    if out.exists() and not force:
        raise CannotExport(str(out), "it is there already", "remove it, or give --force")
    wanted = topic_filter(pattern)
    view = open_view(data, partition)
    first, last = find_range(view, start, end)
    from penstock.cli.log_progress import progress_bar  # noqa: PLC0415
    from penstock.storage.arrow.read.export import export_parquet  # noqa: PLC0415
    from penstock.storage.arrow.read.records import record_batches  # noqa: PLC0415

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
        import msgspec  # noqa: PLC0415

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
