"""List the segments of a log."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from penstock.cli.common.columns import plural, print_columns, size_text
from penstock.cli.common.output import quiet_pipe, time_text
from penstock.cli.common.progress import progress_bar
from penstock.cli.common.text import shown
from penstock.cli.log.findings import finding, finding_fields
from penstock.cli.log.opening import EXIT_DAMAGED, Losses, open_view
from penstock.storage.arrow.read.browse import LogView, SegmentView
from penstock.storage.arrow.read.records import TopicCount, count_topics

__all__ = ["list_segments"]


def list_segments(data: Path, partition: int, *, topics: bool, json: bool) -> None:
    """Print the segments of a log and their known faults, and its topics if asked for."""
    view = open_view(data, partition)
    losses = Losses()
    with quiet_pipe():
        segments = []
        for segment in view.segments:
            with contextlib.suppress(FileNotFoundError):  # retention removed it
                segments.append(view.describe(segment))
        counts = _count(view, segments, losses) if topics else None
        if json:
            _print_json(view, segments, counts)
        else:
            _print(view, segments, counts)
    if view.damage or losses.found:
        raise typer.Exit(EXIT_DAMAGED)


def _count(view: LogView, segments: Sequence[SegmentView], losses: Losses) -> dict[str, TopicCount]:

    total = sum(segment.messages for segment in segments)
    with progress_bar("counting", total, unit="messages") as progress:
        return count_topics(view, damaged=losses.tell, progress=progress)


def _print_json(
    view: LogView,
    segments: Sequence[SegmentView],
    counts: dict[str, TopicCount] | None,
) -> None:

    document: dict[str, Any] = {
        "log_id": f"{view.log_id:012x}",
        "partition": view.partition,
        "folder": str(view.folder),
        "horizon": view.horizon,
        "end": view.end,
        "messages": sum(segment.messages for segment in segments),
        "size": sum(segment.size for segment in segments),
        "segments": [
            {
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "messages": segment.messages,
                "groups": segment.row_groups,
                "size": segment.size,
                "first": None if segment.first_us is None else time_text(segment.first_us),
                "last": None if segment.last_us is None else time_text(segment.last_us),
                "sealed": segment.sealed,
                "damage": len(segment.damage),
            }
            for segment in segments
        ],
        "damage": [finding_fields(each) for each in view.damage],
    }
    if counts is not None:
        document["topics"] = [
            {"topic": name, "groups": each.row_groups, "messages": each.messages}
            for name, each in counts.items()
        ]
    typer.echo(msgspec.json.encode(document).decode())


def _print(
    view: LogView,
    segments: Sequence[SegmentView],
    counts: dict[str, TopicCount] | None,
) -> None:

    rows = [("BASE", "END", "MESSAGES", "GROUPS", "SIZE", "FIRST", "LAST", "STATE")]
    for segment in segments:
        state = "sealed" if segment.sealed else "active"
        if segment.damage:
            state += ", damaged"
        numbers = (segment.base_offset, segment.end_offset, segment.messages, segment.row_groups)
        times = (time_text(segment.first_us), time_text(segment.last_us))
        rows.append((*map(str, numbers), size_text(segment.size), *times, state))  # type: ignore[arg-type]
    if segments:
        print_columns(rows, left=3)
    if counts is not None:
        table = [("MESSAGES", "GROUPS", "TOPIC")]
        table += [
            (str(each.messages), str(each.row_groups), shown(name)) for name, each in counts.items()
        ]
        typer.echo()
        print_columns(table, left=1)
        typer.echo()
    for each in view.damage:
        typer.echo(finding(each))
    total = sum(segment.messages for segment in segments)
    size = sum(segment.size for segment in segments)
    typer.echo(
        f"{plural(len(segments), 'segment')}, {plural(total, 'message')}, {size_text(size)}; "
        f"offsets {view.horizon} up to {view.end}; log {view.log_id:012x}, "
        f"partition {view.partition}"
    )
