"""Options that `req` and `reply` share."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common.client_options import Broker, find_broker
from penstock.cli.common.failure import CommandFailed
from penstock.cli.protocol_help import REQUESTS_DEFAULT
from penstock.protocols import PROTOCOLS

__all__ = ["As", "Form", "find_request_broker"]


class Form(enum.StrEnum):
    """The MessagePack type that a value is sent as."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


As = Annotated[
    Form,
    typer.Option("--as", help="Send bytes, text, or the value that the JSON text stands for."),
]


def find_request_broker(
    url: str, protocol: str | None, *, ca: Path | None, timeout: float = 30.0, operation: str
) -> Broker:
    """Return the broker; raise CommandFailed if the protocol has no requests."""
    broker = find_broker(url, protocol, default=REQUESTS_DEFAULT, ca=ca, timeout=timeout)
    if not PROTOCOLS[broker.protocol].carries.requests:
        raise CommandFailed(
            f"{broker.protocol} has no {operation}",
            f"{REQUESTS_DEFAULT} has: give --protocol {REQUESTS_DEFAULT}",
        )
    return broker
