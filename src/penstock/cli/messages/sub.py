"""The options of `penstock sub`."""

from typing import Annotated, Final

import typer

from penstock.cli.common.client_options import (
    URL_DEFAULT,
    Ca,
    Name,
    ProtocolChoice,
    Url,
    find_broker,
)
from penstock.cli.lazy_command import examples
from penstock.cli.protocol_help import MESSAGES_DEFAULT

__all__ = ["SUB_EXAMPLES", "sub"]

SUB_EXAMPLES: Final = examples(
    "penstock sub 'sensors/#'",
    "penstock sub 'orders/+' --replay 10m --json | jq .value",
    "penstock sub 'orders/#' --group billing",
    "penstock sub 7 --protocol herald --count 1 --timeout 5 --raw",
)


def sub(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN...",
            help="Topics: + or * for one level, # or > for the rest; herald: channel/7, or 7.",
        ),
    ],
    *,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    name: Name = None,
    ca: Ca = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Start in the past: earliest, 10m for 10 minutes ago, an offset, or a time.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Share the messages with the other members of this consumer group, and "
            "acknowledge those that were printed. --replay is where a new group begins.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N messages.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="End after this time.", show_default=False),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print only the values, byte for byte, each with a newline."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one object per line.")] = False,
) -> None:
    """Print messages as they arrive: topic and value, separated by a tab.

    Ends with Ctrl-C, after --count messages or --timeout seconds; with code 1 if --count was not
    reached. Characters that are not printable are escaped, except with --raw.
    """
    if raw and json:
        raise typer.BadParameter("goes without --json.", param_hint="--raw")
    from penstock.cli.messages.subscriber import print_messages  # noqa: PLC0415  (--help)

    print_messages(
        find_broker(url, protocol, default=MESSAGES_DEFAULT, name=name, ca=ca),
        patterns,
        replay=replay,
        group=group,
        count=count,
        timeout=timeout,
        raw=raw,
        json=json,
    )
