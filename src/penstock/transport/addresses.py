"""Listener addresses, written as URLs.

    tcp://127.0.0.1:7000                  all protocols
    tls://[::]:7443?certificate=/c.pem&key=/k.pem
    udp://127.0.0.1:7000                  herald
    ipc:///run/penstock/penstock.sock     an absolute path; ipc://penstock.sock is a relative one
    ws://127.0.0.1:7080/ws                fleximq, in binary messages; wss:// over TLS

Options of the listener follow a `?`; `OPTIONS` lists them.
"""

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast, get_args
from urllib.parse import quote, unquote

from penstock.errors import BadAddress
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from penstock.transport.tls import ClientCertificate

__all__ = ["OPTIONS", "Address", "Scheme", "parse_address"]

Scheme = Literal["tcp", "tls", "udp", "ipc", "ws", "wss"]

_SCHEMES: Final = frozenset(get_args(Scheme))
_STREAMS: Final = frozenset({"tcp", "tls", "ipc"})
_WEB: Final = frozenset({"ws", "wss"})
_SECURE: Final = frozenset({"tls", "wss"})
_CLEARTEXT: Final = frozenset({"tcp", "ws"})
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_NUMERIC: Final = re.compile(r"[0-9.]+")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """A parsed listener URL. An option that was not given is None, or empty.

    `host` has no brackets; `port` 0 means any free port. `path` is a socket file for `ipc` and the
    request path for `ws` and `wss`.
    """

    scheme: Scheme
    host: str = ""
    port: int = 0
    path: str = ""
    protocol: Protocol | None = None
    order: ByteOrder | None = None
    echo: bool | None = None
    strict: bool | None = None
    anonymous: bool | None = None
    cleartext_credentials: bool | None = None
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    client_certificate: ClientCertificate | None = None
    mode: int | None = None
    origins: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only clients on this machine can connect."""
        if self.scheme == "ipc" or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def accepts_anonymous(self) -> bool:
        """Whether clients without credentials are accepted: `anonymous`, or else `is_loopback`.

        Every listener goes by this, whatever it serves.
        """
        return self.is_loopback if self.anonymous is None else self.anonymous

    @property
    def accepts_credentials(self) -> bool:
        """Whether clients may send passwords, tokens and keys.

        They may over TLS and on this machine, and where `cleartext_credentials` says so. Every
        listener goes by this, whatever it serves.
        """
        return self.is_secure or self.is_loopback or self.cleartext_credentials is True

    @property
    def is_secure(self) -> bool:
        """Whether the scheme uses TLS."""
        return self.scheme in _SECURE

    def beside(self, other: "Address") -> bool:
        """Return whether `other` is a web address with the same host and port."""
        return other.scheme in _WEB and (self.host, self.port) == (other.host, other.port)

    def with_port(self, port: int) -> "Address":
        """Return a copy with the actual port."""
        return dataclasses.replace(self, port=port)

    @property
    def location(self) -> str:
        """The URL without its options, as a client uses it."""
        if self.scheme == "ipc":
            return f"ipc://{quote(self.path)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    def __str__(self) -> str:
        given = [
            f"{name}={quote(option.format(getattr(self, name)), safe='/:,*')}"
            for name, option in OPTIONS.items()
            if getattr(self, name) not in {None, ()}
        ]
        return "?".join(part for part in (self.location, "&".join(given)) if part)


class _Option(NamedTuple):
    """An option of a URL: its schemes, its parser and its formatter."""

    schemes: frozenset[str]
    read: Callable[[str], Any]
    """Raises ValueError or KeyError if the text is not as `expected`."""
    format: Callable[[Any], str]
    expected: str


def _boolean(value: bool) -> str:  # noqa: FBT001
    return "true" if value else "false"


def _text(value: str) -> str:
    if not value:
        raise ValueError(value)
    return value


def _mode(value: str) -> int:
    mode = int(value, 8)
    if not 0 <= mode <= 0o777:
        raise ValueError(value)
    return mode


_ORDERS: Final[Mapping[str, ByteOrder]] = {"little": "little", "big": "big"}
_CLIENT_CERTIFICATES: Final[Mapping[str, ClientCertificate]] = {
    "required": "required",
    "optional": "optional",
}

OPTIONS: Final[Mapping[str, _Option]] = MappingProxyType(
    {
        "protocol": _Option(
            _SCHEMES, PROTOCOLS.__getitem__, lambda value: value.label, ", ".join(PROTOCOLS.labels)
        ),
        "order": _Option(_STREAMS | _WEB, _ORDERS.__getitem__, str, "little or big"),
        "echo": _Option(_SCHEMES, _BOOLEANS.__getitem__, _boolean, "true or false"),
        "strict": _Option(_STREAMS | _WEB, _BOOLEANS.__getitem__, _boolean, "true or false"),
        "anonymous": _Option(_SCHEMES, _BOOLEANS.__getitem__, _boolean, "true or false"),
        "cleartext_credentials": _Option(
            _CLEARTEXT, _BOOLEANS.__getitem__, _boolean, "true or false"
        ),
        "certificate": _Option(_SECURE, _text, str, "the path of a PEM file"),
        "key": _Option(_SECURE, _text, str, "the path of a PEM file"),
        "client_ca": _Option(_SECURE, _text, str, "the path of a PEM file"),
        "client_certificate": _Option(
            _SECURE, _CLIENT_CERTIFICATES.__getitem__, str, "required or optional"
        ),
        "mode": _Option(frozenset({"ipc"}), _mode, "{:04o}".format, "permissions in octal"),
        "origins": _Option(
            _WEB,
            lambda value: tuple(_text(origin) for origin in value.split(",")),
            ",".join,
            "origins of web pages with commas between them, or *",
        ),
    }
)


def parse_address(url: str) -> Address:
    """Parse a listener's URL; raise BadAddress with the problem and the expected form."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise BadAddress(url, "expected scheme://…, such as tcp://127.0.0.1:7000")
    if scheme == "stdio":
        raise BadAddress(url, "programs are listed in the configuration, not listened for")
    if scheme not in _SCHEMES:
        raise BadAddress(url, f"unknown scheme {scheme!r}, expected {', '.join(get_args(Scheme))}")
    if "#" in rest:
        raise BadAddress(url, "a # has no meaning here; in a path it is written %23")
    place, _, query = rest.partition("?")
    options = _options(url, scheme, query)
    if scheme == "ipc":
        return _checked(url, Address("ipc", path=_socket_path(url, place), **options))
    authority, slash, path = place.partition("/")
    if scheme not in _WEB and path:
        raise BadAddress(url, f"a {scheme} address has no path")
    host, port = _host_and_port(url, authority)
    request_path = slash + path or "/" if scheme in _WEB else ""
    known = cast("Scheme", scheme)
    return _checked(url, Address(known, host, port, request_path, **options))


def _host_and_port(url: str, authority: str) -> tuple[str, int]:
    if "@" in authority:
        raise BadAddress(url, "credentials do not belong into an address")
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        raise BadAddress(url, "the port is missing; port 0 lets the system choose")
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise BadAddress(url, f"port {port!r} is not a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = unquote(host[1:-1])
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise BadAddress(url, f"{host!r} in brackets is not an IPv6 address") from None
    elif not host:
        raise BadAddress(url, "the host is missing; 0.0.0.0 or [::] stands for all addresses")
    elif ":" in host:
        raise BadAddress(url, "an IPv6 address stands in brackets: [::1]")
    elif _NUMERIC.fullmatch(host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise BadAddress(url, f"{host!r} is not an IPv4 address") from None
    elif not _HOST.fullmatch(host):
        raise BadAddress(url, f"{host!r} is not the name of a host")
    return host, int(port)


def _socket_path(url: str, place: str) -> str:
    path = unquote(place)
    if not path:
        raise BadAddress(url, "the path is missing: ipc:///run/penstock.sock or ipc://name.sock")
    if "\0" in path or path.endswith("/"):
        raise BadAddress(url, f"{path!r} is not the path of a file")
    if not path.startswith("/") and ".." in path.split("/"):
        raise BadAddress(url, "a relative path stays in the temporary directory: no ..")
    return path


def _options(url: str, scheme: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name not in OPTIONS:
            raise BadAddress(url, f"unknown option {name!r}, known are {', '.join(OPTIONS)}")
        option = OPTIONS[name]
        if scheme not in option.schemes:
            raise BadAddress(url, f"a {scheme} address has no option {name}")
        if name in options:
            raise BadAddress(url, f"option {name} is given twice")
        text = unquote(value)
        try:
            options[name] = option.read(text)
        except (KeyError, ValueError):
            raise BadAddress(url, f"{name} is {text!r}, expected {option.expected}") from None
    return options


def _spoken_over(scheme: str) -> Protocol:
    """Return the protocol of listeners that take one protocol alone."""
    return next(protocol for protocol in PROTOCOLS if scheme in protocol.transports)


def _checked(url: str, address: Address) -> Address:
    """Check options against each other; fill in the protocol of `udp`, `ws` and `wss`."""
    protocol = address.protocol
    if address.scheme == "udp":
        if protocol not in {None, _spoken_over("udp")}:
            raise BadAddress(url, f"only {_spoken_over('udp')} is spoken over UDP")
        protocol = _spoken_over("udp")
    elif address.scheme in _WEB and protocol is None:
        protocol = _spoken_over(address.scheme)
    if address.order is not None and (protocol is None or len(protocol.orders) == 1):
        ordered = " or ".join(f"protocol={each}" for each in PROTOCOLS if len(each.orders) > 1)
        raise BadAddress(url, f"order needs {ordered}: others have one")
    if (address.certificate is None) != (address.key is None):
        raise BadAddress(url, "certificate and key are given together")
    if address.client_certificate is not None and address.client_ca is None:
        raise BadAddress(url, "client_certificate needs client_ca, the authorities of clients")
    return dataclasses.replace(address, protocol=protocol)
