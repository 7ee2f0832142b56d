"""The names in a client certificate, in the form in which principals are configured with them.

`subject:CN=press-4,O=Plant` is the whole subject as RFC 4514 writes it, `DNS:press-4.example` a
subject alternative name with its type.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["SAN_TYPES", "SUBJECT_PREFIX", "certificate_names", "names_of"]

SUBJECT_PREFIX: Final = "subject:"
SAN_TYPES: Final = ("DNS", "URI", "email", "IP")
"""Types of subject alternative names that can identify a principal."""

_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""RFC 4514, section 3: the short names of attributes."""
_LIBRARY_TYPES: Final[Mapping[str, str]] = {"IP Address": "IP"}


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the names in the certificate that a peer proved to own; empty if it has none.

    A resumed TLS session has none: its certificate was verified against an earlier list of
    authorities.
    """
    tls = transport.get_extra_info("ssl_object")
    if tls is None or tls.session_reused:
        return frozenset()
    found = tls.getpeercert()
    return names_of(found) if found else frozenset()


def names_of(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the names in a certificate, decoded as by `ssl.SSLSocket.getpeercert`."""
    names = {
        f"{_LIBRARY_TYPES.get(kind, kind)}:{value}"
        for kind, value in certificate.get("subjectAltName", ())
        if _LIBRARY_TYPES.get(kind, kind) in SAN_TYPES
    }
    subject = certificate.get("subject", ())
    if subject:
        names.add(SUBJECT_PREFIX + _distinguished_name(subject))
    return frozenset(names)


def _distinguished_name(parts: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return a subject as RFC 4514 writes it: the last part first."""
    written = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in parts
    ]
    return ",".join(reversed(written))


def _escaped(value: str) -> str:
    """Escape a value as RFC 4514, section 2.4, so that no two subjects are written alike."""
    text = "".join(f"\\{each}" if each in '"+,;<>\\' else each for each in value)
    text = text.replace("\0", "\\00")
    if text[:1] in {" ", "#"}:
        text = f"\\{text}"
    if len(value) > 1 and text.endswith(" "):
        text = f"{text[:-1]}\\ "
    return text
