"""The options of `penstock req`."""

from typing import Annotated, Final

import typer

from penstock.cli.common.client_options import URL_DEFAULT, Ca, ProtocolChoice, Timeout, Url
from penstock.cli.common.output import Json, Raw
from penstock.cli.lazy_command import examples
from penstock.cli.messages.request_options import As, Form, find_request_broker

__all__ = ["REQ_EXAMPLES", "req"]

REQ_EXAMPLES: Final = examples(
    "penstock req /stats | jq .clients",
    "penstock req /mean '[18.5, 21.5]' --as json",
    "penstock req /resize - --to 1003 --raw < photo.png > small.png",
)


def req(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path, such as /stats.")],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE|-", help="The request; - for standard input.", show_default=False
        ),
    ] = None,
    *,
    to: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="CLIENT",
            help="The client to ask; 1 is the broker, which asks a client that serves PATH.",
        ),
    ] = 1,
    form: As = Form.BYTES,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    ca: Ca = None,
    timeout: Timeout = 5.0,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Send a request to a service, a client or the broker, and print the reply.

    The broker answers /topics, /clients, /services, /stats and /time; other paths are those of
    clients that serve them, as `reply` does. Only fleximq has requests. A reply that is neither
    bytes nor text is printed as JSON.
    """
    if raw and json:
        raise typer.BadParameter("goes without --json.", param_hint="--raw")
    broker = find_request_broker(url, protocol, ca=ca, timeout=timeout, operation="request")
    from penstock.cli.messages.requester import send_request  # noqa: PLC0415  (--help stays fast)

    send_request(broker, path, value, to=to, form=form, timeout=timeout, raw=raw, json=json)
