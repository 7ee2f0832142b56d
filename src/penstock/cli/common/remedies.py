"""Errors of a client turned into the one line of a command, with advice."""

import contextlib
from collections.abc import Iterator
from typing import Final

from penstock.cli.common.client_options import URL_DEFAULT, Broker
from penstock.cli.common.failure import CommandFailed
from penstock.cli.protocol_help import LABELS, credentials_advice
from penstock.client.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidAddress,
    Refused,
    TimedOut,
    TlsFailed,
    Unreachable,
    Untrusted,
)
from penstock.errors import CallerError, PeerError, PenstockError
from penstock.protocols import PROTOCOLS

__all__ = ["client_errors", "explain"]

_PROTOCOL_BROKEN: Final = "the broker broke the protocol"


@contextlib.contextmanager
def client_errors(broker: Broker) -> Iterator[None]:
    """Raise CommandFailed for each error of a client."""
    try:
        yield
    except (CallerError, PeerError) as error:
        text, remedy = explain(error, url=broker.url, protocol=broker.protocol)
        raise CommandFailed(text, remedy) from error


def explain(error: PenstockError, *, url: str, protocol: str) -> tuple[str, str]:
    """Return the problem and its remedy, which is empty if unknown."""
    remedy = ""
    advice = credentials_advice(PROTOCOLS[protocol])
    wanted = f"if it requires credentials: {advice}"
    match error:
        case Untrusted():
            remedy = "give --ca the certificates to trust"
        case TlsFailed():
            plain = "ws" if url.startswith("wss") else "tcp"
            remedy = f"give {plain}:// if the broker does not speak TLS there"
        case Unreachable():
            remedy = "start a broker with `penstock serve`, or give its address with --url"
        case ConnectFailed(reason=reason) if reason.startswith(_PROTOCOL_BROKEN):
            return _other_protocol(url, protocol)
        case ConnectFailed():
            remedy = f"a server answers there: check port and protocol, and {wanted}"
        case ConnectionLost() if PROTOCOLS[protocol].refusal.closes_unauthenticated:
            # The first answer is a refusal like any other; only the closed connection is specific.
            remedy = f"if the broker requires credentials: {advice}"
        case TimedOut(operation="connect"):
            remedy = f"check port and protocol, and {wanted}; or increase --timeout"
        case TimedOut():
            remedy = "it may come later: increase --timeout"
        case InvalidAddress():
            remedy = (
                f"give --url an address such as {URL_DEFAULT}, "
                f"or one that starts with a protocol: {', '.join(LABELS)}"
            )
        case Refused() if _is_other_protocol(error, protocol):
            return _other_protocol(url, protocol)
        case Refused() if _is_unauthenticated(error, protocol):
            remedy = advice
        case _:
            pass
    return str(error), remedy


def _other_protocol(url: str, protocol: str) -> tuple[str, str]:
    return (
        f"the server at {url} does not speak {protocol}",
        "give the port that `penstock serve` prints after listen",
    )


def _is_other_protocol(error: Refused, protocol: str) -> bool:
    start = PROTOCOLS[protocol].refusal.other_protocol
    return bool(start) and error.text.startswith(start)


def _is_unauthenticated(error: Refused, protocol: str) -> bool:
    known = PROTOCOLS[protocol].refusal
    if known.unauthenticated_words:
        return any(word in error.text for word in known.unauthenticated_words)
    return error.answer == known.unauthenticated
