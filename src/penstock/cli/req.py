"""`penstock req`: ask a client, or the broker, and print the answer."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import (
    EXIT_INTERRUPTED,
    URL_DEFAULT,
    Broker,
    Ca,
    CommandFailed,
    Json,
    ProtocolChoice,
    Raw,
    Timeout,
    Url,
    client_errors,
    examples,
    find_broker,
    json_line,
    line_of,
)
from penstock.cli.log_options import quiet_pipe
from penstock.cli.pub import read_value
from penstock.cli.req_payload import As, Form, decoded, payload_fields, payload_of

if TYPE_CHECKING:
    from penstock.client import Refused

__all__ = ["REQ_EXAMPLES", "req"]


REQ_EXAMPLES: Final = examples(
    "penstock req /stats | jq .clients",
    "penstock req /mean '[18.5, 21.5]' --as json --to 1003",
    "penstock req /resize - --to 1003 --raw < photo.png > small.png",
)


def req(
    path: Annotated[str, typer.Argument(metavar="PATH", help="What is asked, such as /stats.")],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE|-", help="The request; - is standard input.", show_default=False
        ),
    ] = None,
    *,
    to: Annotated[
        int,
        typer.Option(
            min=1, metavar="CLIENT", help="Who is asked: the id that `reply` prints; 1, the broker."
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
    """Ask a client or the broker, and print the answer. Of the five protocols fleximq has requests.

    The broker answers /topics, /clients, /stats and /time. An answer that is neither bytes nor text
    is printed as JSON.
    """
    if raw and json:
        raise typer.BadParameter("goes without --json.", param_hint="--raw")
    broker = requests_broker(url, protocol, ca=ca, timeout=timeout, operation="request")
    payload = None if value is None else payload_of(read_value(value), form)
    from penstock.client import Refused, connect_sync  # noqa: PLC0415  (so that --help starts fast)

    with client_errors(broker), quiet_pipe():
        started = None
        try:
            options: Any = {**broker.options, "reconnect": False}
            with connect_sync(broker.url, **options) as client:
                started = time.monotonic()
                reply = client.request(to, path, payload, timeout=timeout)
                seconds = time.monotonic() - started
        except Refused as error:
            if started is None:  # the client was, not its request
                raise
            raise CommandFailed(_refusal(error), _remedy(error, path=path, to=to)) from error
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        sys.stdout.buffer.write(
            json_line(
                {
                    "path": path,
                    "client_id": to,
                    "status": reply.status,
                    **payload_fields(reply),
                    "ms": seconds * 1000,
                }
            )
            if json
            else line_of(decoded(reply), raw=raw)
        )


def requests_broker(
    url: str, protocol: str | None, *, ca: Path | None, timeout: float = 30.0, operation: str
) -> Broker:
    """Return the broker; raise CommandFailed if the protocol has no requests."""
    broker = find_broker(url, protocol, default="fleximq", ca=ca, timeout=timeout)
    if broker.protocol != "fleximq":
        raise CommandFailed(
            f"{broker.protocol} has no {operation}", "fleximq has: give --protocol fleximq"
        )
    return broker


def _refusal(error: "Refused") -> str:
    return f"answered with status {error.answer}: {error.text}"


def _remedy(error: "Refused", *, path: str, to: int) -> str:
    if error.answer == 404 and to == 1:
        return f"to ask a client, give --to the id that `penstock reply {path}` prints"
    return "`penstock req /clients` lists who is there" if error.answer == 600 else ""
