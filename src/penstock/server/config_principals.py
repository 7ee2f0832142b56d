"""Checks of principals, their credentials, and issuers of JSON Web Tokens."""

import hashlib

import argon2

from penstock import limits
from penstock.server.config import (
    IDENTITY_TABLE,
    CertificateConfig,
    Config,
    JwtIssuerConfig,
    PrincipalConfig,
)
from penstock.server.jwt_tokens import UnusableKey, read_issuer
from penstock.server.networks import Network, parse_network
from penstock.settings import Problems
from penstock.transport.certificate_names import SAN_TYPES

__all__ = [
    "RESERVED_NAMES",
    "check_issuers",
    "check_principals",
    "has_secrets",
    "password_hash_problem",
    "principal_name_problem",
]

RESERVED_NAMES = frozenset({"anonymous", "anyone"})
"""Names of the principals of clients without credentials."""

_CREDENTIALS = (
    f"token, token_sha256, basic, api_key_sha256, {IDENTITY_TABLE}, jwt, certificate or networks"
)


def has_secrets(principal: PrincipalConfig) -> bool:
    """Return whether a principal has credentials that others must not read on their way."""
    return any(
        value is not None
        for value in (
            principal.token,
            principal.token_sha256,
            principal.basic,
            principal.api_key_sha256,
            principal.identity_key,
            principal.jwt,
        )
    )


def check_principals(config: Config, problems: Problems) -> None:
    """Add the problems of `[[principal]]`, except those of its rules."""
    taken: dict[tuple[str, str], int] = {}
    networks: dict[Network, int] = {}
    for index, principal in enumerate(config.principal):
        key = f"principal[{index}]"
        problem = principal_name_problem(principal.name)
        if problem is not None:
            problems.add(f"{key}.name", problem)
        credentials = _unique_credentials(principal)
        has_others = principal.certificate is not None or principal.networks is not None
        if not credentials and not has_others and config.auth.users is None:
            problems.add(key, f"expected at least one of {_CREDENTIALS}")
        for name, value in (("name", principal.name), *credentials.items()):
            kind = "token" if name == "token_sha256" else name
            owner = taken.setdefault((kind, value), index)
            if owner != index:
                problems.add(f"{key}.{name}", f"principal[{owner}] has the same; expected another")
        if principal.basic is not None:
            problem = password_hash_problem(principal.basic.password_hash)
            if problem is not None:
                problems.add(f"{key}.basic.password_hash", problem)
        if principal.certificate is not None:
            _check_certificate_name(principal.certificate, f"{key}.certificate", problems)
        if principal.jwt is not None and principal.jwt.issuer not in {
            each.issuer for each in config.jwt
        }:
            problems.add(f"{key}.jwt.issuer", "there is no [[jwt]] with this issuer")
        for network in _parsed(principal.networks or (), f"{key}.networks", problems):
            owner = networks.setdefault(network, index)
            if owner != index:
                problem = f"principal[{owner}] has {network} too; expected another"
                problems.add(f"{key}.networks", problem)
        _parsed(principal.only_from or (), f"{key}.only_from", problems)


def principal_name_problem(name: str) -> str | None:
    """Return the problem of a principal's name, None if there is none."""
    if name.lower() in RESERVED_NAMES:
        return f'"{name}" is the name of clients without credentials; expected another'
    if not name.isprintable() or name != name.strip():
        return "expected printable characters, and no space at the ends"
    if len(name) > limits.PRINCIPAL_NAME_CHARACTERS_MAX:
        return f"expected at most {limits.PRINCIPAL_NAME_CHARACTERS_MAX} characters"
    return None


def _unique_credentials(principal: PrincipalConfig) -> dict[str, str]:
    """Return the credentials that must be unique among principals, by key."""
    certificate, jwt = principal.certificate, principal.jwt
    found = {
        "token": principal.token and hashlib.sha256(principal.token.encode()).hexdigest(),
        "token_sha256": principal.token_sha256 and principal.token_sha256.lower(),
        "basic.username": principal.basic and principal.basic.username,
        "api_key_sha256": principal.api_key_sha256 and principal.api_key_sha256.lower(),
        f"{IDENTITY_TABLE}.identity": principal.identity_key and principal.identity_key.identity,
        "jwt": jwt and f"{jwt.issuer} {jwt.subject or principal.name}",
        "certificate": certificate and f"{certificate.subject} {certificate.san}",
    }
    return {key: value for key, value in found.items() if value}


def password_hash_problem(encoded: str) -> str | None:
    """Return why a password hash is not accepted, None if it is: argon2id, and not weak."""
    try:
        parameters = argon2.extract_parameters(encoded)
    except argon2.exceptions.InvalidHashError:
        parameters = None
    if parameters is None or parameters.type is not argon2.Type.ID:
        return "expected an argon2id hash; `penstock hash-password` prints one"
    if parameters.memory_cost > limits.ARGON2_MEMORY_KIB_MAX:
        return f"expected a hash that takes at most {limits.ARGON2_MEMORY_KIB_MAX} KiB of memory"
    if (
        parameters.memory_cost < limits.ARGON2_MEMORY_KIB_MIN
        or parameters.time_cost < limits.ARGON2_TIME_MIN
        or parameters.salt_len < limits.ARGON2_SALT_BYTES_MIN
        or parameters.hash_len < limits.ARGON2_HASH_BYTES_MIN
    ):
        return (
            f"too weak: expected at least m={limits.ARGON2_MEMORY_KIB_MIN} (KiB of memory), "
            f"t={limits.ARGON2_TIME_MIN}, a salt of {limits.ARGON2_SALT_BYTES_MIN} and a hash of "
            f"{limits.ARGON2_HASH_BYTES_MIN} bytes; `penstock hash-password` prints one"
        )
    return None


def _check_certificate_name(name: CertificateConfig, key: str, problems: Problems) -> None:
    if (name.subject is None) is (name.san is None):
        problems.add(key, "expected either subject or san")
    elif name.san is not None and name.san.partition(":")[0] not in SAN_TYPES:
        kinds = ", ".join(f"{each}:" for each in SAN_TYPES)
        problems.add(f"{key}.san", f"expected a type and a name; the types are {kinds}")


def _parsed(texts: tuple[str, ...], key: str, problems: Problems) -> list[Network]:
    networks = []
    for text in texts:
        try:
            networks.append(parse_network(text))
        except ValueError:
            problem = f'"{text[:40]}" is no network; expected one such as "10.1.0.0/16"'
            problems.add(key, problem)
    return networks


def check_issuers(config: Config, problems: Problems) -> None:
    """Add the problems of `[[jwt]]`: issuers must be unique and their keys usable."""
    taken: dict[str, int] = {}
    for index, issuer in enumerate(config.jwt):
        first = taken.setdefault(issuer.issuer, index)
        if first != index:
            problems.add(f"jwt[{index}].issuer", f"jwt[{first}] has the same; expected another")
        _check_issuer(issuer, f"jwt[{index}]", problems)


def _check_issuer(issuer: JwtIssuerConfig, key: str, problems: Problems) -> None:
    try:
        read_issuer(issuer)
    except UnusableKey as error:
        problems.add(f"{key}.keys", str(error))
