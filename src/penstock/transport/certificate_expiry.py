"""When a certificate expires.

X.509, RFC 5280 section 4.1, in DER: a tag, a length and a content, nested.

    Certificate    SEQUENCE { tbsCertificate, … }
    tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity, … }
    validity       SEQUENCE { notBefore, notAfter }     UTCTime or GeneralizedTime
"""

import ssl
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["expires_at"]

_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class _Element(NamedTuple):
    tag: int
    content: bytes
    after: bytes


def expires_at(pem: str) -> float:
    """Return when the first certificate of a PEM text expires, in seconds since the epoch.

    Raise ValueError if there is none, or if it is malformed.
    """
    start = pem.find(_BEGIN)
    end = pem.find(_END, start)
    if start < 0 or end < 0:
        raise ValueError("no certificate in PEM form")
    certificate = _first(ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)]))
    element = _first(_first(certificate.content).content)
    if element.tag == _VERSION:
        element = _first(element.after)
    for _ in ("signature", "issuer", "validity"):
        element = _first(element.after)
    not_after = _first(_first(element.content).after)
    return _seconds(not_after)


def _first(data: bytes) -> _Element:
    if len(data) < 2:
        raise ValueError("the certificate ends early")
    size, start = data[1], 2
    if size & 0x80:  # the long form: the number of bytes of the length
        start += size & 0x7F
        size = int.from_bytes(data[2:start])
    if len(data) < start + size:
        raise ValueError("the certificate ends early")
    return _Element(data[0], data[start : start + size], data[start + size :])


def _seconds(time: _Element) -> float:
    if time.tag not in _FORMATS:
        raise ValueError("the certificate has no time where its end should be")
    found = datetime.strptime(time.content.decode("ascii"), _FORMATS[time.tag]).replace(tzinfo=UTC)
    if time.tag == _UTC_TIME and found.year >= 2050:  # two digits: 1950 to 2049
        found = found.replace(year=found.year - 100)
    return found.timestamp()
