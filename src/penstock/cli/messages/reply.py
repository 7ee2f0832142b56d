"""The options of `penstock reply`."""

from typing import Annotated, Final

import typer

from penstock.cli.common.client_options import URL_DEFAULT, Ca, ProtocolChoice, Url
from penstock.cli.lazy_command import examples
from penstock.cli.messages.request_options import As, Form, find_request_broker
from penstock.limits import REPLY_COMMANDS_MAX

__all__ = ["REPLY_EXAMPLES", "reply"]

REPLY_EXAMPLES: Final = examples(
    "penstock reply /health ok",
    "penstock reply /upper --exec 'tr a-z A-Z'",
    "penstock reply /mean --exec 'jq \"add / length\"' --as json",
)


def reply(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path to answer, such as /mean.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="The reply to every request.", show_default=False),
    ] = None,
    *,
    echo: Annotated[bool, typer.Option("--echo", help="Reply with the request itself.")] = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Reply with the output of a command; the request is its standard input.",
            show_default=False,
        ),
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Run CMD with /bin/sh; by default no shell is used.")
    ] = False,
    parallel: Annotated[
        int,
        typer.Option(
            min=1, max=REPLY_COMMANDS_MAX, metavar="N", help="Commands that run at the same time."
        ),
    ] = 4,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, metavar="SECONDS", help="Kill a command after this time."),
    ] = 10.0,
    form: As = Form.BYTES,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N replies.", show_default=False),
    ] = None,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    ca: Ca = None,
    json: Annotated[bool, typer.Option("--json", help="Print one object per line.")] = False,
) -> None:
    """Serve a path by name until Ctrl-C, and print its requests. Only fleximq has requests.

    The first line shows the client id, by which the path can be asked too. A command that fails
    replies with status 500, one that takes too long with 504. PENSTOCK_REQUEST_SENDER has the id of
    the requester. A request that is neither bytes nor text is passed to the command as JSON.
    """
    if (value is not None) + echo + (command is not None) != 1:
        raise typer.BadParameter("give one of VALUE, --echo and --exec.", param_hint="VALUE")
    if shell and command is None:
        raise typer.BadParameter("is for --exec.", param_hint="--shell")
    broker = find_request_broker(url, protocol, ca=ca, operation="reply")
    from penstock.cli.messages.reply_command import Command  # noqa: PLC0415  (--help stays fast)
    from penstock.cli.messages.reply_service import (  # noqa: PLC0415
        Constant,
        echo_request,
        run_service,
    )

    answer = (
        Command(command, shell=shell, parallel=parallel, seconds_max=timeout, form=form)
        if command is not None
        else echo_request
        if value is None
        else Constant(value, form)
    )
    run_service(broker, path, answer, count=count, json=json)
