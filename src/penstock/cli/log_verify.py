"""`penstock log verify`: whether all of a log is what was written."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.columns import plural, size_text
from penstock.cli.log_options import (
    DATA_DEFAULT,
    EXIT_DAMAGED,
    Data,
    Json,
    Partition,
    quiet_pipe,
)
from penstock.errors import CannotRead

if TYPE_CHECKING:
    from penstock.storage.arrow.format.damage import Damage
    from penstock.storage.arrow.recover.verify import Verified

__all__ = ["verify"]


def verify(*, data: Data = DATA_DEFAULT, partition: Partition = 0, json: Json = False) -> None:
    """Check every byte of a log; end with 1 if something is wrong, and a line for each finding.

    What is being written at the moment, and gaps that the log itself declares, are no faults.
    """
    from penstock.cli.log_findings import NO_FAULT  # noqa: PLC0415  (so that --help starts fast)
    from penstock.limits import LOG_OPEN_TRIES_MAX  # noqa: PLC0415
    from penstock.storage.arrow.read.browse import find_log  # noqa: PLC0415

    for left in reversed(range(LOG_OPEN_TRIES_MAX)):
        folder = find_log(data, partition=partition)
        try:
            verified, findings = _check(folder, partition)
            break
        except OSError as error:
            if not left or not isinstance(error, FileNotFoundError):  # retention goes on meanwhile
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


def _check(folder: Path, partition: int) -> "tuple[Verified, list[Damage]]":
    from penstock.cli.log_progress import progress_bar  # noqa: PLC0415
    from penstock.storage.arrow.format.file_names import SEGMENT  # noqa: PLC0415
    from penstock.storage.arrow.recover.overlay import Overlay  # noqa: PLC0415
    from penstock.storage.arrow.recover.verify import Verified  # noqa: PLC0415
    from penstock.storage.arrow.recover.verify import verify as check  # noqa: PLC0415

    findings: list[Damage] = []
    verified = Verified(0, 0, 0, 0)
    total = sum(path.stat().st_size for path in folder.glob(f"*{SEGMENT}"))
    with progress_bar("checking", total, unit="bytes") as progress:
        for each in check(Overlay(), folder, partition=partition, progress=progress):
            if isinstance(each, Verified):
                verified = each
            else:
                findings.append(each)
    return verified, findings


def _print_json(verified: "Verified", findings: "list[Damage]", faults: int) -> None:
    import msgspec  # noqa: PLC0415

    from penstock.cli.log_findings import finding_fields  # noqa: PLC0415

    document = {
        "right": not faults,
        "segments": verified.segments,
        "groups": verified.row_groups,
        "messages": verified.messages,
        "bytes": verified.bytes,
        "findings": [finding_fields(each) for each in findings],
    }
    typer.echo(msgspec.json.encode(document).decode())


def _print(verified: "Verified", findings: "list[Damage]", faults: int) -> None:
    from penstock.cli.log_findings import finding  # noqa: PLC0415

    for each in findings:
        typer.echo(finding(each))
    found = "All is right" if not faults else f"{faults} faults" if faults > 1 else "1 fault"
    segments = plural(verified.segments, "segment")
    typer.echo(
        f"{found}: {verified.messages:,} messages in {verified.row_groups:,} groups of {segments}, "
        f"{size_text(verified.bytes)}, are what was written."
    )
