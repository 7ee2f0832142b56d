"""The options of `penstock pub`."""

from typing import Annotated, Final

import typer

from penstock.cli.common.client_options import (
    URL_DEFAULT,
    Ca,
    Name,
    ProtocolChoice,
    Timeout,
    Url,
    find_broker,
)
from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples
from penstock.cli.protocol_help import MESSAGES_DEFAULT

__all__ = ["PUB_EXAMPLES", "pub"]

Value = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE|-",
        help="The value; - or none for standard input.",
        show_default=False,
    ),
]

PUB_EXAMPLES: Final = examples(
    "penstock pub sensors/17/temp 21.5",
    "penstock pub orders - --header source=shop < order.json",
    "tail -f app.log | penstock pub logs/app --lines --url fleximq://127.0.0.1:7000",
    "penstock pub alarms high --protocol rheos2 --create --json",
    "penstock pub orders - --dedupe order-1001 < order.json",
)


def pub(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic; herald: channel/7, or 7.")
    ],
    value: Value = None,
    *,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    name: Name = None,
    ca: Ca = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A header (LamaMQ); may be repeated.", show_default=False
        ),
    ] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="A key (LamaMQ, fleximq): a second message with it is not stored.",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of standard input as a message.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Send the value N times.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="R", help="At most R messages a second.", show_default=False
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic first (Rheos), if it does not exist.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="herald and fleximq: ping the broker to learn whether a message was refused.",
        ),
    ] = True,
    timeout: Timeout = 30.0,
    json: Json = False,
) -> None:
    """Publish a value to a topic, and end when the broker has it.

    Rheos and LamaMQ acknowledge each message, and Rheos returns its id. herald and fleximq do not
    acknowledge: there a ping after the messages shows whether one was refused.
    """
    if lines and (value not in {None, "-"} or count > 1):
        raise typer.BadParameter(
            "takes its messages from standard input; leave out VALUE and --count.",
            param_hint="--lines",
        )
    if dedupe is not None and (lines or count > 1):
        raise typer.BadParameter(
            "is the key of one message; leave out --lines and --count.", param_hint="--dedupe"
        )
    from penstock.cli.messages.publisher import publish  # noqa: PLC0415  (--help stays fast)

    publish(
        find_broker(url, protocol, default=MESSAGES_DEFAULT, name=name, ca=ca, timeout=timeout),
        topic,
        value,
        headers=header or (),
        dedupe=dedupe,
        lines=lines,
        count=count,
        rate=rate,
        create=create,
        wait=wait,
        json=json,
    )
