"""Verify every byte of a log."""

from pathlib import Path

import msgspec
import typer

from penstock.cli.common.columns import plural, size_text
from penstock.cli.common.output import quiet_pipe
from penstock.cli.common.progress import progress_bar
from penstock.cli.log.findings import NO_FAULT, finding, finding_fields
from penstock.cli.log.opening import EXIT_DAMAGED
from penstock.errors import CannotRead
from penstock.limits import LOG_OPEN_TRIES_MAX
from penstock.storage.arrow.format.damage import Damage
from penstock.storage.arrow.format.file_names import SEGMENT
from penstock.storage.arrow.read.browse import find_log
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.verify import Verified, verify

__all__ = ["verify_log"]


def verify_log(data: Path, partition: int, *, json: bool) -> None:
    """Check a log and print the findings; end with EXIT_DAMAGED if there are faults."""
    for left in reversed(range(LOG_OPEN_TRIES_MAX)):
        folder = find_log(data, partition=partition)
        try:
            verified, findings = _check(folder, partition)
            break
        except OSError as error:
            if not left or not isinstance(error, FileNotFoundError):  # retention removed it
                name = str(error.filename or folder)
                raise CannotRead(name, error.strerror or str(error)) from error
    faults = sum(each.fault not in NO_FAULT for each in findings)
    with quiet_pipe():
        if json:
            _print_json(verified, findings, faults)
        else:
            _print(verified, findings, faults)
    if faults:
        raise typer.Exit(EXIT_DAMAGED)


def _check(folder: Path, partition: int) -> tuple[Verified, list[Damage]]:

    findings: list[Damage] = []
    verified = Verified(0, 0, 0, 0)
    total = sum(path.stat().st_size for path in folder.glob(f"*{SEGMENT}"))
    with progress_bar("checking", total, unit="bytes") as progress:
        for each in verify(Overlay(), folder, partition=partition, progress=progress):
            if isinstance(each, Verified):
                verified = each
            else:
                findings.append(each)
    return verified, findings


def _print_json(verified: Verified, findings: list[Damage], faults: int) -> None:

    document = {
        "right": not faults,
        "segments": verified.segments,
        "groups": verified.row_groups,
        "messages": verified.messages,
        "bytes": verified.bytes,
        "findings": [finding_fields(each) for each in findings],
    }
    typer.echo(msgspec.json.encode(document).decode())


def _print(verified: Verified, findings: list[Damage], faults: int) -> None:

    for each in findings:
        typer.echo(finding(each))
    found = "All is right" if not faults else f"{faults} faults" if faults > 1 else "1 fault"
    segments = plural(verified.segments, "segment")
    typer.echo(
        f"{found}: {verified.messages:,} messages in {verified.row_groups:,} groups of {segments}, "
        f"{size_text(verified.bytes)}, are what was written."
    )
