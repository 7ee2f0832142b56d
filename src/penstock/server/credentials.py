"""Authenticate clients with the credentials of the configuration.

Secrets are compared in constant time, and with all candidates. An unknown user name also costs the
verification of a password, so response times do not reveal which names exist.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import argon2

from penstock.core.access import Action, Peer, Principal, Rule
from penstock.core.quotas import Quota, QuotaLimits
from penstock.core.stored_bytes import StoredCounts
from penstock.errors import AuthenticationFailed, ConfigError, PeerError
from penstock.limits import KIB, PASSWORD_BYTES_MAX, VERIFICATIONS_AT_ONCE_MAX
from penstock.server.config import (
    AnonymousConfig,
    Config,
    PrincipalConfig,
    QuotaConfig,
    Verdict,
)
from penstock.server.credential_table import (
    CredentialTable,
    digest_of,
    fingerprint,
    read_credentials,
)
from penstock.server.jwt_tokens import JwtIssuer, UnusableKey, read_issuer
from penstock.server.login_throttle import GuessLimit, PasswordThrottle
from penstock.server.networks import contains
from penstock.server.password_queue import PasswordQueue
from penstock.server.password_workers import BASIC, PasswordWorkers
from penstock.server.verified_passwords import VerifiedPasswords

__all__ = ["ANONYMOUS", "NO_PEER", "Authenticator", "KnownPeer", "hash_key", "hash_password"]

ANONYMOUS: Final = "anonymous"
"""The name of the principal of clients without credentials; no other may have it."""


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password with a new salt, for `basic.password_hash`."""
    return argon2.PasswordHasher().hash(password)


def hash_key(key: bytes) -> str:
    """Return the SHA-256 of a key, for `api_key_sha256` and the `key_sha256` of an identity."""
    return hashlib.sha256(key).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class KnownPeer:
    """The peer of a connection that is not a link, see core.access.Peer."""

    host: str = ""
    certificate_names: frozenset[str] = frozenset()
    has_left: bool = False


NO_PEER: Final = KnownPeer()


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedPrincipals:
    """The part of an update that takes long: thousands of rules take tenths of a second."""

    config: Config
    issuers: Mapping[str, JwtIssuer]
    rules: Mapping[str, tuple[Rule, ...]]
    anonymous_rules: tuple[Rule, ...]
    fingerprints: Mapping[str, object]


class Authenticator:
    """Finds the principal of credentials. `update` replaces the configuration in place.

    Principals are updated, not replaced: after `update`, open sessions have the new rules of their
    principal. A removed principal is denied everything.
    """

    def __init__(self, config: Config) -> None:
        self.anonymous = Principal(ANONYMOUS, is_anonymous=True)
        self.local_anonymous = Principal(ANONYMOUS, is_anonymous=True)
        """Anonymous clients of listeners that no other machine can reach."""
        self.local_anonymous.quota = self.anonymous.quota
        self._principals: dict[str, Principal] = {}
        self._stored: StoredCounts | None = None
        self._fingerprints: dict[str, object] = {}
        self._credentials: CredentialTable
        self._decoy_secret = secrets.token_bytes(16)
        self._verified = VerifiedPasswords()
        self._throttle = PasswordThrottle()
        self._guesses = GuessLimit()
        self._queue = PasswordQueue()
        self._workers = PasswordWorkers()
        self._checks: set[asyncio.Task[None]] = set()
        self.update(config)

    @staticmethod
    def prepare(config: Config) -> "PreparedPrincipals":
        """Compile the rules and read the key files of a configuration, in any thread.

        Raise ConfigError if a key file cannot be used.
        """
        try:
            issuers = {each.issuer: read_issuer(each) for each in config.jwt}
        except UnusableKey as error:
            raise ConfigError("jwt", "keys", str(error)) from None
        ranges = tuple((each.name, each.networks) for each in config.principal if each.networks)
        return PreparedPrincipals(
            config,
            issuers=issuers,
            rules={each.name: _rules(config, each) for each in config.principal},
            anonymous_rules=_rules(config, config.anonymous),
            fingerprints={
                each.name: fingerprint(each, issuers, ranges) for each in config.principal
            },
        )

    def update(
        self, config: Config, prepared: "PreparedPrincipals | None" = None
    ) -> frozenset[str]:
        """Replace the principals; return the names of those whose log-ins are void.

        Those are the removed ones, and those whose credentials differ in any way. `prepared` is
        made of another configuration if it was changed meanwhile: then it is made again. Raise
        ConfigError and change nothing if a key file cannot be used.
        """
        if prepared is None or prepared.config != config:
            prepared = self.prepare(config)
        before = self._principals
        self._principals = {
            each.name: before.get(each.name) or Principal(each.name) for each in config.principal
        }
        for each in config.principal:
            _set_rules(self._principals[each.name], prepared.rules[each.name], each.default)
            _set_quota(self._principals[each.name], config, each, config.quota)
        rules, default = prepared.anonymous_rules, config.anonymous.default
        _set_rules(self.anonymous, rules, default)
        # As long as nothing is configured, clients on this machine may administer the broker.
        _set_rules(self.local_anonymous, rules, default, administers=not rules and default is None)
        _set_quota(self.anonymous, config, config.anonymous, QuotaConfig())
        self._count_stored()
        for name in before.keys() - self._principals.keys():
            _set_rules(before[name], (), "deny")
        void = {
            name
            for name, before_update in self._fingerprints.items()
            if prepared.fingerprints.get(name) != before_update
        }
        self._fingerprints = dict(prepared.fingerprints)
        self._credentials = read_credentials(config, self._principals, prepared.issuers)
        for name in void:
            before[name].credentials_version += 1
        return frozenset(void)

    def count_stored(self, stored: StoredCounts) -> None:
        """Count the bytes of all principals in the log from now on, also of later ones."""
        self._stored = stored
        self._count_stored()

    def _count_stored(self) -> None:
        if self._stored is not None:
            for quota in self.quotas():
                quota.stored = self._stored.of(quota.principal)

    def quotas(self) -> list[Quota]:
        """Return the quotas of all principals, by their names; the anonymous one comes last."""
        principals = [self._principals[name] for name in sorted(self._principals)]
        return [each.quota for each in (*principals, self.anonymous)]

    def quota_of(self, owner: str) -> Quota | None:
        """Return the quota that applies to an owner of topics and groups, see `topic_owner`.

        It is None if the principal was removed.
        """
        if owner in self._principals:
            return self._principals[owner].quota
        is_anonymous = owner.startswith(f"{self.anonymous.name}@")
        return self.anonymous.quota if is_anonymous else None

    def revoke(self, names: frozenset[str]) -> None:
        """Void the log-ins of principals whose credentials are the same."""
        for name in names & self._principals.keys():
            self._principals[name].credentials_version += 1

    @property
    def principals(self) -> Mapping[str, Principal]:
        """All principals with credentials, by name."""
        return self._principals

    @property
    def active(self) -> bool:
        """See core.access.Authenticator."""
        return bool(self._principals)

    @property
    def password_checks(self) -> int:
        """Number of passwords that wait for verification."""
        return len(self._queue)

    @property
    def password_memory_bytes(self) -> int:
        """Memory of the verifications of passwords that run at the same time."""
        costs = [
            argon2.extract_parameters(encoded).memory_cost
            for encoded, _ in self._credentials.users.values()
        ]
        return VERIFICATIONS_AT_ONCE_MAX * max(costs, default=0) * KIB

    # --- Certificates and addresses ---------------------------------------------------------------

    def identify(self, peer: Peer) -> Principal | None:
        """See core.access.Authenticator: a certificate counts before an address."""
        known = self._credentials
        found = {
            principal.name: principal
            for name in peer.certificate_names
            if (principal := known.certificates.get(name)) is not None
        }
        if len(found) > 1:
            raise AuthenticationFailed("certificate", f"of several: {', '.join(sorted(found))}")
        for principal in found.values():
            return self._allowed_from(principal, peer, "certificate")
        by_address = known.networks.find(peer.host)
        if by_address is None:
            return None
        return self._allowed_from(by_address, peer, "address")

    def _allowed_from(self, principal: Principal, peer: Peer, kind: str) -> Principal:
        networks = self._credentials.only_from.get(principal.name)
        if networks is not None and not contains(networks, peer.host):
            reason = f"{principal.name} is not accepted from {peer.host or 'this machine'}"
            raise AuthenticationFailed(kind, reason)
        return principal

    # --- fleximq, section 5.2 ---------------------------------------------------------------------

    def verify_token(self, token: str, peer: Peer = NO_PEER) -> Principal:
        """Return the principal of a token or JSON Web Token; raise AuthenticationFailed."""
        digest = digest_of(token)
        with self._guess(peer, digest, "token"):
            if self._credentials.jwt.accepts(token):
                try:
                    found = _find("token", digest, self._credentials.tokens)
                except AuthenticationFailed:
                    found = self._verify_jwt(token)
            else:
                found = _find("token", digest, self._credentials.tokens)
            return self._allowed_from(found, peer, "token")

    def _verify_jwt(self, token: str) -> Principal:
        known = self._credentials
        verified = known.jwt.verify(token)
        found = known.subjects.get((verified.issuer, verified.subject))
        if found is None:
            raise AuthenticationFailed("token", "its subject is no principal")
        return found

    def seconds_left(self, token: str) -> float | None:
        """See core.access.Authenticator."""
        known = self._credentials
        if not known.jwt.accepts(token):
            return None
        try:
            return max(known.jwt.verify(token).expires_at - time.time(), 0.0)
        except AuthenticationFailed:  # a static one that looks like it, or it has just expired
            static = (*known.tokens, *known.api_keys)
            digest = digest_of(token)
            return None if any(hmac.compare_digest(each, digest) for each, _ in static) else 0.0

    def verify_api_key(self, api_key: str, peer: Peer = NO_PEER) -> Principal:
        """Return the principal of an API key; raise AuthenticationFailed."""
        digest = digest_of(api_key)
        with self._guess(peer, digest, "API key"):
            found = _find("API key", digest, self._credentials.api_keys)
            return self._allowed_from(found, peer, "API key")

    def verify_bearer(self, secret: str, peer: Peer = NO_PEER) -> Principal:
        """Return the principal of a token or an API key; raise AuthenticationFailed.

        Threads may call this.
        """
        digest = digest_of(secret)
        try:
            found = _find("token", digest, self._credentials.api_keys)
        except AuthenticationFailed:
            return self.verify_token(secret, peer)
        with self._guess(peer, digest, "API key"):
            return self._allowed_from(found, peer, "API key")

    @contextlib.contextmanager
    def _guess(self, peer: Peer, digest: bytes, kind: str) -> Iterator[None]:
        """Refuse an address that has made too many guesses; count one that fails."""
        if self._guesses.reached(peer.host, digest):
            raise AuthenticationFailed(kind, "too many wrong ones from this address")
        try:
            yield
        except AuthenticationFailed:
            self._guesses.failed(peer.host, digest)
            raise
        self._guesses.succeeded(peer.host, digest)

    async def verify_basic(self, username: str, password: str, peer: Peer = NO_PEER) -> Principal:
        """Return the principal of a user name and password; raise AuthenticationFailed.

        The verification takes tens of milliseconds, in a process of its own. For a minute, the same
        password from the same address is not verified again. After some wrong passwords for a user
        name, further ones from the same address are refused for a while.
        """
        users = self._credentials.users
        if not users:
            raise AuthenticationFailed(BASIC, "no principal has a password")
        encoded_password = password.encode("utf-8", "surrogatepass")
        if len(encoded_password) > PASSWORD_BYTES_MAX:
            raise AuthenticationFailed(BASIC, f"longer than {PASSWORD_BYTES_MAX} bytes")

        def admit() -> None:
            seconds = self._throttle.seconds_left(peer.host, username)
            if seconds:
                reason = f"too many wrong passwords, wait {seconds:.1f} s"
                raise AuthenticationFailed(BASIC, reason)

        admit()
        known = users.get(username)
        encoded = known[0] if known is not None else self._decoy(username)

        digest = b""
        if known is not None:
            digest = self._verified.digest(
                peer.host, username, encoded=encoded, password=encoded_password
            )
            if self._verified.holds(digest):
                self._throttle.succeeded(peer.host, username)
                return self._allowed_from(known[1], peer, BASIC)

        def count(right: bool) -> None:  # noqa: FBT001
            if known is None or not right:
                self._throttle.failed(peer.host, username)
            else:
                self._throttle.succeeded(peer.host, username)

        right = await self._queue.run(
            peer,
            admit=admit,
            verify=lambda: self._workers.verify(encoded, encoded_password),
            count=count,
        )
        if known is None or not right:
            reason = "unknown user name" if known is None else "wrong password"
            raise AuthenticationFailed(BASIC, reason)
        if self._credentials.users.get(username) != known:
            raise AuthenticationFailed(BASIC, "changed meanwhile")
        self._verified.add(digest)
        return self._allowed_from(known[1], peer, BASIC)

    def check_basic(
        self,
        username: str,
        password: str,
        peer: Peer,
        then: Callable[[Principal | PeerError], None],
    ) -> Callable[[], None]:
        """See core.access.Authenticator."""
        check = self._check_basic(username, password, peer, then)
        task = asyncio.get_running_loop().create_task(check)
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

        def cancel() -> None:
            if task is not asyncio.current_task():
                task.cancel()

        return cancel

    async def _check_basic(
        self,
        username: str,
        password: str,
        peer: Peer,
        then: Callable[[Principal | PeerError], None],
    ) -> None:
        try:
            found: Principal | PeerError = await self.verify_basic(username, password, peer)
        except AuthenticationFailed as error:
            found = error
        then(found)

    def _decoy(self, username: str) -> str:
        """Return the hash that an unknown name is verified against, always the same for a name.

        It is one of the configured hashes, so it takes the same time as a known name.
        """
        decoys = self._credentials.decoys
        mark = hmac.digest(self._decoy_secret, username.encode("utf-8", "surrogatepass"), "sha256")
        return decoys[int.from_bytes(mark[:8], "big") % len(decoys)]

    # --- Identity names and keys ------------------------------------------------------------------

    def requires_key(self, identity: str) -> bool:
        """Return whether an identity name belongs to a principal and so requires a key."""
        return identity in self._credentials.identities

    def verify_identity_key(self, identity: str, key: bytes, peer: Peer = NO_PEER) -> Principal:
        """Return the principal of an identity name and key; raise AuthenticationFailed."""
        found = hashlib.sha256(key).digest()
        with self._guess(
            peer, hashlib.sha256(identity.encode() + b"\0" + key).digest(), "identity"
        ):
            digest, principal = self._credentials.identities.get(
                identity, (bytes(len(found)), None)
            )
            right = hmac.compare_digest(found, digest)
            if principal is None:
                raise AuthenticationFailed("identity", "unknown identity name")
            if not right:
                raise AuthenticationFailed("identity", "wrong key")
            return self._allowed_from(principal, peer, "identity")

    def close(self) -> None:
        """End the processes that verify passwords."""
        self._queue.close()
        self._workers.close()


def _find(kind: str, digest: bytes, known: Sequence[tuple[bytes, Principal]]) -> Principal:
    found = None
    for each, principal in known:
        if hmac.compare_digest(each, digest):
            found = principal
    if found is None:
        raise AuthenticationFailed(kind, f"unknown {kind}")
    return found


def _rules(config: Config, owner: PrincipalConfig | AnonymousConfig) -> tuple[Rule, ...]:
    """Return the rules of a principal: its own, then those of its roles in their order."""
    roles = {role.name: role.rule for role in config.role}
    own = [
        *((rule, "") for rule in owner.rule),
        *((rule, name) for name in owner.roles for rule in roles.get(name, ())),
    ]
    return tuple(
        Rule(
            allow=rule.allow is not None,
            actions=frozenset(Action(action) for action in rule.allow or rule.deny or ()),
            pattern=topic,
            role=role,
        )
        for rule, role in own
        for topic in rule.topics
    )


def _set_quota(
    principal: Principal,
    config: Config,
    settings: PrincipalConfig | AnonymousConfig,
    defaults: QuotaConfig,
) -> None:
    """Set the quota of a principal: of each limit its own, that of its first role, or a default."""
    roles = {role.name: role.quota for role in config.role}
    tables = [settings.quota, *(roles[name] for name in settings.roles), defaults]
    found = {
        field: next((value for each in tables if (value := getattr(each, field)) is not None), 0)
        for field in QuotaConfig.__struct_fields__
    }
    principal.quota.set_limits(QuotaLimits(**found), time.monotonic())


def _set_rules(
    principal: Principal,
    rules: tuple[Rule, ...],
    default: Verdict | None,
    *,
    administers: bool = False,
) -> None:
    """Set the rules of a principal and clear its cached decisions, if they have changed.

    Without a default, a name that no rule matches is denied if any rule allows something, else
    allowed.
    """
    if default is None:
        default = "deny" if any(rule.allow for rule in rules) else "allow"
    rights = principal.rights
    if (rights.rules, rights.default, rights.administers) != (
        rules,
        default == "allow",
        administers,
    ):
        principal.set_rules(rules, default=default == "allow", administers=administers)
