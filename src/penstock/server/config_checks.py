"""What no single value can know: names that are unique, rules that fit, listeners that are safe."""

import argon2

from penstock.errors import BadAddress, CertificateUnusable, InvalidPattern
from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import is_publishable
from penstock.patterns import compile_pattern
from penstock.protocols.lamamq import LAMAMQ_IDENTITY_NAME_BYTES_MAX
from penstock.replay import split_replay
from penstock.server.config import Config, PrincipalConfig, RuleConfig
from penstock.server.config_reading import Sources
from penstock.transport.addresses import Address

__all__ = ["check"]

ARGON2_MEMORY_KIB_MAX = 1024 * 1024


def check(config: Config, sources: Sources) -> None:
    """Raise ConfigError at the first thing that does not fit the others."""
    _check_channels(config, sources)
    _check_replay(config, sources)
    _check_log(config, sources)
    _check_rules(config.anonymous.rule, "anonymous", sources)
    _check_principals(config, sources)
    _check_http(config, sources)
    _check_flight(config, sources)
    _check_listeners(config, sources)
    _check_http_access(config, sources)


def _check_channels(config: Config, sources: Sources) -> None:
    taken: dict[str, str] = {}
    for channel, topic in config.herald.channels.items():
        key = f"herald.channels.{channel}"
        if not _is_channel(channel):
            raise sources.error(key, "expected a channel from 0 to 255 as key")
        if not is_publishable(topic) or len(topic.encode()) > TOPIC_NAME_BYTES_MAX:
            raise sources.error(key, "expected a topic's name: not empty, no wildcard level")
        if topic in taken:
            raise sources.error(key, f'"{topic}" is channel {taken[topic]} already')
        taken[topic] = channel


def _check_replay(config: Config, sources: Sources) -> None:
    for channel, start in config.herald.replay.items():
        key = f"herald.replay.{channel}"
        if not _is_channel(channel):
            raise sources.error(key, "expected a channel from 0 to 255 as key")
        if config.herald.channels and channel not in config.herald.channels:
            raise sources.error(key, "there is no such channel in herald.channels")
        if split_replay(f"x{start}")[1] is None:
            problem = f'expected a start such as "@earliest" or "@-15m", got "{start}"'
            raise sources.error(key, problem)
        if config.broker.durability == "memory":
            raise sources.error(key, 'there is no history with broker.durability = "memory"')


def _check_log(config: Config, sources: Sources) -> None:
    for index, rule in enumerate(config.log.durability):
        key = f"log.durability[{index}]"
        _check_patterns(rule.topics, f"{key}.topics", sources)
        if config.broker.durability == "memory":
            problem = (
                'there is no log with broker.durability = "memory"; '
                'set it to "os" or "fsync", and "memory" here for the other topics'
            )
            raise sources.error(key, problem)


def _is_channel(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text)) and int(text) <= 255


def _check_patterns(topics: tuple[str, ...], key: str, sources: Sources) -> None:
    for topic in topics:
        try:
            compile_pattern(topic)
        except InvalidPattern:
            problem = f'"{topic[:40]}" matches no topic; # and > stand only at the end'
            raise sources.error(key, problem) from None


def _check_rules(rules: tuple[RuleConfig, ...], key: str, sources: Sources) -> None:
    for index, rule in enumerate(rules):
        below = f"{key}.rule[{index}]"
        if (rule.allow is None) == (rule.deny is None):
            raise sources.error(below, "expected either allow or deny")
        _check_patterns(rule.topics, f"{below}.topics", sources)


def _check_principals(config: Config, sources: Sources) -> None:
    taken: dict[tuple[str, str], int] = {}
    for index, principal in enumerate(config.principal):
        key = f"principal[{index}]"
        credentials = _credentials(principal)
        if not credentials:
            problem = "expected at least one of token, basic, api_key_sha256 or lamamq"
            raise sources.error(key, problem)
        for name, value in (("name", principal.name), *credentials.items()):
            owner = taken.setdefault((name, value), index)
            if owner != index:
                problem = f"principal[{owner}] has the same; expected another"
                raise sources.error(f"{key}.{name}", problem)
        if principal.basic is not None:
            _check_password_hash(principal.basic.password_hash, key, sources)
        if principal.lamamq is not None:
            size = len(principal.lamamq.identity.encode())
            if size > LAMAMQ_IDENTITY_NAME_BYTES_MAX:
                problem = f"expected at most {LAMAMQ_IDENTITY_NAME_BYTES_MAX} bytes, got {size}"
                raise sources.error(f"{key}.lamamq.identity", problem)
        _check_rules(principal.rule, key, sources)


def _credentials(principal: PrincipalConfig) -> dict[str, str]:
    """Return what tells this principal from all others, by key."""
    found = {
        "token": principal.token,
        "basic.username": principal.basic and principal.basic.username,
        "api_key_sha256": principal.api_key_sha256 and principal.api_key_sha256.lower(),
        "lamamq.identity": principal.lamamq and principal.lamamq.identity,
    }
    return {key: value for key, value in found.items() if value}


def _check_password_hash(encoded: str, key: str, sources: Sources) -> None:
    try:
        parameters = argon2.extract_parameters(encoded)
    except argon2.exceptions.InvalidHashError:
        parameters = None
    if parameters is None or parameters.type is not argon2.Type.ID:
        problem = "expected an argon2id hash; `penstock hash-password` prints one"
        raise sources.error(f"{key}.basic.password_hash", problem)
    if parameters.memory_cost > ARGON2_MEMORY_KIB_MAX:
        problem = f"expected a hash that takes at most {ARGON2_MEMORY_KIB_MAX} KiB of memory"
        raise sources.error(f"{key}.basic.password_hash", problem)


def _check_http(config: Config, sources: Sources) -> None:
    try:
        _ = config.http.place
    except BadAddress as error:
        problem = f"expected HOST:PORT, such as 127.0.0.1:7080: {error.problem}"
        raise sources.error("http.address", problem) from None


def _check_http_access(config: Config, sources: Sources) -> None:
    address = config.http.place
    if address is None or address.is_loopback or config.principal:
        return
    problem = (
        f"{config.http.address} can be reached by other machines and nobody has credentials; "
        "add a [[principal]], or use 127.0.0.1"
    )
    if not any(address.beside(each.address) for each in config.listener):
        raise sources.error("http.address", problem)


def _check_flight(config: Config, sources: Sources) -> None:
    try:
        address = config.flight.place
    except BadAddress as error:
        problem = f'expected HOST:PORT, such as 127.0.0.1:7090, or "" for none: {error.problem}'
        raise sources.error("flight.address", problem) from None
    if address is None:
        return
    if config.broker.durability == "memory":
        problem = 'there are no tables with broker.durability = "memory"'
        raise sources.error("flight.address", problem)
    if (address.certificate is None) is not (address.key is None):
        raise sources.error("flight", "expected both certificate and key, or neither")
    _check_certificate(address, "flight", sources)
    _check_access(address, "flight", config, sources)


def _check_listeners(config: Config, sources: Sources) -> None:
    taken: dict[str, int] = {}
    for index, listener in enumerate(config.listener):
        key = f"listener[{index}]"
        try:
            address = listener.address
        except BadAddress as error:
            problem = f'{error.problem} (in "{listener.url}")'
            raise sources.error(f"{key}.url", problem) from None
        first = taken.setdefault(address.location, index)
        if first != index and not address.location.endswith(":0"):
            raise sources.error(f"{key}.url", f"listener[{first}] is at the same address")
        _check_certificate(address, key, sources)
        _check_access(address, key, config, sources)


def _check_certificate(address: Address, key: str, sources: Sources) -> None:
    if not address.is_secure:
        return
    if address.certificate is None or address.key is None:
        problem = f"{address.scheme}:// needs certificate and key, each the path of a PEM file"
        raise sources.error(key, problem)
    from penstock.transport.tls import server_context  # noqa: PLC0415  (a cost only TLS pays)

    try:
        server_context(address.certificate, address.key)
    except CertificateUnusable as error:
        raise sources.error(key, str(error)) from None


def _check_access(address: Address, key: str, config: Config, sources: Sources) -> None:
    """Refuse a listener that is open to the world by oversight, or closed to everyone."""
    anonymous = address.anonymous
    if anonymous or (anonymous is None and address.is_loopback):
        return
    protocol = address.protocol
    if protocol is not None and not protocol.credentials:
        problem = (
            f"{address.location} would let nobody in: {protocol.label} clients have no "
            "credentials; set anonymous = true, or listen on 127.0.0.1"
        )
        raise sources.error(key, problem)
    if not config.principal:
        problem = (
            f"{address.location} can be reached by other machines and nobody has credentials; "
            "add a [[principal]], set anonymous = true, or listen on 127.0.0.1"
        )
        if address.is_loopback:
            problem = (
                f"{address.location} would let nobody in: add a [[principal]], "
                "or leave out anonymous = false"
            )
        raise sources.error(key, problem)
