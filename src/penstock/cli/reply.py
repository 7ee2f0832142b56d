"""`penstock reply`: answer requests with a value, with themselves, or by a command."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import (
    URL_DEFAULT,
    Ca,
    ProtocolChoice,
    Url,
    client_errors,
    examples,
)
from penstock.cli.log_options import quiet_pipe
from penstock.cli.req import requests_broker
from penstock.cli.req_payload import As, Form, payload_of
from penstock.limits import REPLY_COMMANDS_MAX

if TYPE_CHECKING:
    from penstock.cli.reply_command import Answer

__all__ = ["REPLY_EXAMPLES", "reply"]


REPLY_EXAMPLES: Final = examples(
    "penstock reply /health ok",
    "penstock reply /upper --exec 'tr a-z A-Z'",
    "penstock reply /mean --exec 'jq \"add / length\"' --as json",
)


def reply(
    path: Annotated[str, typer.Argument(metavar="PATH", help="What is asked, such as /mean.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="The answer to every request.", show_default=False),
    ] = None,
    *,
    echo: Annotated[bool, typer.Option("--echo", help="Answer with the request.")] = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Answer with what a command prints; the request is its standard input.",
            show_default=False,
        ),
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Have /bin/sh read CMD; else no shell does.")
    ] = False,
    parallel: Annotated[
        int,
        typer.Option(
            min=1, max=REPLY_COMMANDS_MAX, metavar="N", help="Commands that run at a time."
        ),
    ] = 4,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001, metavar="SECONDS", help="How long a command may take; then it is killed."
        ),
    ] = 10.0,
    form: As = Form.BYTES,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N answers.", show_default=False),
    ] = None,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    ca: Ca = None,
    json: Annotated[bool, typer.Option("--json", help="Print one object a line.")] = False,
) -> None:
    """Answer requests until Ctrl-C, and print them. Of the five protocols fleximq has requests.

    Requests go to a client by its id, which is told first. A command that ends with another code
    than 0 answers with status 500, one that takes too long with 504. It finds who asks in
    PENSTOCK_REQUEST_SENDER. A request that is neither bytes nor text is given to it as JSON.
    """
    if (value is not None) + echo + (command is not None) != 1:
        raise typer.BadParameter("give one of VALUE, --echo and --exec.", param_hint="VALUE")
    if shell and command is None:
        raise typer.BadParameter("is for --exec.", param_hint="--shell")
    broker = requests_broker(url, protocol, ca=ca, operation="reply")
    import asyncio  # noqa: PLC0415  (so that --help starts fast)

    from penstock.cli.reply_command import Command  # noqa: PLC0415
    from penstock.cli.reply_service import Constant, Service, echoed  # noqa: PLC0415

    answer: Answer = echoed
    if command is not None:
        answer = Command(command, shell=shell, parallel=parallel, seconds_max=timeout, form=form)
    elif value is not None:
        answer = Constant(payload_of(os.fsencode(value), form))
    with quiet_pipe(), client_errors(broker):
        asyncio.run(Service(broker, path, answer, count=count, json=json).run())
