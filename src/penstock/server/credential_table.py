"""The credentials of a configuration, prepared for comparison."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from penstock.core.access import Principal
from penstock.server.config import CertificateConfig, Config, PrincipalConfig
from penstock.server.jwt_tokens import JwtIssuer, JwtVerifier
from penstock.server.networks import Network, NetworkTable, parse_network
from penstock.transport.certificate_names import SUBJECT_PREFIX

__all__ = ["CredentialTable", "digest_of", "fingerprint", "read_credentials"]


@dataclasses.dataclass(frozen=True, slots=True)
class CredentialTable:
    """All credentials of a configuration. It is replaced as a whole: threads of Flight read it."""

    tokens: Sequence[tuple[bytes, Principal]]
    api_keys: Sequence[tuple[bytes, Principal]]
    identities: Mapping[str, tuple[bytes, Principal]]
    users: Mapping[str, tuple[str, Principal]]
    decoys: Sequence[str]
    subjects: Mapping[tuple[str, str], Principal]
    jwt: JwtVerifier
    certificates: Mapping[str, Principal]
    networks: NetworkTable[Principal]
    only_from: Mapping[str, Sequence[Network]]


def fingerprint(
    principal: PrincipalConfig, issuers: Mapping[str, JwtIssuer], ranges: object
) -> object:
    """Return a value that differs if any credential of a principal differs.

    `ranges` are the networks of all principals: an address may have another owner now.
    """
    issuer = issuers.get(principal.jwt.issuer) if principal.jwt is not None else None
    return (
        principal.token,
        principal.token_sha256,
        principal.basic,
        principal.api_key_sha256,
        principal.identity_key,
        principal.jwt,
        issuer and issuer.fingerprint,
        principal.certificate,
        principal.networks and ranges,
        principal.only_from,
    )


def read_credentials(
    config: Config, principals: Mapping[str, Principal], issuers: Mapping[str, JwtIssuer]
) -> CredentialTable:
    """Return the credentials of all principals."""
    tokens: list[tuple[bytes, Principal]] = []
    api_keys: list[tuple[bytes, Principal]] = []
    identities: dict[str, tuple[bytes, Principal]] = {}
    users: dict[str, tuple[str, Principal]] = {}
    subjects: dict[tuple[str, str], Principal] = {}
    certificates: dict[str, Principal] = {}
    networks: list[tuple[Network, Principal]] = []
    only_from: dict[str, Sequence[Network]] = {}
    for each in config.principal:
        principal = principals[each.name]
        if each.token is not None:
            tokens.append((digest_of(each.token), principal))
        if each.token_sha256 is not None:
            tokens.append((bytes.fromhex(each.token_sha256), principal))
        if each.api_key_sha256 is not None:
            api_keys.append((bytes.fromhex(each.api_key_sha256), principal))
        if each.identity_key is not None:
            digest = bytes.fromhex(each.identity_key.key_sha256)
            identities[each.identity_key.identity] = (digest, principal)
        if each.basic is not None:
            users[each.basic.username] = (each.basic.password_hash, principal)
        if each.jwt is not None:
            subjects[each.jwt.issuer, each.jwt.subject or each.name] = principal
        if each.certificate is not None:
            certificates[certificate_name(each.certificate)] = principal
        networks += [(parse_network(text), principal) for text in each.networks or ()]
        if each.only_from is not None:
            only_from[each.name] = [parse_network(text) for text in each.only_from]
    return CredentialTable(
        tokens=tokens,
        api_keys=api_keys,
        identities=identities,
        users=users,
        decoys=[encoded for encoded, _ in users.values()],
        subjects=subjects,
        jwt=JwtVerifier(issuers),
        certificates=certificates,
        networks=NetworkTable(networks),
        only_from=only_from,
    )


def certificate_name(config: CertificateConfig) -> str:
    """Return the configured name of a certificate, as in core.access.Peer."""
    return config.san if config.san is not None else f"{SUBJECT_PREFIX}{config.subject}"


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 of a token or key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
