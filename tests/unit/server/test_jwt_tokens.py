"""JSON Web Tokens: only pinned algorithms, keys of their kind, and claims that hold."""

import base64
import hashlib
import hmac
import json
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from penstock.errors import AuthenticationFailed
from penstock.server.config import Config, JwtConfig, JwtIssuerConfig, PrincipalConfig
from penstock.server.credentials import Authenticator
from penstock.server.jwt_tokens import JwtVerifier, UnusableKey, read_issuer

ISSUER, AUDIENCE = "https://id.example", "penstock"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[str, Any] = {"RS256": RSA, "PS256": RSA, "ES256": EC, "EdDSA": ED}
SECRET = b"0123456789abcdef0123456789abcdef"


def pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def issuer(*keys: str, algorithms: tuple[Any, ...] = ("RS256",), **more: Any) -> JwtIssuerConfig:
    return JwtIssuerConfig(
        issuer=ISSUER, audience=AUDIENCE, algorithms=algorithms, keys=keys, **more
    )


def verifier(config: JwtIssuerConfig) -> JwtVerifier:
    return JwtVerifier({config.issuer: read_issuer(config)})


def claims(**changed: Any) -> dict[str, Any]:
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "press-4", "exp": time.time() + 60, **changed}
    return {name: value for name, value in found.items() if value is not None}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def handmade(header: dict[str, Any], body: dict[str, Any], key: bytes | None = None) -> str:
    """A token that no library would make; with a key its signature is HS256."""
    signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, body))
    mark = b"" if key is None else hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64url(mark)}"


@pytest.fixture
def rs256(tmp_path: Path) -> JwtVerifier:
    return verifier(issuer(written(tmp_path, "rsa.pem", pem(RSA))))


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_token_of_each_algorithm(tmp_path: Path, algorithm: str) -> None:
    key = PRIVATE[algorithm]
    known = verifier(issuer(written(tmp_path, "k", pem(key)), algorithms=(algorithm,)))
    found = known.verify(jwt.encode(claims(), key, algorithm))
    assert (found.issuer, found.subject) == (ISSUER, "press-4")
    other = {"RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
             "ES256": ec.generate_private_key(ec.SECP256R1()),
             "EdDSA": ed25519.Ed25519PrivateKey.generate()}.get(algorithm)  # fmt: skip
    if other is not None:
        with pytest.raises(AuthenticationFailed) as caught:
            known.verify(jwt.encode(claims(), other, algorithm))
        assert caught.value.reason == "wrong signature"


def test_a_shared_secret(tmp_path: Path) -> None:
    config = issuer(written(tmp_path, "secret", SECRET + b"\n"), algorithms=("HS256",))
    assert verifier(config).verify(jwt.encode(claims(), SECRET, "HS256")).subject == "press-4"


def test_old_and_new_key_are_tried(tmp_path: Path) -> None:
    keys = [written(tmp_path, "a", pem(EC)), written(tmp_path, "b", pem(RSA))]
    known = verifier(issuer(*keys, algorithms=("RS256", "ES256")))
    assert known.verify(jwt.encode(claims(), RSA, "RS256")).subject == "press-4"
    assert known.verify(jwt.encode(claims(), EC, "ES256")).subject == "press-4"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": time.time() - 60}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"nbf": time.time() + 86_400}, "not yet valid"),
        ({"iss": None}, "unknown issuer"),
        ({"iss": "https://other.example"}, "unknown issuer"),
        ({"aud": None}, "aud"),
        ({"aud": "another"}, "udience"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "no text"),
        ({"sub": 7}, ""),
    ],
)
def test_claims_that_do_not_hold(rs256: JwtVerifier, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        rs256.verify(jwt.encode(claims(**changed), RSA, "RS256"))
    assert reason in caught.value.reason
    assert "press-4" not in str(caught.value)


def test_clocks_may_differ_by_the_leeway(rs256: JwtVerifier) -> None:
    token = jwt.encode(claims(exp=time.time() - 10, nbf=time.time() + 10), RSA, "RS256")
    assert rs256.verify(token).subject == "press-4"


def test_no_algorithm_is_no_signature(rs256: JwtVerifier) -> None:
    for name in ("none", "None", "NONE", "", None):
        with pytest.raises(AuthenticationFailed):
            rs256.verify(handmade({"alg": name, "typ": "JWT"}, claims()))
    with pytest.raises(AuthenticationFailed):
        rs256.verify(handmade({"typ": "JWT"}, claims()))


def test_a_public_key_is_never_a_secret(tmp_path: Path, rs256: JwtVerifier) -> None:
    token = handmade({"alg": "HS256", "typ": "JWT"}, claims(), pem(RSA))
    with pytest.raises(AuthenticationFailed):
        rs256.verify(token)
    path = written(tmp_path, "k", pem(RSA))
    with pytest.raises(UnusableKey, match="a random secret"):
        read_issuer(issuer(path, algorithms=("HS256",)))
    with pytest.raises(UnusableKey, match=r"use two \[\[jwt\]\]"):
        read_issuer(issuer(path, algorithms=("RS256", "HS256")))


def test_the_header_chooses_no_key(rs256: JwtVerifier) -> None:
    own = ec.generate_private_key(ec.SECP256R1())
    for header in ({"jwk": {"kty": "oct"}}, {"kid": "../../dev/null"}, {"jku": "https://evil"}):
        with pytest.raises(AuthenticationFailed):
            rs256.verify(jwt.encode(claims(), own, "ES256", headers=header))
    with pytest.raises(AuthenticationFailed):
        rs256.verify(jwt.encode(claims(), RSA, "RS256", headers={"crit": ["exp"], "exp": 1}))


@pytest.mark.parametrize("token", ["..", "a.b.c", "." * 2, "é.é.é", "e30.e30.", "x" * 9000 + ".."])
def test_garbage(rs256: JwtVerifier, token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        rs256.verify(token)


def test_a_deep_token_is_garbage(rs256: JwtVerifier) -> None:
    deep = base64url(b'{"iss":"' + ISSUER.encode() + b'","x":' + b"[" * 2000 + b"]" * 2000 + b"}")
    with pytest.raises(AuthenticationFailed):
        rs256.verify(f"{base64url(json.dumps({'alg': 'RS256'}).encode())}.{deep}.AAAA")


@pytest.mark.parametrize(
    ("data", "algorithms", "problem"),
    [
        (None, ("RS256",), "cannot be read: no such file"),
        (b"nonsense", ("RS256",), "no public key"),
        (SECRET[:31], ("HS256",), "fewer than 32 bytes"),
        (pem(EC), ("RS256",), "no key for RS256"),
        (pem(EC), ("ES384",), "no key for ES384"),
        (pem(RSA), ("RS256", "ES256"), "is a key for ES256"),
        (pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)), ("RS256",), "2048"),  # noqa: S505
        (RSA.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                           serialization.NoEncryption()), ("RS256",), "private key"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_used(
    tmp_path: Path, data: bytes | None, algorithms: tuple[str, ...], problem: str
) -> None:
    path = str(tmp_path / "none") if data is None else written(tmp_path, "key", data)
    with pytest.raises(UnusableKey, match=problem):
        read_issuer(issuer(path, algorithms=algorithms))


def test_the_subject_gives_the_principal_and_new_keys_void_its_logins(tmp_path: Path) -> None:
    path = written(tmp_path, "k", pem(RSA))
    config = Config(
        jwt=(issuer(path, claim="client"),),
        principal=(
            PrincipalConfig(name="press", jwt=JwtConfig(issuer=ISSUER, subject="press-4")),
            PrincipalConfig(name="oven", jwt=JwtConfig(issuer=ISSUER)),
            PrincipalConfig(name="other", token="a.b.c"),  # noqa: S106
            PrincipalConfig(name="third", api_key_sha256=hashlib.sha256(b"d.e.f").hexdigest()),
        ),
    )
    authenticator = Authenticator(config)
    token = jwt.encode(claims(client="press-4"), RSA, "RS256")
    assert authenticator.verify_token(token).name == "press"
    assert authenticator.verify_bearer(token).name == "press"
    left = authenticator.seconds_left(token)
    assert left is not None
    assert 60 < left <= 90
    assert authenticator.verify_token("a.b.c").name == "other"
    assert authenticator.seconds_left("a.b.c") is None
    assert authenticator.verify_bearer("d.e.f").name == "third"
    assert authenticator.seconds_left("d.e.f") is None
    assert authenticator.seconds_left("g.h.i") == 0.0
    assert authenticator.seconds_left("of another form") is None
    assert (
        authenticator.verify_token(jwt.encode(claims(client="oven"), RSA, "RS256")).name == "oven"
    )
    for subject in ("other", "press", "nobody"):
        with pytest.raises(AuthenticationFailed) as caught:
            authenticator.verify_token(jwt.encode(claims(client=subject), RSA, "RS256"))
        assert caught.value.reason == "its subject is no principal"
    assert authenticator.update(config) == frozenset()
    Path(path).write_bytes(pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    assert authenticator.update(config) == {"press", "oven"}
    with pytest.raises(AuthenticationFailed):
        authenticator.verify_token(token)
    authenticator.close()


@pytest.mark.parametrize("library", ["jwt", "cryptography"])
def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    config = issuer(written(tmp_path, "key.pem", pem(RSA)))
    read_issuer(config)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UnusableKey, match=r"install penstock-broker\[jwt\]"):
        read_issuer(config)
