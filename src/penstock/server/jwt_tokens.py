"""JSON Web Tokens: signatures with pinned algorithms and keys, issuer, audience and expiry.

The header of a token chooses nothing: keys and algorithms are those of the configuration. A key is
used only with algorithms of its own kind, so a public key is never taken for a secret.
"""

import base64
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import AuthenticationFailed
from penstock.limits import JWT_BYTES_MAX, JWT_RSA_BITS_MIN, JWT_SECRET_BYTES_MIN
from penstock.server.config import JwtIssuerConfig

__all__ = ["JwtIssuer", "JwtVerifier", "UnusableKey", "Verified", "read_issuer"]

KIND: Final = "token"
_DOTS: Final = 2
_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1"}
_MISSING: Final = "needs PyJWT, which is not installed; install penstock-broker[jwt]"


class UnusableKey(Exception):
    """A key file cannot be used; the text says why."""


class Verified(NamedTuple):
    """The contents of a token that count. `expires_at` is in seconds since the epoch."""

    issuer: str
    subject: str
    expires_at: float


class JwtVerifier:
    """Verifies tokens of several issuers; the claim `iss` selects one, and is verified with it."""

    def __init__(self, issuers: Mapping[str, "JwtIssuer"]) -> None:
        self._issuers = issuers

    def accepts(self, token: str) -> bool:
        """Return whether a token has the form of a JSON Web Token, and there are issuers."""
        return bool(self._issuers) and token.count(".") == _DOTS

    def verify(self, token: str) -> Verified:
        """Return the contents of a token; raise AuthenticationFailed."""
        if len(token) > JWT_BYTES_MAX:
            raise AuthenticationFailed(KIND, f"longer than {JWT_BYTES_MAX} bytes")
        issuer = self._issuers.get(_issuer_of(token))
        if issuer is None:
            raise AuthenticationFailed(KIND, "unknown issuer")
        return issuer.verify(token)


def _issuer_of(token: str) -> str:
    """Return the claim `iss`, which is not verified yet; empty if there is none."""
    body = token.split(".")[1]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return ""
    found = claims.get("iss") if isinstance(claims, dict) else None
    return found if isinstance(found, str) else ""


class JwtIssuer:
    """Verifies the tokens of one issuer."""

    def __init__(
        self, config: JwtIssuerConfig, keys: Sequence[tuple[object, list[str]]], fingerprint: bytes
    ) -> None:
        self._config = config
        self._keys = keys
        self._library: Any = importlib.import_module("jwt")
        self.fingerprint = fingerprint
        """Differs if the settings or the contents of a key file differ."""

    def verify(self, token: str) -> Verified:
        """Return the contents of a token; raise AuthenticationFailed."""
        reason = "no key of the issuer fits its algorithm"
        for key, algorithms in self._keys:
            try:
                claims = self._decode(token, key, algorithms)
            except self._library.InvalidSignatureError:
                reason = "wrong signature"
            except self._library.InvalidAlgorithmError:
                continue
            except self._library.PyJWTError as error:
                raise AuthenticationFailed(KIND, f"token: {error}"[:200]) from None
            except (ValueError, TypeError, ArithmeticError, RecursionError):
                raise AuthenticationFailed(KIND, "token: malformed") from None
            else:
                return self._read(claims)
        raise AuthenticationFailed(KIND, reason)

    def _decode(self, token: str, key: object, algorithms: list[str]) -> dict[str, Any]:
        config = self._config
        header = self._library.get_unverified_header(token)
        if header.get("alg") not in algorithms:
            raise self._library.InvalidAlgorithmError
        if "crit" in header:  # RFC 7515, section 4.1.11: extensions that must be understood
            raise AuthenticationFailed(KIND, "token: it has critical extensions")
        claims: dict[str, Any] = self._library.decode(
            token,
            key,
            algorithms=algorithms,
            audience=config.audience,
            issuer=config.issuer,
            leeway=config.leeway_seconds,
            options={"require": ["exp", "iss", "aud", config.claim]},
        )
        return claims

    def _read(self, claims: dict[str, Any]) -> Verified:
        subject = claims.get(self._config.claim)
        if not isinstance(subject, str) or not subject:
            raise AuthenticationFailed(KIND, f"token: claim {self._config.claim} is no text")
        expires_at = float(claims["exp"]) + self._config.leeway_seconds
        return Verified(self._config.issuer, subject, expires_at)


def read_issuer(config: JwtIssuerConfig) -> JwtIssuer:
    """Return the verifier of an issuer with its keys; raise UnusableKey with file and problem."""
    try:
        importlib.import_module("jwt")
        importlib.import_module("cryptography")
    except ImportError:
        raise UnusableKey(_MISSING) from None
    digest = hashlib.sha256(repr(config).encode())
    keys = []
    for path in config.keys:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise UnusableKey(f"{path} cannot be read: {reason}") from None
        digest.update(hashlib.sha256(data).digest())
        keys.append(_read_key(path, data, config.algorithms))
    used = {algorithm for _, algorithms in keys for algorithm in algorithms}
    unused = [each for each in config.algorithms if each not in used]
    if unused:
        raise UnusableKey(f"no file in keys is a key for {', '.join(unused)}")
    return JwtIssuer(config, keys, digest.digest())


def _read_key(path: str, data: bytes, algorithms: Sequence[str]) -> tuple[object, list[str]]:
    """Return a key with those of `algorithms` that it may be used with."""
    if all(each.startswith("HS") for each in algorithms):
        secret = data.rstrip(b"\r\n")
        if b"-----BEGIN" in data or secret.startswith(b"ssh-"):
            raise UnusableKey(f"{path} is a key in PEM form; HS algorithms need a random secret")
        if len(secret) < JWT_SECRET_BYTES_MIN:
            raise UnusableKey(f"{path} has fewer than {JWT_SECRET_BYTES_MIN} bytes")
        return secret, list(algorithms)
    if any(each.startswith("HS") for each in algorithms):
        raise UnusableKey("HS algorithms have a secret, the others public keys: use two [[jwt]]")
    key = _read_public_key(path, data)
    fitting = [each for each in algorithms if _fits(path, key, each)]
    if not fitting:
        raise UnusableKey(f"{path} is no key for {', '.join(algorithms)}")
    return key, fitting


def _read_public_key(path: str, data: bytes) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  (an extra)
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    if b"PRIVATE KEY-----" in data:
        raise UnusableKey(f"{path} holds a private key; the broker needs the public key only")
    try:
        return load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableKey(f"{path} holds no public key in PEM form") from None


def _fits(path: str, key: object, algorithm: str) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    if algorithm[:2] in {"RS", "PS"}:
        if not isinstance(key, rsa.RSAPublicKey):
            return False
        if key.key_size < JWT_RSA_BITS_MIN:
            raise UnusableKey(f"{path} has fewer than {JWT_RSA_BITS_MIN} bits")
        return True
    if algorithm in _CURVES:
        return isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == _CURVES[algorithm]
    return isinstance(key, ed25519.Ed25519PublicKey)
