"""TLS for listeners: contexts from PEM files, which can be replaced while a listener runs."""

import contextlib
import ssl
from pathlib import Path
from typing import Literal

from penstock.errors import CertificateUnusable
from penstock.transport.certificate_expiry import expires_at

__all__ = ["ClientCertificate", "TlsSettings", "server_context"]

ClientCertificate = Literal["required", "optional"]


class TlsSettings:
    """The TLS context of a listener, made of files that `reload` reads again.

    A listener keeps `context` for all its connections. Each handshake gets the certificate and the
    authorities of the last `reload`.
    """

    def __init__(
        self,
        certificate: str | Path,
        key: str | Path,
        *,
        client_ca: str | Path | None = None,
        client_certificate: ClientCertificate = "required",
        application: str | None = None,
    ) -> None:
        """Raise CertificateUnusable. `application` is the protocol over TLS, if clients ask."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._client_certificate: ClientCertificate = client_certificate
        self._application = application
        self._current = self._read()
        self._authorities = self._current.get_ca_certs(binary_form=True)
        self.expires_at = self._expiry()
        """Seconds since the epoch; None if the certificate does not say when it expires."""
        self.context = self._read()
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Read the files again, for new connections; return whether the authorities changed.

        Raise CertificateUnusable and change nothing.
        """
        self._current = self._read()
        before, self._authorities = self._authorities, self._current.get_ca_certs(binary_form=True)
        self.expires_at = self._expiry()
        return before != self._authorities

    def _expiry(self) -> float | None:
        with contextlib.suppress(OSError, ValueError):
            return expires_at(Path(self._certificate).read_text())
        return None

    def _read(self) -> ssl.SSLContext:
        context = server_context(
            self._certificate,
            self._key,
            client_ca=self._client_ca,
            client_certificate=self._client_certificate,
        )
        if self._application is not None:
            context.set_alpn_protocols([self._application])
        return context

    def _choose(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        # OpenSSL calls this for every client, also for one that sends no server name.
        connection.context = self._current


def server_context(
    certificate: str | Path,
    key: str | Path,
    *,
    client_ca: str | Path | None = None,
    client_certificate: ClientCertificate = "required",
) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 and 1.3.

    `certificate` is a PEM file with the certificate chain, `key` a PEM file with the unencrypted
    private key. `client_ca` is a PEM file with the authorities of client certificates; without it
    none are requested. Raise CertificateUnusable with the file and the problem.
    """
    for path in (certificate, key, client_ca):
        if path is not None:
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
    if client_ca is not None:
        _request_certificates(context, client_ca, client_certificate)
    return context


def _request_certificates(
    context: ssl.SSLContext, client_ca: str | Path, wanted: ClientCertificate
) -> None:
    try:
        context.load_verify_locations(client_ca)
    except ssl.SSLError:
        problem = "holds no certificate of an authority in PEM form"
        raise CertificateUnusable(str(client_ca), problem) from None
    context.verify_mode = ssl.CERT_REQUIRED if wanted == "required" else ssl.CERT_OPTIONAL
    # A resumed session would skip the verification of the client's certificate.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


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
