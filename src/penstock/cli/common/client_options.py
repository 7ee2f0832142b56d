"""Options of the commands that connect to a broker, and the broker that they name."""

import contextlib
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

import typer

from penstock.cli.common.arguments import is_utf8
from penstock.cli.common.failure import CommandFailed
from penstock.cli.protocol_help import (
    LABELS,
    PROTOCOL_CHOICE,
    WEBSOCKET_DEFAULT,
    credential_variable,
)
from penstock.protocols import PROTOCOLS

if TYPE_CHECKING:
    from penstock.client.options import ConnectOptions

__all__ = [
    "URL_DEFAULT",
    "Broker",
    "Ca",
    "Name",
    "ProtocolChoice",
    "Timeout",
    "Url",
    "find_broker",
    "terminable",
    "utf8",
]

URL_DEFAULT: Final = "tcp://127.0.0.1:7000"
CERTIFICATE_VARIABLE: Final = "PENSTOCK_CERTIFICATE"
"""The path of a PEM file with the client's certificate and key."""

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The broker: a tcp, tls, ipc, ws or wss URL, or a protocol's, as "
        "herald://127.0.0.1:7000.",
        envvar="PENSTOCK_URL",
    ),
]
ProtocolChoice = Annotated[
    str | None,
    typer.Option(
        metavar=PROTOCOL_CHOICE,
        help=f"The protocol; {WEBSOCKET_DEFAULT} for ws and wss.",
        envvar="PENSTOCK_PROTOCOL",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The client's name (not fleximq); random by default.",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificates to trust with tls and wss, instead of the system's.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for a reply.")
]


class Broker(NamedTuple):
    """The URL of a broker, and the options of `connect`."""

    url: str
    options: "ConnectOptions"

    @property
    def protocol(self) -> str:
        """The label of the protocol."""
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
    """Return the broker that the options name; raise OperatorError or typer.BadParameter.

    `default` is the protocol if neither option nor URL names one; ws and wss URLs mean fleximq.
    """
    scheme, separator, rest = url.partition("://")
    if scheme in LABELS and separator:
        if protocol not in {None, scheme}:
            raise typer.BadParameter(
                f"is {protocol}, and {url} says {scheme}. Leave one of them out.",
                param_hint="--protocol",
            )
        protocol, url = scheme, f"tcp://{rest}"
    protocol = protocol or (WEBSOCKET_DEFAULT if scheme in {"ws", "wss"} else default)
    if protocol not in LABELS:
        raise typer.BadParameter(
            f"{protocol!r} is none of {', '.join(LABELS)}.", param_hint="--protocol"
        )
    options: dict[str, Any] = {"protocol": protocol, "timeout": timeout}
    if name is not None:
        options["name"] = name
    for option in PROTOCOLS[protocol].credentials:
        variable = credential_variable(option)
        if secret := os.environ.get(variable):
            options[option] = os.fsencode(secret) if option == "key" else utf8(secret, variable)
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    if ca is not None or certificate:
        options["tls"] = _tls_context(ca, certificate or None)
    return Broker(url, cast("ConnectOptions", options))


def utf8(secret: str, variable: str) -> str:
    """Return the value of a variable; raise CommandFailed, without the value, if not UTF-8."""
    if not is_utf8(secret):
        raise CommandFailed(f"{variable} is not UTF-8", "set it to text in UTF-8")
    return secret


def _tls_context(ca: Path | None, certificate: str | None) -> ssl.SSLContext:
    """Return a context with trusted certificates and the client's own; raise CommandFailed."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # an SSLError is one
        reason = error.strerror or str(error)
        raise CommandFailed(f"{ca}: {reason}", "give --ca a file of PEM certificates") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, password=_no_password)
        except (OSError, CommandFailed) as error:
            reason = getattr(error, "strerror", None) or str(error)
            remedy = f"set {CERTIFICATE_VARIABLE} to a PEM file with certificate and key"
            raise CommandFailed(f"{certificate}: {reason}", remedy) from None
    return context


def _no_password() -> str:
    # Without this callback OpenSSL would prompt on the terminal.
    raise CommandFailed("the key is protected by a password")


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM as an interrupt, so that it ends a command as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
