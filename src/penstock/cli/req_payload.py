"""Payloads of fleximq requests and answers, as a command line gives and shows them."""

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.client_options import CommandFailed, value_fields

if TYPE_CHECKING:
    from penstock.client import Reply, Request

__all__ = ["As", "Form", "decoded", "payload_fields", "payload_of"]


class Form(enum.StrEnum):
    """What of MessagePack a value becomes."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


As = Annotated[
    Form,
    typer.Option("--as", help="What is sent: bytes, text, or the value that JSON stands for."),
]


def payload_of(value: bytes, form: Form) -> object:
    """Return what is sent for a value; raise CommandFailed if it is not of that form."""
    if form is Form.BYTES:
        return value
    import msgspec  # noqa: PLC0415

    try:
        return value.decode() if form is Form.TEXT else msgspec.json.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError):
        problem = "is not UTF-8" if form is Form.TEXT else "is not JSON"
        raise CommandFailed(f"the value {problem}", "give --as bytes to send it as it is") from None


def decoded(message: "Reply | Request") -> object:
    """Return a message's payload; its MessagePack if Python has no value for it."""
    from penstock.wire.messagepack import Malformed  # noqa: PLC0415

    try:
        payload: object = message.payload
    except Malformed:
        return message.value
    return payload


def payload_fields(message: "Reply | Request") -> dict[str, Any]:
    """Return a message's payload for JSON: `value` for bytes and text, `payload` for all else."""
    payload = decoded(message)
    if payload is None or isinstance(payload, bytes | str):
        return value_fields(message.value)
    return {"payload": payload}
