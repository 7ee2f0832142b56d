"""Payloads of messages, requests and replies, as the command line reads and prints them."""

import os
import sys
from typing import Any

import msgspec
import typer

from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import value_fields
from penstock.cli.messages.request_options import Form
from penstock.client import Reply, Request
from penstock.limits import PUB_VALUE_BYTES_MAX
from penstock.wire.messagepack import Malformed

__all__ = ["decoded", "payload_fields", "payload_of", "read_value"]


def read_value(value: str | None) -> bytes:
    """Return the bytes of a VALUE argument; raise OperatorError or typer.BadParameter."""
    if value not in {None, "-"}:
        return os.fsencode(value or "")
    if value is None and sys.stdin.isatty():
        raise typer.BadParameter("give one, or - for standard input.", param_hint="VALUE")
    found = sys.stdin.buffer.read(PUB_VALUE_BYTES_MAX + 1)
    if len(found) > PUB_VALUE_BYTES_MAX:
        raise CommandFailed(
            f"standard input has more than {PUB_VALUE_BYTES_MAX:,} bytes",
            "no protocol carries that in one message: split it, or give --lines",
        )
    return found


def payload_of(value: bytes, form: Form) -> object:
    """Return a value as a payload; raise CommandFailed if it is not of that form."""
    if form is Form.BYTES:
        return value

    try:
        return value.decode() if form is Form.TEXT else msgspec.json.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError):
        problem = "is not UTF-8" if form is Form.TEXT else "is not JSON"
        raise CommandFailed(f"the value {problem}", "give --as bytes to send it as it is") from None


def decoded(message: Reply | Request) -> object:
    """Return the payload of a message, or its MessagePack bytes if Python has no value for it."""
    try:
        payload: object = message.payload
    except Malformed:
        return message.value
    return payload


def payload_fields(message: Reply | Request) -> dict[str, Any]:
    """Return the payload of a message for JSON: `value` for bytes and text, else `payload`."""
    payload = decoded(message)
    if payload is None or isinstance(payload, bytes | str):
        return value_fields(message.value)
    return {"payload": payload}
