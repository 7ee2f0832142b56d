"""A verified password is remembered for a while, for its address and stored hash only."""

import asyncio

import pytest

from penstock.errors import AuthenticationFailed
from penstock.server.config import BasicConfig, Config, PrincipalConfig
from penstock.server.credentials import Authenticator, hash_password
from penstock.server.verified_passwords import VerifiedPasswords


def test_only_the_same_password_address_and_hash_are_remembered_and_not_for_long() -> None:
    now = [0.0]
    known = VerifiedPasswords(seconds_max=60, clock=lambda: now[0])
    mark = known.digest("10.0.0.1", "ann", encoded="$h", password=b"right")
    assert not known.holds(mark)
    known.add(mark)
    assert known.holds(known.digest("10.0.0.1", "ann", encoded="$h", password=b"right"))
    for other in (
        known.digest("10.0.0.2", "ann", encoded="$h", password=b"right"),
        known.digest("10.0.0.1", "bob", encoded="$h", password=b"right"),
        known.digest("10.0.0.1", "ann", encoded="$g", password=b"right"),
        known.digest("10.0.0.1", "ann", encoded="$h", password=b"wrong"),
        known.digest("10.0.0.1", "ann$", encoded="h", password=b"right"),
    ):
        assert not known.holds(other)
    now[0] = 60.0
    assert not known.holds(mark)


def test_at_the_limit_the_oldest_is_forgotten() -> None:
    known = VerifiedPasswords(kept_max=2)
    first, second, third = (
        known.digest("", name, encoded="", password=b"") for name in ("a", "b", "c")
    )
    for mark in (first, second, third):
        known.add(mark)
    assert [known.holds(mark) for mark in (first, second, third)] == [False, True, True]


async def checks(authenticator: Authenticator, password: str) -> None:
    await authenticator.verify_basic("ann", password)


def test_a_second_request_hashes_nothing_and_a_changed_password_counts_at_once() -> None:
    def config(password: str) -> Config:
        basic = BasicConfig(username="ann", password_hash=hash_password(password))
        return Config(principal=(PrincipalConfig(name="ann", basic=basic),))

    authenticator = Authenticator(config("old"))
    hashed: list[bytes] = []
    real = authenticator._workers.verify

    def counted(encoded: str, password: bytes) -> bool:
        hashed.append(password)
        return real(encoded, password)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator._workers, "verify", counted)

        async def run() -> None:
            for _ in range(3):
                await checks(authenticator, "old")
            assert hashed == [b"old"]
            with pytest.raises(AuthenticationFailed):
                await checks(authenticator, "wrong")
            authenticator.update(config("new"))
            with pytest.raises(AuthenticationFailed):
                await checks(authenticator, "old")
            await checks(authenticator, "new")

        asyncio.run(run())
    authenticator.close()
    assert hashed == [b"old", b"wrong", b"old", b"new"]
