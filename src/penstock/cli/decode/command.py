"""The options of `penstock decode`."""

import enum
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import typer

from penstock.cli.lazy_command import examples
from penstock.cli.protocol_help import LABELS, PROTOCOL_CHOICE

__all__ = ["DECODE_EXAMPLES", "decode"]

AUTO: Final = "auto"

DECODE_EXAMPLES: Final = examples(
    "penstock decode session.pcap",
    "penstock decode session.bin --protocol lamamq --role server",
    "penstock decode session.pcap --json | jq -c 'select(.error)'",
    "echo 'fe ca 20 00 00 00 00' | penstock decode -",
)


class CapturedRole(enum.StrEnum):
    """The side that sent the captured bytes."""

    AUTO = "auto"
    CLIENT = "client"
    SERVER = "server"


class CapturedOrder(enum.StrEnum):
    """The byte order of herald and LamaMQ."""

    AUTO = "auto"
    LITTLE = "little"
    BIG = "big"


class CapturedForm(enum.StrEnum):
    """The file format of the capture."""

    AUTO = "auto"
    RAW = "raw"
    HEX = "hex"
    PCAP = "pcap"


_ORDERS: Final[Mapping[CapturedOrder, Literal["little", "big"]]] = {
    CapturedOrder.LITTLE: "little",
    CapturedOrder.BIG: "big",
}


def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The capture; - for standard input.")],
    *,
    protocol: Annotated[
        str,
        typer.Option(
            metavar=f"{AUTO}|{PROTOCOL_CHOICE}",
            help="The protocol; auto detects it from the first bytes.",
        ),
    ] = AUTO,
    role: Annotated[
        CapturedRole, typer.Option(help="The sender, if only one side was captured.")
    ] = CapturedRole.AUTO,
    order: Annotated[
        CapturedOrder, typer.Option(help="The byte order, if the bytes do not show it.")
    ] = CapturedOrder.AUTO,
    form: Annotated[
        CapturedForm, typer.Option("--format", help="The file format.")
    ] = CapturedForm.AUTO,
    json: Annotated[
        bool, typer.Option("--json", help="Print one object per line; bytes in hex.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="At most N frames.", show_default=False),
    ] = None,
) -> None:
    """Explain a capture: frames, their fields with offsets and values, and faults.

    Reads raw bytes, hex (plain, xxd, hexdump -C), pcap and pcapng. Ends with 1 if there are faults.
    """
    if protocol not in {AUTO, *LABELS}:
        raise typer.BadParameter(
            f"{protocol!r} is not one of {', '.join(map(repr, (AUTO, *LABELS)))}.",
            param_hint="'--protocol'",
        )
    from penstock.cli.decode.explain import explain_capture  # noqa: PLC0415  (--help stays fast)

    explain_capture(
        file,
        protocol=None if protocol == AUTO else protocol,
        from_client=None if role is CapturedRole.AUTO else role is CapturedRole.CLIENT,
        order=_ORDERS.get(order),
        form=form.value,
        json=json,
        limit=limit,
    )
