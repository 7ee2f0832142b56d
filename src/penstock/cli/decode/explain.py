"""Read a capture and print its frames and faults."""

import sys
from pathlib import Path
from typing import Final, Literal

import typer

from penstock.cli.common.output import quiet_pipe
from penstock.cli.decode.report import Report
from penstock.decode import CaptureFormat, CaptureUnreadable, explain, read_capture
from penstock.limits import DECODE_CAPTURE_BYTES_MAX
from penstock.protocols import PROTOCOLS

__all__ = ["explain_capture"]

EXIT_FAULTS: Final = 1
STANDARD_INPUT: Final = "-"


def explain_capture(
    file: str,
    *,
    protocol: str | None,
    from_client: bool | None,
    order: Literal["little", "big"] | None,
    form: str,
    json: bool,
    limit: int | None,
) -> None:
    """Print a capture, at most `limit` frames; end with EXIT_FAULTS if there are faults.

    `protocol` (a label), `from_client` and `order` are detected if None.
    """
    name = "standard input" if file == STANDARD_INPUT else file
    capture = read_capture(_read(file), name=name, form=CaptureFormat(form))
    spoken = None if protocol is None else PROTOCOLS[protocol]
    report = Report(json=json)
    with quiet_pipe():
        for remark in capture.remarks:
            typer.echo(f"penstock: {name}: {remark}", err=True)
        for number, connection in enumerate(capture.connections, 1):
            for finding in explain(
                connection, number, protocol=spoken, order=order, from_client=from_client
            ):
                sys.stdout.write(report.tell(finding))
                if report.frames == limit:
                    break
            if report.frames == limit:
                break
        sys.stdout.write(report.end())
    if report.faults:
        raise typer.Exit(EXIT_FAULTS)


def _read(file: str) -> bytes:
    """Return the bytes of a file; raise CaptureUnreadable."""
    try:
        if file == STANDARD_INPUT:
            data = sys.stdin.buffer.read(DECODE_CAPTURE_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(DECODE_CAPTURE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CaptureUnreadable(file, reason, "give a file, or - for standard input") from None
    if len(data) > DECODE_CAPTURE_BYTES_MAX:
        reason = f"it has more than {DECODE_CAPTURE_BYTES_MAX} bytes"
        raise CaptureUnreadable(file, reason, "cut it, for example with editcap")
    return data
