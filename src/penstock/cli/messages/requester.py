"""Send a request and print the reply."""

import sys
import time
from typing import Any

import typer

from penstock.cli.common.client_options import Broker
from penstock.cli.common.failure import EXIT_INTERRUPTED, CommandFailed
from penstock.cli.common.output import json_line, line_of, quiet_pipe
from penstock.cli.common.remedies import client_errors
from penstock.cli.messages.payload import decoded, payload_fields, payload_of, read_value
from penstock.cli.messages.request_options import Form
from penstock.client import Refused, connect_sync

__all__ = ["send_request"]


def send_request(
    broker: Broker,
    path: str,
    value: str | None,
    *,
    to: int,
    form: Form,
    timeout: float,
    raw: bool,
    json: bool,
) -> None:
    """Send a request to client `to` and print its reply; raise OperatorError."""
    payload = None if value is None else payload_of(read_value(value), form)
    with client_errors(broker), quiet_pipe():
        started = None
        try:
            options: Any = {**broker.options, "reconnect": False}
            with connect_sync(broker.url, **options) as client:
                started = time.monotonic()
                reply = client.request(to, path, payload, timeout=timeout)
                seconds = time.monotonic() - started
        except Refused as error:
            if started is None:  # the connection was refused, not the request
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


def _refusal(error: Refused) -> str:
    return f"answered with status {error.answer}: {error.text}"


def _remedy(error: Refused, *, path: str, to: int) -> str:
    if error.answer == 503 and to == 1:
        return f"start one: penstock reply {path}"
    return "`penstock req /clients` lists the clients" if error.answer == 600 else ""
