"""What helps when a client could not do what it was told, by what went wrong and the protocol."""

from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client.errors import Refused

__all__ = ["PROTOCOLS", "URL_DEFAULT", "explain"]

URL_DEFAULT: Final = "tcp://127.0.0.1:7000"
PROTOCOLS: Final = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")

_FOREIGN: Final = "the broker broke the protocol"
_NO_CREDENTIALS: Final = (
    "carries no credentials here: use lamamq or fleximq, or a listener that lets anonymous "
    "clients in"
)
_CREDENTIALS: Final = {
    "rheos1": f"rheos1 {_NO_CREDENTIALS}",
    "rheos2": f"rheos2 {_NO_CREDENTIALS}",
    "herald": f"herald {_NO_CREDENTIALS}",
    "fleximq": "set PENSTOCK_TOKEN, PENSTOCK_API_KEY, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD",
    "lamamq": "set PENSTOCK_KEY and give --name",
}
_UNKNOWN_CLIENT: Final = {("fleximq", 401), ("herald", 8)}


def explain(error: PenstockError, *, url: str, protocol: str) -> tuple[str, str]:
    """Return what happened, and what helps; nothing if that is not known."""
    from penstock.client.errors import (  # noqa: PLC0415  (so that --help starts fast)
        ConnectFailed,
        ConnectionLost,
        InvalidAddress,
        Refused,
        TimedOut,
        TlsFailed,
        Unreachable,
        Untrusted,
    )

    remedy = ""
    match error:
        case Untrusted():
            remedy = "give --ca the certificates to trust"
        case TlsFailed():
            plain = "ws" if url.startswith("wss") else "tcp"
            remedy = f"give {plain}:// if the broker does not speak TLS there"
        case Unreachable():
            remedy = "start a broker with `penstock serve`, or say by --url where it is"
        case ConnectFailed(reason=reason) if reason.startswith(_FOREIGN):
            return _stranger(url, protocol)
        case ConnectFailed():
            remedy = f"something answers there: check port and protocol, and {_wanted(protocol)}"
        case ConnectionLost() if protocol.startswith("rheos"):
            # Its first answer is a refusal like any other; that the broker closes tells more.
            remedy = f"if the broker wants credentials: {_CREDENTIALS[protocol]}"
        case TimedOut(operation="connect"):
            remedy = (
                f"check port and protocol, and {_wanted(protocol)}; or give --timeout more seconds"
            )
        case TimedOut():
            remedy = "it may come later: give --timeout more seconds"
        case InvalidAddress():
            remedy = (
                f"give --url an address such as {URL_DEFAULT}, "
                f"or one that starts with a protocol: {', '.join(PROTOCOLS)}"
            )
        case Refused() if _is_foreign(error, protocol):
            return _stranger(url, protocol)
        case Refused() if _is_unknown_client(error, protocol):
            remedy = _CREDENTIALS[protocol]
        case _:
            pass
    return str(error), remedy


def _wanted(protocol: str) -> str:
    return f"if it wants credentials: {_CREDENTIALS[protocol]}"


def _stranger(url: str, protocol: str) -> tuple[str, str]:
    return (
        f"what answers at {url} does not speak {protocol}",
        "give the port that `penstock serve` shows behind listen",
    )


def _is_foreign(error: "Refused", protocol: str) -> bool:
    """Tell whether LamaMQ's first answer, four bytes that may be any, offers no version of it."""
    return protocol == "lamamq" and error.text.startswith("versions ")


def _is_unknown_client(error: "Refused", protocol: str) -> bool:
    if protocol == "lamamq":
        # It has one number for all that a client may do wrong, so the broker's words must tell. A
        # broker that wants a key waits for it until the handshake has taken too long.
        return "identity" in error.text or "handshake" in error.text
    return (protocol, error.answer) in _UNKNOWN_CLIENT
