"""`penstock decode`: a capture, explained frame by frame and field by field."""

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from penstock.cli.client_options import examples
from penstock.cli.log_options import quiet_pipe
from penstock.limits import DECODE_CAPTURE_BYTES_MAX

if TYPE_CHECKING:
    from penstock.decode import Connection, Finding

__all__ = ["DECODE_EXAMPLES", "decode"]

EXIT_FAULTS: Final = 1
STANDARD_INPUT: Final = "-"

DECODE_EXAMPLES: Final = examples(
    "penstock decode session.pcap",
    "penstock decode session.bin --protocol lamamq --role server",
    "penstock decode session.pcap --json | jq -c 'select(.error)'",
    "echo 'fe ca 20 00 00 00 00' | penstock decode -",
)


class Spoken(enum.StrEnum):
    """Protocols by their labels."""

    AUTO = "auto"
    RHEOS1 = "rheos1"
    RHEOS2 = "rheos2"
    FLEXIMQ = "fleximq"
    HERALD = "herald"
    LAMAMQ = "lamamq"


class CapturedRole(enum.StrEnum):
    """Who sent what was captured."""

    AUTO = "auto"
    CLIENT = "client"
    SERVER = "server"


class CapturedOrder(enum.StrEnum):
    """The byte order of herald and LamaMQ."""

    AUTO = "auto"
    LITTLE = "little"
    BIG = "big"


class CapturedForm(enum.StrEnum):
    """How the file holds the capture."""

    AUTO = "auto"
    RAW = "raw"
    HEX = "hex"
    PCAP = "pcap"


def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The capture; - is standard input.")],
    *,
    protocol: Annotated[
        Spoken, typer.Option(help="The protocol; the first bytes tell it without this.")
    ] = Spoken.AUTO,
    role: Annotated[
        CapturedRole, typer.Option(help="Who sent it, where only one side was captured.")
    ] = CapturedRole.AUTO,
    order: Annotated[
        CapturedOrder, typer.Option(help="The byte order, where the bytes do not tell it.")
    ] = CapturedOrder.AUTO,
    form: Annotated[
        CapturedForm, typer.Option("--format", help="How the file holds the capture.")
    ] = CapturedForm.AUTO,
    json: Annotated[
        bool, typer.Option("--json", help="Print one object a line; bytes in hex.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="At most so many frames.", show_default=False),
    ] = None,
) -> None:
    """Explain a capture: frames, their fields with offsets and values, and what is wrong.

    Raw bytes, hex (plain, xxd, hexdump -C), pcap and pcapng are read. Ends with 1 if anything is
    wrong with what was decoded.
    """
    from penstock.cli.decode_text import Report  # noqa: PLC0415  (so that --help starts fast)
    from penstock.decode import CaptureFormat, read_capture  # noqa: PLC0415

    name = "standard input" if file == STANDARD_INPUT else file
    capture = read_capture(_read(file), name=name, form=CaptureFormat(form.value))
    report = Report(json=json)
    with quiet_pipe():
        for remark in capture.remarks:
            typer.echo(f"penstock: {name}: {remark}", err=True)
        for number, connection in enumerate(capture.connections, 1):
            for finding in _findings(connection, number, protocol, role, order):
                sys.stdout.write(report.tell(finding))
                if report.frames == limit:
                    break
            if report.frames == limit:
                break
        sys.stdout.write(report.end())
    if report.faults:
        raise typer.Exit(EXIT_FAULTS)


def _findings(
    connection: "Connection",
    number: int,
    protocol: Spoken,
    role: CapturedRole,
    order: CapturedOrder,
) -> "Iterator[Finding]":
    from penstock.decode import explain  # noqa: PLC0415
    from penstock.protocols import PROTOCOLS  # noqa: PLC0415

    spoken = None if protocol is Spoken.AUTO else PROTOCOLS[protocol.value]
    orders: dict[CapturedOrder, Literal["little", "big"]] = {
        CapturedOrder.LITTLE: "little",
        CapturedOrder.BIG: "big",
    }
    from_client = None if role is CapturedRole.AUTO else role is CapturedRole.CLIENT
    return explain(
        connection, number, protocol=spoken, order=orders.get(order), from_client=from_client
    )


def _read(file: str) -> bytes:
    """Return the bytes of a file; raise CaptureUnreadable."""
    from penstock.decode import CaptureUnreadable  # noqa: PLC0415

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
