"""TLS contexts are safe by default; what is wrong with a file is said with its name."""

import ssl
from pathlib import Path

import pytest

from penstock.errors import CertificateUnusable, ErrorCode
from penstock.transport.tls import server_context

FILES = Path(__file__).parents[2] / "support" / "tls"
CERTIFICATE, KEY = FILES / "localhost.pem", FILES / "localhost.key"


def test_a_context_takes_no_version_before_1_2() -> None:
    context = server_context(CERTIFICATE, KEY)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_NONE  # of clients


@pytest.mark.parametrize(
    ("certificate", "key", "at_fault", "problem"),
    [
        ("nowhere.pem", KEY, "nowhere.pem", "no such file"),
        (CERTIFICATE, "nowhere.key", "nowhere.key", "no such file"),
        (FILES, KEY, str(FILES), "is a directory"),
        (CERTIFICATE, FILES / "other.key", "other.key", "is not the key of"),
        (CERTIFICATE, FILES / "encrypted.key", "encrypted.key", "protected by a password"),
        (KEY, KEY, "localhost.key", "holds no certificate"),
        (CERTIFICATE, CERTIFICATE, "localhost.pem", "holds no private key"),
        (__file__, KEY, "test_tls.py", "holds no certificate"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    certificate: str | Path, key: str | Path, at_fault: str, problem: str
) -> None:
    with pytest.raises(CertificateUnusable) as caught:
        server_context(certificate, key)
    assert caught.value.path.endswith(at_fault)
    assert problem in caught.value.problem
    assert caught.value.code is ErrorCode.CERTIFICATE_UNUSABLE
