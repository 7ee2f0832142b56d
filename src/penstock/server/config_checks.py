"""Checks across settings: unique names, valid patterns, usable and safe listeners."""

import re
from typing import Final

from penstock.errors import BadAddress, CertificateUnusable, InvalidPattern, InvalidTopicName
from penstock.limits import (
    KAFKA_NAMESPACES_MAX,
    MEMORY_BYTES_MIN,
    MEMORY_FIXED_SHARE,
    RETENTION_RULES_MAX,
)
from penstock.patterns import compile_pattern
from penstock.replay import split_group, split_replay
from penstock.server.config import (
    KAFKA_TOPIC,
    Config,
    ListenerConfig,
    QuotaConfig,
    RuleConfig,
)
from penstock.server.config_principals import check_issuers, check_principals, has_secrets
from penstock.settings import Check, Problems, run_checks
from penstock.storage.kafka.options import OWN_SETTINGS
from penstock.storage.urls import url_problem
from penstock.topic_names import check_topic_name
from penstock.tracing import is_installed
from penstock.transport.addresses import Address
from penstock.transport.tls import server_context

__all__ = ["check"]


def check(config: Config, problems: Problems) -> None:
    """Add the problems of settings that do not fit together."""
    run_checks(config, _CHECKS, problems)


def _check_channels(config: Config, problems: Problems) -> None:
    taken: dict[str, str] = {}
    for channel, topic in config.herald.channels.items():
        key = f"herald.channels.{channel}"
        if not _is_channel(channel):
            problems.add(key, "expected a channel from 0 to 255 as key")
        elif topic in taken:
            problems.add(key, f'"{topic}" is already the topic of channel {taken[topic]}')
        else:
            taken[topic] = channel
            try:
                check_topic_name(topic)
            except InvalidTopicName as error:
                problems.add(key, str(error))


def _check_replay(config: Config, problems: Problems) -> None:
    for channel, start in config.herald.replay.items():
        key = f"herald.replay.{channel}"
        if not _is_channel(channel):
            problems.add(key, "expected a channel from 0 to 255 as key")
        elif config.herald.channels and channel not in config.herald.channels:
            problems.add(key, "there is no such channel in herald.channels")
        elif split_replay(f"x{start}")[0] != "x":
            problems.add(key, f'expected a start such as "@earliest" or "@-15m", got "{start}"')
        elif config.broker.durability == "memory":
            problems.add(key, 'there is no history with broker.durability = "memory"')


def _check_tracing(config: Config, problems: Problems) -> None:
    if config.tracing.endpoint and not is_installed():
        missing = "needs the SDK of OpenTelemetry, which is not installed"
        problems.add("tracing.endpoint", f"{missing}; install penstock-broker[tracing]")


def _check_hooks(config: Config, problems: Problems) -> None:
    for index, required in enumerate(config.hooks.required):
        _check_patterns(required.topics, f"hooks.required[{index}].topics", problems)


def _check_groups(config: Config, problems: Problems) -> None:
    taken: dict[str, int] = {}
    for index, group in enumerate(config.group):
        key = f"group[{index}].name"
        owner = taken.setdefault(group.name, index)
        if owner != index:
            problems.add(key, f"group[{owner}] has the same; expected another")
        if split_group(f"x@group={group.name}")[1] is None:
            problems.add(key, f'expected letters, digits, "_", "-" and ".", got "{group.name}"')


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


def _check_retention(config: Config, problems: Problems) -> None:
    if len(config.retention) > RETENTION_RULES_MAX:
        problems.add("retention", f"expected at most {RETENTION_RULES_MAX} tables")
    for index, rule in enumerate(config.retention):
        key = f"retention[{index}]"
        _check_patterns(rule.topics, f"{key}.topics", problems)
        if config.broker.durability == "memory":
            problems.add(key, 'there is no log with broker.durability = "memory"')
        elif config.storage.kind == "kafka":
            problems.add(
                key,
                "Kafka has one retention for all messages of a topic; set log.age_seconds_max or "
                "log.bytes_max, or the retention of the topic in Kafka",
            )
        elif rule.last_only and (rule.age_seconds_max or rule.bytes_max):
            problems.add(key, "expected last_only alone, or age_seconds_max and bytes_max")
        elif not (rule.last_only or rule.age_seconds_max or rule.bytes_max):
            problems.add(key, "expected age_seconds_max, bytes_max or last_only")


def _check_tier(config: Config, problems: Problems) -> None:
    tier = config.storage.tier
    if tier.url:
        problem = url_problem(tier.url)
        if problem is not None:
            problems.add("storage.tier.url", problem)
        if config.broker.durability == "memory":
            problems.add("storage.tier.url", 'there is no log with broker.durability = "memory"')
        if config.storage.kind == "kafka":
            problems.add("storage.tier.url", 'it is for storage.kind = "arrow"')
        return
    for name, value in (
        ("local_seconds_max", tier.local_seconds_max),
        ("local_bytes_max", tier.local_bytes_max),
    ):
        if value:
            problems.add(f"storage.tier.{name}", "needs storage.tier.url")


def _check_storage(config: Config, problems: Problems) -> None:
    storage = config.storage
    if storage.kind != "kafka":
        for key in ("bootstrap", "kafka"):
            if getattr(storage, key):
                problems.add(f"storage.{key}", 'it is for storage.kind = "kafka"')
        if storage.deliver != "received":
            problems.add("storage.deliver", 'it is for storage.kind = "kafka"')
        return
    if config.broker.durability == "memory":
        problems.add("storage.kind", 'there is no log with broker.durability = "memory"')
    if storage.bootstrap is None:
        problems.add("storage.bootstrap", "missing; expected HOST:PORT of Kafka brokers")
    for key in sorted(OWN_SETTINGS & set(storage.kafka)):
        problems.add(f"storage.kafka.{key}", "Penstock sets it itself; leave it out")
    _check_namespaces(config, problems)


def _check_namespaces(config: Config, problems: Problems) -> None:
    storage, key = config.storage, "storage.kafka.namespaces"
    for name, value in storage.kafka.items():
        if isinstance(value, dict) != (name == "namespaces"):
            kind = "a string" if isinstance(value, dict) else "a table of Kafka topics by pattern"
            problems.add(f"storage.kafka.{name}", f"expected {kind}")
    if len(storage.namespaces) > KAFKA_NAMESPACES_MAX:
        problems.add(key, f"at most {KAFKA_NAMESPACES_MAX} patterns")
    reserved = {storage.topic, f"{storage.topic}-state"}
    for pattern, topic in storage.namespaces.items():
        try:
            compile_pattern(pattern)
        except InvalidPattern as error:
            problems.add(key, str(error))
        if re.fullmatch(KAFKA_TOPIC, topic) is None:
            problems.add(f"{key}.{pattern}", "expected a name of a Kafka topic")
        elif topic in reserved:
            problems.add(f"{key}.{pattern}", f'"{topic}" is a Kafka topic of the log itself')


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
    _check_role_names(config, config.anonymous.roles, "anonymous", problems)


def _check_roles(config: Config, problems: Problems) -> None:
    taken: dict[str, int] = {}
    for index, role in enumerate(config.role):
        key = f"role[{index}]"
        owner = taken.setdefault(role.name, index)
        if owner != index:
            problems.add(f"{key}.name", f"role[{owner}] has the same; expected another")
        if not role.rule and role.quota == QuotaConfig():
            problems.add(key, "expected a rule or a quota")
        _check_rules(role.rule, key, problems)


def _check_role_names(config: Config, roles: tuple[str, ...], key: str, problems: Problems) -> None:
    known = {role.name for role in config.role}
    for name in roles:
        if name not in known:
            problems.add(f"{key}.roles", f'there is no [[role]] named "{name[:40]}"')


def _check_rules(rules: tuple[RuleConfig, ...], key: str, problems: Problems) -> None:
    for index, rule in enumerate(rules):
        below = f"{key}.rule[{index}]"
        if (rule.allow is None) == (rule.deny is None):
            problems.add(below, "expected either allow or deny")
        _check_patterns(rule.topics, f"{below}.topics", problems)


def _check_principals(config: Config, problems: Problems) -> None:
    check_principals(config, problems)
    for index, principal in enumerate(config.principal):
        key = f"principal[{index}]"
        _check_rules(principal.rule, key, problems)
        _check_role_names(config, principal.roles, key, problems)


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
        same = f"of {shared.location}, at the same address"
        if anonymous is not None and shared.accepts_anonymous is not anonymous:
            problems.add("http.anonymous", f"expected the same as anonymous {same}")
        cleartext = config.http.cleartext_credentials
        if cleartext not in {None, shared.cleartext_credentials}:
            problem = f"expected the same as cleartext_credentials {same}"
            problems.add("http.cleartext_credentials", problem)
        return
    _check_cleartext(address, "http.address", config, problems)
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
    elif address.client_ca is not None and address.certificate is None:
        problems.add("flight", "client_ca needs certificate and key")
    else:
        _check_certificate(address, "flight", problems)
    _check_access(address, "flight", config, problems)
    _check_cleartext(address, "flight.address", config, problems)


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
        if address.protocol is None or address.protocol.credentials:
            _check_cleartext(address, key, config, problems)


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
        server_context(
            address.certificate,
            address.key,
            client_ca=address.client_ca,
            client_certificate=address.client_certificate or "required",
        )
    except CertificateUnusable as error:
        problems.add(key, str(error))


def _check_access(address: Address, key: str, config: Config, problems: Problems) -> None:
    """Reject a public listener without credentials, and a listener that refuses every client."""
    if address.accepts_anonymous:
        return
    protocol = address.protocol
    if protocol is not None and not protocol.credentials and not _identifies(address, config):
        problems.add(
            key,
            f"{address.location} would refuse every client: {protocol.label} clients have no "
            "credentials; give principals networks, or client certificates with tls:// and "
            "client_ca; or set anonymous = true, or listen on 127.0.0.1",
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


def _identifies(address: Address, config: Config) -> bool:
    """Return whether a connection to a listener can identify a client, without credentials."""
    return any(
        each.networks is not None
        or (each.certificate is not None and address.client_ca is not None)
        for each in config.principal
    )


def _check_cleartext(address: Address, key: str, config: Config, problems: Problems) -> None:
    """Reject a public listener without TLS, unless it says what becomes of credentials."""
    if address.accepts_credentials or address.cleartext_credentials is not None:
        return
    if any(map(has_secrets, config.principal)):
        problems.add(
            key,
            f"credentials sent to {address.host}:{address.port} could be read on their way: use "
            "TLS or 127.0.0.1, or set cleartext_credentials: true on a closed network, false to "
            "refuse them here",
        )


_CHECKS: Final[tuple[Check[Config], ...]] = (
    (_check_channels, frozenset({"herald"})),
    (_check_replay, frozenset({"herald", "broker"})),
    (_check_hooks, frozenset({"hooks"})),
    (_check_tracing, frozenset({"tracing"})),
    (_check_groups, frozenset({"group"})),
    (_check_log, frozenset({"log", "broker"})),
    (_check_retention, frozenset({"retention", "broker", "storage"})),
    (_check_tier, frozenset({"storage", "broker"})),
    (_check_storage, frozenset({"storage", "broker"})),
    (_check_memory, frozenset({"limits", "log", "storage", "broker"})),
    (_check_roles, frozenset({"role"})),
    (_check_anonymous, frozenset({"anonymous", "role"})),
    (_check_principals, frozenset({"principal", "role", "jwt", "auth"})),
    (check_issuers, frozenset({"jwt"})),
    (_check_http, frozenset({"http", "listener", "principal"})),
    (_check_flight, frozenset({"flight", "broker", "principal"})),
    (_check_listeners, frozenset({"listener", "principal"})),
)
"""The checks in order, each with the tables that it reads."""
