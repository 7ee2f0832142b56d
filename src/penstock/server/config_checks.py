"""Checks across settings: unique names, valid patterns, usable and safe listeners."""

from typing import Final

import argon2

from penstock.errors import BadAddress, CertificateUnusable, InvalidPattern
from penstock.limits import MEMORY_BYTES_MIN, MEMORY_FIXED_SHARE, TOPIC_NAME_BYTES_MAX
from penstock.model import is_publishable
from penstock.patterns import compile_pattern
from penstock.replay import split_replay
from penstock.server.config import (
    IDENTITY_TABLE,
    Config,
    ListenerConfig,
    PrincipalConfig,
    RuleConfig,
)
from penstock.settings import Check, Problems, run_checks
from penstock.transport.addresses import Address
from penstock.transport.tls import server_context

__all__ = ["check"]

ARGON2_MEMORY_KIB_MAX = 1024 * 1024


def check(config: Config, problems: Problems) -> None:
    """Add the problems of settings that do not fit together."""
    run_checks(config, _CHECKS, problems)


def _check_channels(config: Config, problems: Problems) -> None:
    taken: dict[str, str] = {}
    for channel, topic in config.herald.channels.items():
        key = f"herald.channels.{channel}"
        if not _is_channel(channel):
            problems.add(key, "expected a channel from 0 to 255 as key")
        elif not is_publishable(topic) or len(topic.encode()) > TOPIC_NAME_BYTES_MAX:
            problems.add(key, "expected a topic name: not empty, no wildcard level")
        elif topic in taken:
            problems.add(key, f'"{topic}" is already the topic of channel {taken[topic]}')
        else:
            taken[topic] = channel


def _check_replay(config: Config, problems: Problems) -> None:
    for channel, start in config.herald.replay.items():
        key = f"herald.replay.{channel}"
        if not _is_channel(channel):
            problems.add(key, "expected a channel from 0 to 255 as key")
        elif config.herald.channels and channel not in config.herald.channels:
            problems.add(key, "there is no such channel in herald.channels")
        elif split_replay(f"x{start}")[1] is None:
            problems.add(key, f'expected a start such as "@earliest" or "@-15m", got "{start}"')
        elif config.broker.durability == "memory":
            problems.add(key, 'there is no history with broker.durability = "memory"')


def _check_log(config: Config, problems: Problems) -> None:
    for index, rule in enumerate(config.log.durability):
        key = f"log.durability[{index}]"
        _check_patterns(rule.topics, f"{key}.topics", problems)
        if config.broker.durability == "memory":
            problems.add(
                key,
                'there is no log with broker.durability = "memory"; '
                'set it to "os" or "fsync", and "memory" here for the other topics',
            )


def _check_memory(config: Config, problems: Problems) -> None:
    budget = config.memory_bytes_max
    fixed = sum(config.memory_fixed.values())
    if budget < MEMORY_BYTES_MIN:
        problems.add("limits.memory_bytes_max", f"expected 0 or at least {MEMORY_BYTES_MIN}")
    elif fixed > budget * MEMORY_FIXED_SHARE:
        problems.add(
            "limits.memory_bytes_max",
            f"the log's backlog and caches take {fixed} bytes, more than half of {budget}; "
            f"expected at least {int(fixed / MEMORY_FIXED_SHARE)}, "
            "or a lower log.waiting_bytes_max",
        )


def _is_channel(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text)) and int(text) <= 255


def _check_patterns(topics: tuple[str, ...], key: str, problems: Problems) -> None:
    for topic in topics:
        try:
            compile_pattern(topic)
        except InvalidPattern:
            problems.add(key, f'"{topic[:40]}" matches no topic; # and > stand only at the end')


def _check_anonymous(config: Config, problems: Problems) -> None:
    _check_rules(config.anonymous.rule, "anonymous", problems)


def _check_rules(rules: tuple[RuleConfig, ...], key: str, problems: Problems) -> None:
    for index, rule in enumerate(rules):
        below = f"{key}.rule[{index}]"
        if (rule.allow is None) == (rule.deny is None):
            problems.add(below, "expected either allow or deny")
        _check_patterns(rule.topics, f"{below}.topics", problems)


def _check_principals(config: Config, problems: Problems) -> None:
    taken: dict[tuple[str, str], int] = {}
    for index, principal in enumerate(config.principal):
        key = f"principal[{index}]"
        credentials = _credentials(principal)
        if not credentials:
            names = f"token, basic, api_key_sha256 or {IDENTITY_TABLE}"
            problems.add(key, f"expected at least one of {names}")
        for name, value in (("name", principal.name), *credentials.items()):
            owner = taken.setdefault((name, value), index)
            if owner != index:
                problems.add(f"{key}.{name}", f"principal[{owner}] has the same; expected another")
        if principal.basic is not None:
            _check_password_hash(principal.basic.password_hash, key, problems)
        _check_rules(principal.rule, key, problems)


def _credentials(principal: PrincipalConfig) -> dict[str, str]:
    """Return the credentials that must be unique among principals, by key."""
    found = {
        "token": principal.token,
        "basic.username": principal.basic and principal.basic.username,
        "api_key_sha256": principal.api_key_sha256 and principal.api_key_sha256.lower(),
        f"{IDENTITY_TABLE}.identity": principal.identity_key and principal.identity_key.identity,
    }
    return {key: value for key, value in found.items() if value}


def _check_password_hash(encoded: str, key: str, problems: Problems) -> None:
    try:
        parameters = argon2.extract_parameters(encoded)
    except argon2.exceptions.InvalidHashError:
        parameters = None
    if parameters is None or parameters.type is not argon2.Type.ID:
        problem = "expected an argon2id hash; `penstock hash-password` prints one"
        problems.add(f"{key}.basic.password_hash", problem)
    elif parameters.memory_cost > ARGON2_MEMORY_KIB_MAX:
        problem = f"expected a hash that takes at most {ARGON2_MEMORY_KIB_MAX} KiB of memory"
        problems.add(f"{key}.basic.password_hash", problem)


def _check_http(config: Config, problems: Problems) -> None:
    try:
        address = config.http.place
    except BadAddress as error:
        problem = f"expected HOST:PORT, such as 127.0.0.1:7080: {error.problem}"
        problems.add("http.address", problem)
        return
    anonymous = config.http.anonymous
    if address is None:
        if anonymous is not None:
            problem = "there is no http.address; set anonymous of the ws:// and wss:// listeners"
            problems.add("http.anonymous", problem)
        return
    listeners = filter(None, map(_address, config.listener))
    shared = next((each for each in listeners if address.beside(each)), None)
    if shared is not None:  # its own problems are reported as those of the listener
        if anonymous is not None and shared.accepts_anonymous is not anonymous:
            problem = f"expected the same as anonymous of {shared.location}, at the same address"
            problems.add("http.anonymous", problem)
        return
    if address.accepts_anonymous or config.principal:
        return
    if address.is_loopback:
        problems.add(
            "http.address",
            f"{config.http.address} would refuse every client: add a [[principal]], "
            "or leave out anonymous = false",
        )
    else:
        problems.add(
            "http.address",
            f"{config.http.address} can be reached from other machines and there are no "
            "credentials; add a [[principal]], or use 127.0.0.1",
        )


def _check_flight(config: Config, problems: Problems) -> None:
    try:
        address = config.flight.place
    except BadAddress as error:
        problem = f'expected HOST:PORT, such as 127.0.0.1:7090, or "" for none: {error.problem}'
        problems.add("flight.address", problem)
        return
    if address is None:
        return
    if config.broker.durability == "memory":
        problem = 'there are no tables with broker.durability = "memory"'
        problems.add("flight.address", problem)
    if (address.certificate is None) is not (address.key is None):
        problems.add("flight", "expected both certificate and key, or neither")
    else:
        _check_certificate(address, "flight", problems)
    _check_access(address, "flight", config, problems)


def _check_listeners(config: Config, problems: Problems) -> None:
    taken: dict[str, int] = {}
    for index, listener in enumerate(config.listener):
        key = f"listener[{index}]"
        try:
            address = listener.address
        except BadAddress as error:
            problems.add(f"{key}.url", f'{error.problem} (in "{listener.url}")')
            continue
        first = taken.setdefault(address.location, index)
        if first != index and not address.location.endswith(":0"):
            problems.add(f"{key}.url", f"listener[{first}] is at the same address")
        _check_certificate(address, key, problems)
        _check_access(address, key, config, problems)


def _address(listener: ListenerConfig) -> Address | None:
    try:
        return listener.address
    except BadAddress:
        return None


def _check_certificate(address: Address, key: str, problems: Problems) -> None:
    if not address.is_secure:
        return
    if address.certificate is None or address.key is None:
        problem = f"{address.scheme}:// needs certificate and key, each the path of a PEM file"
        problems.add(key, problem)
        return
    try:
        server_context(address.certificate, address.key)
    except CertificateUnusable as error:
        problems.add(key, str(error))


def _check_access(address: Address, key: str, config: Config, problems: Problems) -> None:
    """Reject a public listener without credentials, and a listener that refuses every client."""
    if address.accepts_anonymous:
        return
    protocol = address.protocol
    if protocol is not None and not protocol.credentials:
        problems.add(
            key,
            f"{address.location} would refuse every client: {protocol.label} clients have no "
            "credentials; set anonymous = true, or listen on 127.0.0.1",
        )
    elif config.principal:
        return
    elif address.is_loopback:
        problems.add(
            key,
            f"{address.location} would refuse every client: add a [[principal]], "
            "or leave out anonymous = false",
        )
    else:
        problems.add(
            key,
            f"{address.location} can be reached from other machines and there are no credentials; "
            "add a [[principal]], set anonymous = true, or listen on 127.0.0.1",
        )


_CHECKS: Final[tuple[Check[Config], ...]] = (
    (_check_channels, frozenset({"herald"})),
    (_check_replay, frozenset({"herald", "broker"})),
    (_check_log, frozenset({"log", "broker"})),
    (_check_memory, frozenset({"limits", "log", "broker"})),
    (_check_anonymous, frozenset({"anonymous"})),
    (_check_principals, frozenset({"principal"})),
    (_check_http, frozenset({"http", "listener", "principal"})),
    (_check_flight, frozenset({"flight", "broker", "principal"})),
    (_check_listeners, frozenset({"listener", "principal"})),
)
"""The checks in order, each with the tables that it reads."""
