"""Authenticate clients with the credentials of the configuration.

Secrets are compared in constant time, and with all candidates. An unknown user name also costs the
verification of a password, so response times do not reveal which names exist.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import argon2

from penstock.core.access import Action, Principal, Rule
from penstock.errors import AuthenticationFailed, PeerError
from penstock.server.config import Config, RuleConfig, Verdict

__all__ = ["Authenticator", "hash_key", "hash_password"]

VERIFICATIONS_AT_ONCE_MAX: Final = 2
"""Passwords verified at the same time. Each needs a core and, by default, 64 MiB."""
VERIFICATIONS_WAITING_MAX: Final = 256
"""Passwords that wait for verification; further clients are refused."""


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password with a new salt, for `basic.password_hash`."""
    return argon2.PasswordHasher().hash(password)


def hash_key(key: bytes) -> str:
    """Return the SHA-256 of a key, for `api_key_sha256` and the `key_sha256` of an identity."""
    return hashlib.sha256(key).hexdigest()


class Authenticator:
    """Finds the principal of credentials. `update` replaces the configuration in place.

    Principals are updated, not replaced: after `update`, open sessions have the new rules of their
    principal. A removed principal is denied everything.
    """

    def __init__(self, config: Config) -> None:
        self.anonymous = Principal("anonymous", anonymous=True)
        self._principals: dict[str, Principal] = {}
        self._tokens: list[tuple[bytes, Principal]] = []
        self._api_keys: list[tuple[bytes, Principal]] = []
        self._identities: dict[str, tuple[bytes, Principal]] = {}
        self._users: dict[str, tuple[str, Principal]] = {}
        self._decoys: list[str] = []
        self._decoy_secret = secrets.token_bytes(16)
        self._verifying = 0
        self._checks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(
            VERIFICATIONS_AT_ONCE_MAX, thread_name_prefix="penstock-passwords"
        )
        self.update(config)

    def update(self, config: Config) -> frozenset[str]:
        """Replace the principals; return the names of those that were removed."""
        before = self._principals
        self._principals = {
            each.name: before.get(each.name) or Principal(each.name) for each in config.principal
        }
        for each in config.principal:
            _set_rules(self._principals[each.name], each.rule, each.default)
        _set_rules(self.anonymous, config.anonymous.rule, config.anonymous.default)
        gone = before.keys() - self._principals.keys()
        for name in gone:
            _set_rules(before[name], (), "deny")
        self._read_credentials(config)
        return frozenset(gone)

    def _read_credentials(self, config: Config) -> None:
        self._tokens.clear()
        self._api_keys.clear()
        self._identities.clear()
        self._users.clear()
        for each in config.principal:
            principal = self._principals[each.name]
            if each.token is not None:
                self._tokens.append((_digest(each.token), principal))
            if each.api_key_sha256 is not None:
                self._api_keys.append((bytes.fromhex(each.api_key_sha256), principal))
            if each.identity_key is not None:
                digest = bytes.fromhex(each.identity_key.key_sha256)
                self._identities[each.identity_key.identity] = (digest, principal)
            if each.basic is not None:
                self._users[each.basic.username] = (each.basic.password_hash, principal)
        self._decoys = [encoded for encoded, _ in self._users.values()]

    @property
    def principals(self) -> Mapping[str, Principal]:
        """All principals with credentials, by name."""
        return self._principals

    # --- fleximq, section 5.2 ---------------------------------------------------------------------

    def verify_token(self, token: str) -> Principal:
        """Return the principal of a token; raise AuthenticationFailed."""
        return _find("token", _digest(token), self._tokens)

    def verify_api_key(self, api_key: str) -> Principal:
        """Return the principal of an API key; raise AuthenticationFailed."""
        return _find("API key", _digest(api_key), self._api_keys)

    def verify_bearer(self, secret: str) -> Principal:
        """Return the principal of a token or an API key; raise AuthenticationFailed."""
        try:
            return self.verify_token(secret)
        except AuthenticationFailed:
            return _find("token", _digest(secret), self._api_keys)

    async def verify_basic(self, username: str, password: str) -> Principal:
        """Return the principal of a user name and password; raise AuthenticationFailed.

        The verification takes tens of milliseconds and runs in a thread.
        """
        if not self._users:
            raise AuthenticationFailed("user name and password", "nobody has a password")
        if self._verifying >= VERIFICATIONS_WAITING_MAX:
            raise AuthenticationFailed("user name and password", "too many wait for theirs")
        known = self._users.get(username)
        encoded = known[0] if known is not None else self._decoy(username)
        self._verifying += 1
        try:
            right = await asyncio.get_running_loop().run_in_executor(
                self._threads, _is_password, encoded, password
            )
        finally:
            self._verifying -= 1
        if known is None:
            raise AuthenticationFailed("user name and password", "unknown user name")
        if not right:
            raise AuthenticationFailed("user name and password", "wrong password")
        if self._users.get(username) != known:
            raise AuthenticationFailed("user name and password", "changed meanwhile")
        return known[1]

    def check_basic(
        self, username: str, password: str, then: Callable[[Principal | PeerError], None]
    ) -> None:
        """See core.access.Authenticator."""
        task = asyncio.get_running_loop().create_task(self._check_basic(username, password, then))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check_basic(
        self, username: str, password: str, then: Callable[[Principal | PeerError], None]
    ) -> None:
        try:
            found: Principal | PeerError = await self.verify_basic(username, password)
        except AuthenticationFailed as error:
            found = error
        then(found)

    def _decoy(self, username: str) -> str:
        """Return the hash that an unknown name is verified against, always the same for a name.

        It is one of the configured hashes, so it takes the same time as a known name.
        """
        mark = hmac.digest(self._decoy_secret, username.encode(), "sha256")
        return self._decoys[int.from_bytes(mark[:8], "big") % len(self._decoys)]

    # --- Identity names and keys ------------------------------------------------------------------

    def requires_key(self, identity: str) -> bool:
        """Return whether an identity name belongs to a principal and so requires a key."""
        return identity in self._identities

    def verify_identity_key(self, identity: str, key: bytes) -> Principal:
        """Return the principal of an identity name and key; raise AuthenticationFailed."""
        found = hashlib.sha256(key).digest()
        digest, principal = self._identities.get(identity, (bytes(len(found)), None))
        right = hmac.compare_digest(found, digest)
        if principal is None:
            raise AuthenticationFailed("identity", "unknown identity name")
        if not right:
            raise AuthenticationFailed("identity", "wrong key")
        return principal

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _find(kind: str, digest: bytes, known: Sequence[tuple[bytes, Principal]]) -> Principal:
    found = None
    for each, principal in known:
        if hmac.compare_digest(each, digest):
            found = principal
    if found is None:
        raise AuthenticationFailed(kind, f"unknown {kind}")
    return found


def _is_password(encoded: str, password: str) -> bool:
    try:
        return argon2.PasswordHasher().verify(encoded, password.encode("utf-8", "surrogatepass"))
    except argon2.exceptions.VerificationError:
        return False


def _set_rules(principal: Principal, rules: Sequence[RuleConfig], default: Verdict | None) -> None:
    """Set the rules of a principal and clear its cached decisions.

    Without a default, a topic that no rule matches is denied if any rule allows something, else
    allowed.
    """
    made = tuple(
        Rule(
            allow=rule.allow is not None,
            actions=frozenset(Action(action) for action in rule.allow or rule.deny or ()),
            pattern=topic,
        )
        for rule in rules
        for topic in rule.topics
    )
    if default is None:
        default = "deny" if any(rule.allow for rule in made) else "allow"
    principal.set_rules(made, default=default == "allow")
