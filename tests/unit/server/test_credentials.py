"""Right credentials give their principal; wrong ones give nothing away."""

import asyncio
import base64
import hashlib
import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import argon2
import pytest

from penstock.core.access import Action
from penstock.core.sessions import topic_owner
from penstock.errors import AuthenticationFailed, ErrorCode, PeerError
from penstock.gateway.options import GatewayOptions
from penstock.limits import GUESSES_MAX, LOGIN_FAILURES_FREE, VERIFICATIONS_AT_ONCE_MAX
from penstock.server.config import (
    AnonymousConfig,
    BasicConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RoleConfig,
    RuleConfig,
)
from penstock.server.credentials import Authenticator, KnownPeer, hash_key, hash_password
from penstock.server.http.auth import HttpAuth
from penstock.transport.addresses import Address

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PUBLISH_ONLY = RuleConfig(topics=("plant/#",), allow=("publish",))
NO_SECRETS = RuleConfig(topics=("secret/#",), deny=("publish", "subscribe"))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def with_token(name: str, token: str, **more: Any) -> PrincipalConfig:
    return PrincipalConfig(name=name, token=token, **more)


CONFIG = Config(
    principal=(
        with_token("first", "token-1"),
        with_token("second", "token-2", rule=(PUBLISH_ONLY,)),
        PrincipalConfig(
            name="user",
            basic=BasicConfig(username="ada", password_hash=CHEAP.hash("pässword")),
            rule=(NO_SECRETS,),
        ),
        PrincipalConfig(name="service", api_key_sha256=sha256("key-1").upper()),
        PrincipalConfig(
            name="press", identity_key=IdentityConfig(identity="press-4", key_sha256=sha256("iron"))
        ),
    )
)


@pytest.fixture
def authenticator() -> Iterator[Authenticator]:
    made = Authenticator(CONFIG)
    yield made
    made.close()


def basic(authenticator: Authenticator, username: str, password: str) -> str:
    return asyncio.run(authenticator.verify_basic(username, password)).name


def test_the_quota_of_an_owner_is_that_of_its_principal(authenticator: Authenticator) -> None:
    first = authenticator.verify_token("token-1")
    assert authenticator.quota_of(topic_owner(first, "192.0.2.1:99")) is first.quota
    owner = topic_owner(authenticator.anonymous, "192.0.2.1:99")
    assert authenticator.quota_of(owner) is authenticator.anonymous.quota
    assert authenticator.quota_of("removed") is None
    assert authenticator.quota_of("") is None


def test_a_token_gives_its_principal(authenticator: Authenticator) -> None:
    assert authenticator.verify_token("token-1").name == "first"
    assert authenticator.verify_token("token-2").name == "second"
    assert authenticator.verify_token("token-2") is authenticator.verify_token("token-2")


@pytest.mark.parametrize("token", ["", "token-", "token-11", "TOKEN-1", "key-1", "\ud800"])
def test_another_token_is_refused(authenticator: Authenticator, token: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        authenticator.verify_token(token)
    assert caught.value.code is ErrorCode.AUTHENTICATION_FAILED
    assert isinstance(caught.value, PeerError)


def test_an_api_key_gives_its_principal(authenticator: Authenticator) -> None:
    assert authenticator.verify_api_key("key-1").name == "service"


@pytest.mark.parametrize("key", ["", "key-2", "token-1", sha256("key-1")])
def test_another_api_key_is_refused(authenticator: Authenticator, key: str) -> None:
    with pytest.raises(AuthenticationFailed):
        authenticator.verify_api_key(key)


def test_a_lamamq_identity_with_its_key_gives_its_principal(authenticator: Authenticator) -> None:
    assert authenticator.verify_identity_key("press-4", b"iron").name == "press"
    assert authenticator.requires_key("press-4")
    assert not authenticator.requires_key("press-5")


@pytest.mark.parametrize(
    ("identity", "key"),
    [("press-4", b""), ("press-4", b"steel"), ("press-5", b"iron"), ("", b"")],
)
def test_another_lamamq_identity_or_key_is_refused(
    authenticator: Authenticator, identity: str, key: bytes
) -> None:
    with pytest.raises(AuthenticationFailed):
        authenticator.verify_identity_key(identity, key)


def test_a_password_gives_its_principal(authenticator: Authenticator) -> None:
    assert basic(authenticator, "ada", "pässword") == "user"


@pytest.mark.parametrize(
    ("username", "password"),
    [("ada", ""), ("ada", "password"), ("bob", "pässword"), ("", ""), ("user", "pässword")],
)
def test_another_user_name_or_password_is_refused(
    authenticator: Authenticator, username: str, password: str
) -> None:
    with pytest.raises(AuthenticationFailed):
        basic(authenticator, username, password)


def test_the_text_of_a_refusal_does_not_tell_whether_the_name_exists(
    authenticator: Authenticator,
) -> None:
    texts = set()
    for username in ("ada", "bob"):
        with pytest.raises(AuthenticationFailed) as caught:
            basic(authenticator, username, "wrong")
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_a_password_without_any_users_is_refused() -> None:
    authenticator = Authenticator(Config())
    with pytest.raises(AuthenticationFailed):
        basic(authenticator, "ada", "pässword")
    authenticator.close()


def test_an_unknown_user_costs_what_a_known_one_costs() -> None:
    slow = argon2.PasswordHasher(time_cost=2, memory_cost=16_384, parallelism=1)
    user = BasicConfig(username="ada", password_hash=slow.hash("p"))
    authenticator = Authenticator(Config(principal=(PrincipalConfig(name="a", basic=user),)))

    hosts = itertools.count(1)

    async def seconds(username: str) -> float:
        peer = KnownPeer(f"192.0.2.{next(hosts)}")  # another each time: none is delayed
        started = time.perf_counter()
        with pytest.raises(AuthenticationFailed):
            await authenticator.verify_basic(username, "wrong", peer)
        return time.perf_counter() - started

    async def measure() -> tuple[float, float]:
        await seconds("ada")
        pairs = [(await seconds("ada"), await seconds(f"bob-{turn}")) for turn in range(9)]
        known, unknown = zip(*pairs, strict=True)
        return statistics.median(known), statistics.median(unknown)

    known, unknown = asyncio.run(measure())
    authenticator.close()
    assert 0.4 < unknown / known < 2.5, f"known {known:.4f} s, unknown {unknown:.4f} s"


def test_the_event_loop_goes_on_while_a_password_is_verified() -> None:
    slow = argon2.PasswordHasher(time_cost=8, memory_cost=32_768, parallelism=1)
    user = BasicConfig(username="ada", password_hash=slow.hash("p"))
    authenticator = Authenticator(Config(principal=(PrincipalConfig(name="a", basic=user),)))

    async def run() -> int:
        verifying = asyncio.create_task(authenticator.verify_basic("ada", "p"))
        turns = 0
        while not verifying.done():
            await asyncio.sleep(0)
            turns += 1
        assert verifying.result().name == "a"
        return turns

    assert asyncio.run(run()) > 10
    authenticator.close()


def test_the_right_password_many_times_at_once_is_right(authenticator: Authenticator) -> None:
    async def run() -> list[str]:
        attempts = [authenticator.verify_basic("ada", "pässword") for _ in range(20)]
        return [each.name for each in await asyncio.gather(*attempts)]

    assert asyncio.run(run()) == ["user"] * 20


def test_wrong_passwords_delay_their_address_and_user_name_alone(
    authenticator: Authenticator,
) -> None:
    async def attempt(username: str, password: str, host: str) -> str:
        try:
            found = await authenticator.verify_basic(username, password, KnownPeer(host))
        except AuthenticationFailed as error:
            return error.reason
        return found.name

    async def run() -> None:
        wrong = [attempt("ada", f"wrong-{n}", "192.0.2.1") for n in range(40)]
        reasons = await asyncio.gather(*wrong)
        verified = LOGIN_FAILURES_FREE + VERIFICATIONS_AT_ONCE_MAX - 1
        assert reasons.count("wrong password") <= verified
        assert sum("too many wrong" in reason for reason in reasons) >= 40 - verified
        assert "too many wrong" in await attempt("ada", "pässword", "192.0.2.1")
        assert await attempt("ada", "pässword", "192.0.2.2") == "user"
        assert await attempt("bob", "pässword", "192.0.2.1") == "unknown user name"

    asyncio.run(run())


def test_a_login_forgets_earlier_failures(authenticator: Authenticator) -> None:
    for _ in range(4):
        for _ in range(LOGIN_FAILURES_FREE - 1):
            with pytest.raises(AuthenticationFailed):
                basic(authenticator, "ada", "wrong")
        assert basic(authenticator, "ada", "pässword") == "user"


def test_a_password_that_is_too_long_is_not_verified(authenticator: Authenticator) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        basic(authenticator, "ada", "x" * 1025)
    assert caught.value.reason == "longer than 1024 bytes"


def test_many_guesses_of_one_address_are_refused_and_a_repeated_one_counts_once(
    authenticator: Authenticator,
) -> None:
    guessing, outdated = KnownPeer("192.0.2.1"), KnownPeer("192.0.2.2")
    for number in range(GUESSES_MAX):
        for peer, token in ((guessing, f"guess-{number}"), (outdated, "old")):
            with pytest.raises(AuthenticationFailed):
                authenticator.verify_token(token, peer)
    assert authenticator.verify_token("token-1", outdated).name == "first"
    for attempt in (authenticator.verify_token, authenticator.verify_bearer):
        with pytest.raises(AuthenticationFailed) as caught:
            attempt("token-1", guessing)
        assert caught.value.reason == "too many wrong ones from this address"
    with pytest.raises(AuthenticationFailed):
        authenticator.verify_identity_key("press-4", b"iron", guessing)


def test_guesses_do_not_lock_out_credentials_that_were_right_from_the_same_address(
    authenticator: Authenticator,
) -> None:
    shared = KnownPeer("192.0.2.1")
    assert authenticator.verify_token("token-1", shared).name == "first"
    assert authenticator.verify_identity_key("press-4", b"iron", shared).name == "press"
    for number in range(GUESSES_MAX):
        with pytest.raises(AuthenticationFailed):
            authenticator.verify_token(f"guess-{number}", shared)
    assert authenticator.verify_token("token-1", shared).name == "first"
    assert authenticator.verify_bearer("token-1", shared).name == "first"
    assert authenticator.verify_identity_key("press-4", b"iron", shared).name == "press"
    with pytest.raises(AuthenticationFailed) as caught:
        authenticator.verify_token("token-2", shared)
    assert caught.value.reason == "too many wrong ones from this address"
    authenticator.update(Config())
    with pytest.raises(AuthenticationFailed):
        authenticator.verify_token("token-1", shared)


# --- Rules ------------------------------------------------------------------------------------


def test_a_principal_with_allow_rules_may_do_only_that(authenticator: Authenticator) -> None:
    second = authenticator.verify_token("token-2")
    assert second.may(Action.PUBLISH, "plant/heat")
    assert not second.may(Action.SUBSCRIBE, "plant/heat")
    assert not second.may(Action.PUBLISH, "office")


def test_a_principal_with_deny_rules_may_do_all_but_that(authenticator: Authenticator) -> None:
    user = authenticator.principals["user"]
    assert user.may(Action.PUBLISH, "plant/heat")
    assert not user.may(Action.PUBLISH, "secret/plan")


def test_a_principal_without_rules_may_do_all(authenticator: Authenticator) -> None:
    first = authenticator.verify_token("token-1")
    assert first.may(Action.PUBLISH, "anything")
    assert not first.restricted


def test_a_default_that_is_given_decides() -> None:
    config = Config(
        anonymous=AnonymousConfig(default="deny"),
        principal=(
            with_token("a", "a", rule=(PUBLISH_ONLY,), default="allow"),
            with_token("b", "b", rule=(NO_SECRETS,), default="deny"),
        ),
    )
    authenticator = Authenticator(config)
    assert not authenticator.anonymous.may(Action.PUBLISH, "a")
    assert authenticator.verify_token("a").may(Action.SUBSCRIBE, "office")
    assert not authenticator.verify_token("b").may(Action.SUBSCRIBE, "office")
    authenticator.close()


def test_after_an_update_open_sessions_go_by_the_new_rules(authenticator: Authenticator) -> None:
    second = authenticator.verify_token("token-2")
    gone = authenticator.verify_token("token-1")
    anonymous = authenticator.anonymous
    second.permit(3)
    left = authenticator.update(
        Config(
            anonymous=AnonymousConfig(rule=(NO_SECRETS,)),
            principal=(with_token("second", "token-3", rule=(NO_SECRETS,)),),
        )
    )
    assert left == {"first", "second", "user", "service", "press"}, "removed or changed"
    assert authenticator.verify_token("token-3") is second
    assert second.may(Action.PUBLISH, "office")
    assert not any(second.permits), "what was allowed is judged again"
    assert not gone.may(Action.PUBLISH, "anything")
    assert not anonymous.may(Action.PUBLISH, "secret/plan")
    for stale in ("token-1", "token-2"):
        with pytest.raises(AuthenticationFailed):
            authenticator.verify_token(stale)


# --- What the file holds ----------------------------------------------------------------------


def test_a_password_hash_is_argon2id_and_salted() -> None:
    first, second = hash_password("p"), hash_password("p")
    assert first.startswith("$argon2id$")
    assert first != second
    assert argon2.PasswordHasher().verify(first, "p")


def test_a_key_hash_is_its_sha256() -> None:
    # The digest of "abc" in FIPS 180-2, appendix B.1
    assert hash_key(b"abc") == ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


@pytest.mark.parametrize(
    "becomes",
    [
        (),
        (PrincipalConfig(name="user", token="t"),),  # noqa: S106
        (
            PrincipalConfig(
                name="user", basic=BasicConfig(username="ada", password_hash=CHEAP.hash("new"))
            ),
        ),
        (PrincipalConfig(name="other", basic=CONFIG.principal[2].basic),),
    ],
    ids=["removed", "without one", "new password", "new owner"],
)
def test_a_password_that_changes_while_it_is_checked_is_refused(
    authenticator: Authenticator, becomes: tuple[PrincipalConfig, ...]
) -> None:
    async def check() -> None:
        checking = asyncio.ensure_future(authenticator.verify_basic("ada", "pässword"))
        await asyncio.sleep(0)  # the thread has the old hash
        authenticator.update(Config(principal=becomes))
        with pytest.raises(AuthenticationFailed) as refused:
            await checking
        assert refused.value.reason == "changed meanwhile"

    asyncio.run(check())


def test_roles_add_their_rules_behind_those_of_the_principal() -> None:
    config = Config(
        role=(
            RoleConfig(name="readers", rule=(RuleConfig(topics=("#",), allow=("subscribe",)),)),
            RoleConfig(name="plant", rule=(RuleConfig(topics=("plant/#",), allow=("publish",)),)),
        ),
        principal=(
            with_token("both", "1", roles=("readers", "plant"), rule=(NO_SECRETS,)),
            with_token("one", "2", roles=("plant",)),
            with_token("admits", "3", roles=("plant",), default="allow"),
        ),
        anonymous=AnonymousConfig(roles=("readers",)),
    )
    made = Authenticator(config)
    both, one, admits = (made.principals[name] for name in ("both", "one", "admits"))
    assert both.may(Action.SUBSCRIBE, "office")
    assert both.may(Action.PUBLISH, "plant/1")
    assert not both.may(Action.SUBSCRIBE, "secret/x")
    assert not one.may(Action.SUBSCRIBE, "plant/1")
    assert one.may(Action.PUBLISH, "plant/1")
    assert not one.may(Action.REQUEST, "plant/1")
    assert admits.may(Action.REQUEST, "x")
    assert made.anonymous.may(Action.SUBSCRIBE, "#")
    assert not made.anonymous.may(Action.PUBLISH, "plant/1")
    assert [each.role for each in both.rules] == ["", "readers", "plant"]
    made.close()


def test_only_unconfigured_clients_of_this_machine_administer_without_a_rule() -> None:
    made = Authenticator(Config(principal=(with_token("free", "1"),)))
    may = {
        who.name + str(who is made.local_anonymous): who.may(Action.ADMINISTER, "clients")
        for who in (made.anonymous, made.local_anonymous, made.principals["free"])
    }
    assert may == {"anonymousFalse": False, "anonymousTrue": True, "freeFalse": False}
    for anonymous in (
        AnonymousConfig(default="allow"),
        AnonymousConfig(rule=(NO_SECRETS,)),
    ):
        made.update(Config(anonymous=anonymous))
        assert not made.local_anonymous.may(Action.ADMINISTER, "clients")
    allowed = RuleConfig(topics=("clients",), allow=("administer",))
    made.update(Config(principal=(with_token("free", "1", rule=(allowed,), default="allow"),)))
    assert made.principals["free"].may(Action.ADMINISTER, "clients")
    assert not made.principals["free"].may(Action.ADMINISTER, "log")
    made.close()


def test_rules_that_stay_the_same_keep_their_cached_decisions() -> None:
    made = Authenticator(CONFIG)
    before = {name: principal.rights for name, principal in made.principals.items()}
    made.update(CONFIG)
    assert {name: principal.rights for name, principal in made.principals.items()} == before
    made.close()


def test_a_request_that_is_given_up_has_its_password_not_verified(
    authenticator: Authenticator,
) -> None:
    async def check() -> None:
        auth = HttpAuth(Address("ws", "127.0.0.1"), GatewayOptions())
        encoded = base64.b64encode(b"ada:wrong").decode()
        asked = asyncio.create_task(auth._basic(authenticator, encoded, KnownPeer("127.0.0.1")))
        while not authenticator._checks:
            await asyncio.sleep(0)
        (verification,) = authenticator._checks
        asked.cancel()
        await asyncio.wait([asked, verification])
        assert verification.cancelled()

    asyncio.run(check())
