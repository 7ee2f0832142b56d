"""What the commands that speak with a broker have in common: where it is, who they are, errors."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

import typer

from penstock.cli.arguments import is_utf8
from penstock.cli.log_text import text_of
from penstock.cli.remedies import PROTOCOLS, URL_DEFAULT, explain
from penstock.errors import CallerError, ErrorCode, OperatorError, PeerError

if TYPE_CHECKING:
    import ssl

    from penstock.client.options import ConnectOptions

__all__ = [
    "EXIT_INCOMPLETE",
    "EXIT_INTERRUPTED",
    "PROTOCOLS",
    "URL_DEFAULT",
    "Broker",
    "Ca",
    "CommandFailed",
    "Json",
    "Name",
    "ProtocolChoice",
    "Raw",
    "Timeout",
    "Url",
    "client_errors",
    "examples",
    "find_broker",
    "json_line",
    "line_of",
    "sum_up",
    "tell",
    "terminable",
    "utf8",
    "value_fields",
]

EXIT_INCOMPLETE: Final = 1
EXIT_INTERRUPTED: Final = 130

# Secrets come from the environment: other users of a machine can read a command line.
_SECRETS: Final = {
    "fleximq": {
        "token": "PENSTOCK_TOKEN",
        "username": "PENSTOCK_USERNAME",
        "password": "PENSTOCK_PASSWORD",
        "api_key": "PENSTOCK_API_KEY",
    },
    "lamamq": {"key": "PENSTOCK_KEY"},
}

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The broker: tcp, tls, ipc, ws or wss; or a protocol, as herald://127.0.0.1:7000.",
        envvar="PENSTOCK_URL",
    ),
]
ProtocolChoice = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PROTOCOLS),
        help="The protocol to speak; fleximq by ws and wss.",
        envvar="PENSTOCK_PROTOCOL",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Who the client says it is (not fleximq); random without it.",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificates to trust with tls and wss, in place of the system's.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for an answer.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Print the answer byte for byte, without a newline.")
]


def examples(*lines: str) -> str:
    """Return what `--help` shows below the options, line by line."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class CommandFailed(OperatorError):
    """A client operation failed. The text is one line and ends with the remedy, if there is one."""

    code = ErrorCode.REFUSED

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


class Broker(NamedTuple):
    """Where a broker is, and how `connect` is told who comes."""

    url: str
    options: "ConnectOptions"

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        return str(self.options["protocol"])


def find_broker(
    url: str,
    protocol: str | None,
    *,
    default: str,
    name: str | None = None,
    ca: Path | None = None,
    timeout: float = 30.0,
) -> Broker:
    """Return the broker that the options mean; raise OperatorError or typer.BadParameter.

    `default` is the protocol that is spoken if neither option nor URL says one; ws and wss say
    fleximq.
    """
    scheme, separator, rest = url.partition("://")
    if scheme in PROTOCOLS and separator:
        if protocol not in {None, scheme}:
            raise typer.BadParameter(
                f"is {protocol}, and {url} says {scheme}. Leave one of them out.",
                param_hint="--protocol",
            )
        protocol, url = scheme, f"tcp://{rest}"
    protocol = protocol or ("fleximq" if scheme in {"ws", "wss"} else default)
    if protocol not in PROTOCOLS:
        raise typer.BadParameter(
            f"{protocol!r} is none of {', '.join(PROTOCOLS)}.", param_hint="--protocol"
        )
    options: dict[str, Any] = {"protocol": protocol, "timeout": timeout}
    if name is not None:
        options["name"] = name
    for option, variable in _SECRETS.get(protocol, {}).items():
        if secret := os.environ.get(variable):
            options[option] = os.fsencode(secret) if option == "key" else utf8(secret, variable)
    if ca is not None:
        options["tls"] = _trusting(ca)
    return Broker(url, cast("ConnectOptions", options))


def utf8(secret: str, variable: str) -> str:
    """Return a variable's value; raise CommandFailed, without telling it, if it is not UTF-8."""
    if not is_utf8(secret):
        raise CommandFailed(f"{variable} is not UTF-8", "set it to text in UTF-8")
    return secret


def _trusting(ca: Path) -> "ssl.SSLContext":
    import ssl  # noqa: PLC0415  (a cost only TLS pays)

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # an SSLError is one
        reason = error.strerror or str(error)
        raise CommandFailed(f"{ca}: {reason}", "give --ca a file of PEM certificates") from None


@contextlib.contextmanager
def client_errors(broker: Broker) -> Iterator[None]:
    """Turn what a client of a broker raises into the one line of a command."""
    try:
        yield
    except (CallerError, PeerError) as error:
        text, remedy = explain(error, url=broker.url, protocol=broker.protocol)
        raise CommandFailed(text, remedy) from error


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM as an interrupt, so that it ends a command as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def value_fields(value: bytes) -> dict[str, str]:
    """Return a value for JSON: its text, or base64 with `encoding` if it is not UTF-8."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415

        return {"value": base64.b64encode(value).decode(), "encoding": "base64"}


def line_of(payload: object, *, raw: bool) -> bytes:
    """Return a payload as a line: bytes and text escaped, all else as JSON.

    If it is raw, nothing is escaped and no newline added.
    """
    if isinstance(payload, str):
        payload = payload.encode()
    if isinstance(payload, bytes):
        return payload if raw else text_of(payload).encode() + b"\n"
    line = b"\n" if payload is None else json_line(payload)
    return line[:-1] if raw else line


def json_line(document: object) -> bytes:
    """Return a document as JSON in one line; what JSON has no form for becomes text."""
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(document, enc_hook=str) + b"\n"


def sum_up(text: str) -> None:
    """Say at the end of an interrupted command what it did, below the ^C of a terminal."""
    sys.stderr.write(f"\n{text}\n" if sys.stderr.isatty() else f"{text}\n")


def tell(text: str) -> None:
    """Say something beside the output, on standard error."""
    sys.stderr.write(f"penstock: {' '.join(text.split())}\n")
    sys.stderr.flush()
