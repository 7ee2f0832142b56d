"""The end of a certificate's validity, compared with OpenSSL's reading of it."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.transport.certificate_expiry import expires_at

TLS = Path(__file__).parents[2] / "support" / "tls"


def certificate(ends: datetime) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1 << 120)
        .not_valid_before(datetime(1960, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("path", sorted(TLS.glob("*.pem")), ids=lambda path: path.name)
def test_the_end_is_the_one_that_openssl_reads(path: Path) -> None:
    decoded = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
    assert expires_at(path.read_text()) == ssl.cert_time_to_seconds(decoded["notAfter"])


@pytest.mark.parametrize("year", [1965, 1999, 2027, 2049, 2050, 2068, 9999])
def test_times_with_two_and_with_four_digits_of_the_year_are_read(year: int) -> None:
    ends = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert expires_at(certificate(ends)) == ends.timestamp()


def test_the_first_certificate_of_a_chain_counts() -> None:
    first, second = (datetime(year, 6, 1, tzinfo=UTC) for year in (2030, 2031))
    text = f"a comment\n{certificate(first)}{certificate(second)}"
    assert expires_at(text) == first.timestamp()


def test_a_text_without_a_whole_certificate_is_an_error() -> None:
    whole = certificate(datetime(2030, 1, 1, tzinfo=UTC))
    der = ssl.PEM_cert_to_DER_cert(whole)
    for text in ("", "-----BEGIN CERTIFICATE-----\n", ssl.DER_cert_to_PEM_cert(b"")):
        with pytest.raises(ValueError, match="certificate"):
            expires_at(text)
    for size in range(60):
        with pytest.raises(ValueError):  # noqa: PT011
            expires_at(ssl.DER_cert_to_PEM_cert(der[:size]))
