"""TLS for listeners: an SSL context from a certificate and its key."""

import ssl
from pathlib import Path

from penstock.errors import CertificateUnusable

__all__ = ["server_context"]


def server_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 and 1.3 without client certificates.

    `certificate` is a PEM file with the certificate chain, `key` a PEM file with the unencrypted
    private key. Raise CertificateUnusable with the file and the problem.
    """
    for path in (certificate, key):
        _check_readable(Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        problem = "the key is protected by a password; store it without one, readable by few"
        raise CertificateUnusable(str(key), problem) from None
    except ssl.SSLError as error:
        raise CertificateUnusable(*_fault(str(certificate), str(key), error)) from None
    return context


class _Encrypted(Exception):
    """The key is encrypted."""


def _no_password() -> str:
    # Without this callback OpenSSL would prompt on the terminal.
    raise _Encrypted


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise CertificateUnusable(str(path), problem) from None


def _fault(certificate: str, key: str, error: ssl.SSLError) -> tuple[str, str]:
    """Return the file at fault and the problem: the library does not name the file."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return key, f"is not the key of {certificate}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificate)
    except ssl.SSLError:
        return certificate, "holds no certificate in PEM form"
    return key, "holds no private key in PEM form"
