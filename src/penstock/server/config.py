"""Broker settings. Defaults are safe for a public listener.

One class for each table of `penstock.toml`; `docs/configuration.md` describes every key. Names end
in unit and bound. The types state which values are valid. Use `config_loading.load` to get a
`Config` that is checked as a whole.
"""

import dataclasses
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from penstock import limits as bounds
from penstock import model
from penstock.core.access import Action
from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.memory import SMALL_SHARE, MemoryBudget, Purpose
from penstock.protocols import PROTOCOLS
from penstock.server.system_memory import default_memory_bytes
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.options import (
    DurabilityRules,
    LogOptions,
    Retention,
    TierOptions,
    TopicRetention,
)
from penstock.transport.addresses import OPTIONS, Address, parse_address
from penstock.transport.tls import ClientCertificate

__all__ = [
    "IDENTITY_TABLE",
    "PROTOCOL_LIMITS",
    "AnonymousConfig",
    "AuditConfig",
    "AuthConfig",
    "BasicConfig",
    "BrokerConfig",
    "CertificateConfig",
    "Config",
    "DataConfig",
    "Durability",
    "EventsConfig",
    "FlightConfig",
    "GroupConfig",
    "GroupsConfig",
    "HeraldConfig",
    "HooksConfig",
    "HttpConfig",
    "IdentityConfig",
    "JwtConfig",
    "JwtIssuerConfig",
    "LimitsConfig",
    "ListenerConfig",
    "LogConfig",
    "PrincipalConfig",
    "ProgramConfig",
    "RequiredHookConfig",
    "RoleConfig",
    "RuleConfig",
    "Sha256",
    "StorageConfig",
    "TopicDurabilityConfig",
    "TracingConfig",
    "Verdict",
]

Durability = Literal["fsync", "os", "memory"]
Verdict = Literal["allow", "deny"]
JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
    "HS256", "HS384", "HS512",
]  # fmt: skip
if TYPE_CHECKING:
    _ProtocolName = str
    _Right = str
else:
    _ProtocolName = Literal[PROTOCOLS.labels]
    _Right = Literal[tuple(str(action) for action in Action)]

IDENTITY_TABLE: Final = next(each.label for each in PROTOCOLS if each.identity_key)
"""The table of a principal for the protocol that authenticates by identity name and key."""

KAFKA_TOPIC: Final = "^[A-Za-z0-9._-]{1,200}$"
"""Names of Kafka topics, with room for the end of the state topic's name."""
AUDIT_FILE: Final = "audit.jsonl"
"""The audit log in the data folder."""
_DURABILITY = {
    "memory": model.Durability.MEMORY,
    "os": model.Durability.OS,
    "fsync": model.Durability.FSYNC,
}
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$", title="64 hexadecimal digits")]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class BrokerConfig(_Table, frozen=True):
    """`[broker]`: limits of sessions, slow consumers, and durability."""

    sessions_max: _Count = bounds.SESSIONS_MAX
    subscriptions_max: _Count = bounds.SUBSCRIPTIONS_MAX
    subscription_bytes_max: _Count = bounds.SUBSCRIPTION_BYTES_MAX
    out_buffer_bytes_max: Annotated[int, Meta(ge=64 * bounds.KIB)] = bounds.OUT_BUFFER_BYTES_MAX
    hold_seconds_max: Annotated[float, Meta(ge=0, le=86_400)] = bounds.HOLD_SECONDS_MAX
    slow_consumer: Literal["drop", "disconnect"] = "drop"
    durability: Durability = "fsync"
    topics_max: Annotated[int, Meta(ge=1, le=bounds.TOPICS_MAX)] = bounds.TOPICS_MAX
    topic_names_bytes_max: _Count = bounds.TOPIC_NAMES_BYTES_MAX
    last_topics_max: Annotated[int, Meta(ge=1, le=bounds.TOPICS_MAX)] = bounds.LAST_TOPICS_MAX
    dedupe_seconds: _Seconds = bounds.DEDUPE_SECONDS
    dedupe_keys_max: Annotated[int, Meta(ge=1, le=bounds.DEDUPE_KEYS_CEILING)] = (
        bounds.DEDUPE_KEYS_MAX
    )
    topics_per_principal_max: Annotated[int, Meta(ge=1, le=bounds.TOPICS_MAX)] = (
        bounds.TOPICS_PER_PRINCIPAL_MAX
    )
    topic_names_bytes_per_principal_max: _Count = bounds.TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX
    groups_per_principal_max: Annotated[int, Meta(ge=1, le=bounds.GROUPS_MAX)] = (
        bounds.GROUPS_PER_PRINCIPAL_MAX
    )


class CommonLimitsConfig(_Table, frozen=True):
    """`[limits]`: times, rates and frame sizes. No size exceeds the protocol's specification."""

    connections_max: _Count = bounds.SESSIONS_MAX
    connections_per_address_max: Annotated[int, Meta(ge=0)] = 0
    handshake_seconds_max: _Seconds = float(bounds.HANDSHAKE_SECONDS_MAX)
    handshake_bytes_max: Annotated[int, Meta(ge=64, le=bounds.DETECT_BYTES_MAX)] = (
        bounds.DETECT_BYTES_MAX
    )
    stop_seconds_max: _Seconds = 5.0
    messages_per_second_max: Annotated[int, Meta(ge=0)] = 0
    stall_seconds_min: Annotated[float, Meta(ge=0, le=60)] = bounds.STALL_SECONDS_MIN
    memory_bytes_max: Annotated[int, Meta(ge=0)] = 0
    memory_address_share: _Share = bounds.MEMORY_ADDRESS_SHARE
    memory_principal_share: _Share = bounds.MEMORY_PRINCIPAL_SHARE
    memory_unauthenticated_share: _Share = bounds.MEMORY_UNAUTHENTICATED_SHARE


_PROTOCOL_LIMITS: Final = tuple(
    (f"{protocol.label}_{limit.name}", Annotated[int, Meta(ge=limit.least, le=limit.most)], limit)
    for protocol in PROTOCOLS
    for limit in protocol.limits
)
PROTOCOL_LIMITS: Final = tuple(name for name, _, _ in _PROTOCOL_LIMITS)
"""The keys of `[limits]` that are limits of a protocol."""

if TYPE_CHECKING:
    LimitsConfig = CommonLimitsConfig
else:
    LimitsConfig = msgspec.defstruct(
        "LimitsConfig",
        [(name, kind, limit.default) for name, kind, limit in _PROTOCOL_LIMITS],
        bases=(CommonLimitsConfig,),
        module=__name__,
        namespace={"__doc__": CommonLimitsConfig.__doc__},
        frozen=True,
    )


class HttpConfig(_Table, frozen=True):
    """`[http]`: the address of the HTTP API. WebSocket listeners answer HTTP, too."""

    address: _Text | None = None
    anonymous: bool | None = None
    cleartext_credentials: bool | None = None

    @property
    def place(self) -> Address | None:
        """The parsed address without a WebSocket path, None if not set; raise BadAddress."""
        if self.address is None:
            return None
        found = parse_address(f"tcp://{self.address}")
        return Address(
            "ws",
            found.host,
            found.port,
            anonymous=self.anonymous,
            cleartext_credentials=self.cleartext_credentials,
        )


class FlightConfig(_Table, frozen=True):
    """`[flight]`: the address of Arrow Flight; empty turns it off."""

    address: str = ""
    anonymous: bool | None = None
    cleartext_credentials: bool | None = None
    certificate: _Text | None = None
    key: _Text | None = None
    client_ca: _Text | None = None
    stall_seconds_max: _Seconds = bounds.FLIGHT_STALL_SECONDS_MAX

    @property
    def place(self) -> Address | None:
        """The parsed address with TLS and access options, None if off; raise BadAddress."""
        if not self.address:
            return None
        secure = self.certificate is not None or self.key is not None
        address = parse_address(f"{'tls' if secure else 'tcp'}://{self.address}")
        return dataclasses.replace(
            address,
            anonymous=self.anonymous,
            cleartext_credentials=self.cleartext_credentials,
            certificate=self.certificate,
            key=self.key,
            client_ca=self.client_ca,
        )


class DataConfig(_Table, frozen=True):
    """`[data]`: the folder of the log."""

    folder: _Text = "penstock-data"


class TopicDurabilityConfig(_Table, frozen=True):
    """`[[log.durability]]`: the durability of some topics; the first match applies."""

    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    durability: Durability


class LogConfig(_Table, frozen=True):
    """`[log]`: segments, buffers and retention; 0 is no limit."""

    segment_bytes_max: Annotated[int, Meta(ge=1 * bounds.MIB, le=2 * bounds.GIB)] = (
        bounds.SEGMENT_BYTES_MAX
    )
    waiting_bytes_max: Annotated[int, Meta(ge=1 * bounds.MIB)] = bounds.LOG_WAITING_BYTES_MAX
    cache_bytes_max: Annotated[int, Meta(ge=0)] = bounds.LOG_CACHE_BYTES_MAX
    age_seconds_max: Annotated[float, Meta(ge=0)] = 0.0
    bytes_max: Annotated[int, Meta(ge=0)] = 0
    durability: tuple[TopicDurabilityConfig, ...] = ()


class RetentionConfig(_Table, frozen=True):
    """`[[retention]]`: what is kept of some topics; the first match applies, 0 is no limit."""

    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    age_seconds_max: Annotated[float, Meta(ge=0)] = 0.0
    bytes_max: Annotated[int, Meta(ge=0)] = 0
    last_only: bool = False


class TierConfig(_Table, frozen=True):
    """`[storage.tier]`: an object store for closed segments; 0 is no limit."""

    url: _Text | None = None
    local_seconds_max: Annotated[float, Meta(ge=0)] = 0.0
    local_bytes_max: Annotated[int, Meta(ge=0)] = 0
    cache_bytes_max: Annotated[int, Meta(ge=1 * bounds.MIB)] = bounds.TIER_CACHE_BYTES_MAX


class StorageConfig(_Table, frozen=True):
    """`[storage]`: where the log is: in the data folder, or on Kafka.

    `kafka` has settings of librdkafka, such as those for TLS and SASL, and a table `namespaces`:
    Kafka topics by pattern of topics. `tier` is an object store
    for closed segments of a log in the data folder.
    """

    kind: Literal["arrow", "kafka"] = "arrow"
    bootstrap: _Text | None = None
    topic: Annotated[str, Meta(pattern=KAFKA_TOPIC, title="a name of a Kafka topic")] = "penstock"
    node: Annotated[int, Meta(ge=0, le=bounds.NODES_MAX - 1)] = 0
    commit_seconds_max: _Seconds = bounds.KAFKA_COMMIT_SECONDS_MAX
    deliver: Literal["received", "committed"] = "received"
    kafka: dict[str, str | dict[str, str]] = {}
    tier: TierConfig = TierConfig()

    @property
    def librdkafka(self) -> dict[str, str]:
        """The settings of librdkafka."""
        return {key: value for key, value in self.kafka.items() if isinstance(value, str)}

    @property
    def namespaces(self) -> dict[str, str]:
        """Kafka topics by pattern of topics."""
        found = self.kafka.get("namespaces")
        return found if isinstance(found, dict) else {}


class HeraldConfig(_Table, frozen=True):
    """`[herald]`: topics of channels. If `channels` is set, only those channels exist.

    `replay` is the start position of a channel's subscribers, such as `@earliest`.
    `ping_seconds` is the silence of a client after which the broker sends PING; 0 is never.
    """

    channels: dict[str, str] = {}
    replay: dict[str, str] = {}
    ping_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0


class RequiredHookConfig(_Table, frozen=True):
    """`[[hooks.required]]`: topics whose messages need the consent of a middleware."""

    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]


class HooksConfig(_Table, frozen=True):
    """`[hooks]`: hooks of middleware."""

    grace_seconds: Annotated[float, Meta(ge=0, le=86_400)] = bounds.HOOK_GRACE_SECONDS
    required: tuple[RequiredHookConfig, ...] = ()


class GroupsConfig(_Table, frozen=True):
    """`[groups]`: settings of consumer groups whose members are clients of the broker."""

    ack_wait_seconds: _Seconds = bounds.GROUP_ACK_WAIT_SECONDS
    deliveries_max: _Count = bounds.GROUP_DELIVERIES_MAX
    unacked_max: Annotated[int, Meta(ge=1, le=bounds.GROUP_UNACKED_MAX)] = (
        bounds.GROUP_UNACKED_DEFAULT
    )


class GroupConfig(_Table, frozen=True):
    """`[[group]]`: settings of one consumer group; those that are not set are of `[groups]`."""

    name: _Text
    ack_wait_seconds: _Seconds | None = None
    deliveries_max: _Count | None = None
    unacked_max: Annotated[int, Meta(ge=1, le=bounds.GROUP_UNACKED_MAX)] | None = None


def _group_settings(
    *tables: GroupsConfig | GroupConfig,
) -> GroupSettings:
    """Return the settings of a group: of the first table that has each."""
    return GroupSettings(
        **{
            name: next(found for table in tables if (found := getattr(table, name)) is not None)
            for name in ("ack_wait_seconds", "deliveries_max", "unacked_max")
        }
    )


class ListenerConfig(_Table, frozen=True):
    """`[[listener]]`: an address where clients connect. Options are keys or part of the URL."""

    url: _Text
    protocol: _ProtocolName | None = None
    order: Literal["little", "big"] | None = None
    echo: bool | None = None
    strict: bool | None = None
    anonymous: bool | None = None
    cleartext_credentials: bool | None = None
    certificate: _Text | None = None
    key: _Text | None = None
    client_ca: _Text | None = None
    client_certificate: ClientCertificate | None = None
    mode: _Text | None = None
    origins: Annotated[tuple[_Text, ...], Meta(min_length=1)] | None = None

    @property
    def address(self) -> Address:
        """The URL with the other keys as its options; raise BadAddress."""
        given = []
        for name in OPTIONS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool):
                value = str(value).lower()
            text = value if isinstance(value, str) else ",".join(value)
            given.append(f"{name}={quote(text, safe='')}")
        separator = "&" if "?" in self.url else "?"
        return parse_address(self.url + separator + "&".join(given) if given else self.url)


class AuditConfig(_Table, frozen=True):
    """`[audit]`: the file of the audit log; empty turns it off.

    Without `file` it is AUDIT_FILE in the data folder, if there is a log.
    """

    file: str | None = None
    bytes_max: Annotated[int, Meta(ge=64 * bounds.KIB)] = bounds.AUDIT_BYTES_MAX


class TracingConfig(_Table, frozen=True):
    """`[tracing]`: where spans of sampled messages are sent; empty turns traces off."""

    endpoint: Annotated[str, Meta(pattern="^(https?://[^ ]+)?$", title="an HTTP URL")] = ""
    service: _Text = "penstock"
    every: Annotated[int, Meta(ge=0)] = 0
    publishers: bool = True
    traces_per_second_max: _Count = bounds.TRACES_PER_SECOND_MAX


class RuleConfig(_Table, frozen=True):
    """`rule` of a principal, a role or `[anonymous]`: the first that matches a name applies."""

    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    allow: Annotated[tuple[_Right, ...], Meta(min_length=1)] | None = None
    deny: Annotated[tuple[_Right, ...], Meta(min_length=1)] | None = None


class QuotaConfig(_Table, frozen=True):
    """`quota`: what all clients of a principal together may use; 0 is no limit."""

    connections_max: Annotated[int, Meta(ge=0)] | None = None
    messages_per_second_max: Annotated[int, Meta(ge=0)] | None = None
    bytes_per_second_max: Annotated[int, Meta(ge=0)] | None = None
    stored_bytes_max: Annotated[int, Meta(ge=0)] | None = None
    topics_max: Annotated[int, Meta(ge=0, le=bounds.TOPICS_MAX)] | None = None


class RoleConfig(_Table, frozen=True):
    """`[[role]]`: rules and quotas that several principals share."""

    name: _Text
    rule: Annotated[tuple[RuleConfig, ...], Meta(min_length=1)] = ()
    quota: QuotaConfig = QuotaConfig()


class BasicConfig(_Table, frozen=True):
    """`basic` of a principal: user name and password, for fleximq and HTTP."""

    username: _Text
    password_hash: _Text


class IdentityConfig(_Table, frozen=True):
    """IDENTITY_TABLE of a principal: an identity name and its key."""

    identity: Annotated[
        str, Meta(min_length=1, extra={"bytes_max": bounds.IDENTITY_NAME_BYTES_MAX})
    ]
    key_sha256: Sha256


class CertificateConfig(_Table, frozen=True):
    """`certificate` of a principal: a name in client certificates, exactly as it stands there.

    Either the whole `subject` as in RFC 4514, or one subject alternative name with its type.
    """

    subject: _Text | None = None
    san: _Text | None = None


class JwtConfig(_Table, frozen=True):
    """`jwt` of a principal: tokens of an issuer for a subject, by default the principal's name."""

    issuer: _Text
    subject: _Text | None = None


class PrincipalConfig(_Table, frozen=True):
    """`[[principal]]`: an account with its credentials and rules."""

    name: _Text
    token: _Text | None = None
    token_sha256: Sha256 | None = None
    basic: BasicConfig | None = None
    api_key_sha256: Sha256 | None = None
    identity_key: IdentityConfig | None = msgspec.field(name=IDENTITY_TABLE, default=None)
    jwt: JwtConfig | None = None
    certificate: CertificateConfig | None = None
    networks: Annotated[tuple[_Text, ...], Meta(min_length=1)] | None = None
    only_from: Annotated[tuple[_Text, ...], Meta(min_length=1)] | None = None
    default: Verdict | None = None
    roles: tuple[_Text, ...] = ()
    rule: tuple[RuleConfig, ...] = ()
    quota: QuotaConfig = QuotaConfig()


class JwtIssuerConfig(_Table, frozen=True):
    """`[[jwt]]`: an issuer of JSON Web Tokens, whose signatures are verified with `keys`."""

    issuer: _Text
    audience: _Text
    algorithms: Annotated[tuple[JwtAlgorithm, ...], Meta(min_length=1)]
    keys: Annotated[tuple[_Text, ...], Meta(min_length=1, max_length=bounds.JWT_KEYS_MAX)]
    claim: _Text = "sub"
    leeway_seconds: Annotated[float, Meta(ge=0, le=300)] = bounds.JWT_LEEWAY_SECONDS


class EventsConfig(_Table, frozen=True):
    """`[events]`: the log events on standard error."""

    format: Literal["logfmt", "json"] = "logfmt"
    level: Literal["debug", "info", "warning", "error"] = "info"


class AuthConfig(_Table, frozen=True):
    """`[auth]`: the file that `penstock user` maintains."""

    users: _Text | None = None


class AnonymousConfig(_Table, frozen=True):
    """`[anonymous]`: rules for clients without credentials, on listeners that accept them."""

    default: Verdict | None = None
    roles: tuple[_Text, ...] = ()
    rule: tuple[RuleConfig, ...] = ()
    quota: QuotaConfig = QuotaConfig()


class ProgramConfig(_Table, frozen=True):
    """`[[program]]`: a fleximq client that the broker runs as a process, over its pipes."""

    command: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    name: _Text | None = None
    folder: _Text | None = None
    env: dict[str, str] = {}


class Config(_Table, frozen=True):
    """All settings, with defaults for those that are not set."""

    broker: BrokerConfig = BrokerConfig()
    limits: LimitsConfig = LimitsConfig()
    http: HttpConfig = HttpConfig()
    flight: FlightConfig = FlightConfig()
    data: DataConfig = DataConfig()
    log: LogConfig = LogConfig()
    storage: StorageConfig = StorageConfig()
    herald: HeraldConfig = HeraldConfig()
    hooks: HooksConfig = HooksConfig()
    groups: GroupsConfig = GroupsConfig()
    audit: AuditConfig = AuditConfig()
    events: EventsConfig = EventsConfig()
    tracing: TracingConfig = TracingConfig()
    auth: AuthConfig = AuthConfig()
    anonymous: AnonymousConfig = AnonymousConfig()
    quota: QuotaConfig = QuotaConfig()
    retention: tuple[RetentionConfig, ...] = ()
    group: tuple[GroupConfig, ...] = ()
    role: tuple[RoleConfig, ...] = ()
    listener: tuple[ListenerConfig, ...] = ()
    principal: tuple[PrincipalConfig, ...] = ()
    jwt: tuple[JwtIssuerConfig, ...] = ()
    program: tuple[ProgramConfig, ...] = ()

    @property
    def broker_settings(self) -> BrokerSettings:
        """The settings of the core."""
        return BrokerSettings(
            sessions_max=self.broker.sessions_max,
            subscriptions_max=self.broker.subscriptions_max,
            subscription_bytes_max=self.broker.subscription_bytes_max,
            out_buffer_bytes_max=self.broker.out_buffer_bytes_max,
            hold_seconds_max=self.broker.hold_seconds_max,
            disconnect_slow_consumers=self.broker.slow_consumer == "disconnect",
            deliver_committed=self._deliver_committed,
            topics_max=min(self.broker.topics_max, self._topics_room // bounds.TOPIC_BYTES),
            topic_names_bytes_max=min(
                self.broker.topic_names_bytes_max, self._topics_room // bounds.TOPIC_NAME_COPIES
            ),
            last_topics_max=self.broker.last_topics_max,
            dedupe_seconds=self.broker.dedupe_seconds,
            dedupe_keys_max=self.broker.dedupe_keys_max,
            topics_per_principal_max=self.broker.topics_per_principal_max,
            topic_names_bytes_per_principal_max=self.broker.topic_names_bytes_per_principal_max,
            groups_per_principal_max=self.broker.groups_per_principal_max,
            groups=_group_settings(self.groups),
            groups_by_name={each.name: _group_settings(each, self.groups) for each in self.group},
        )

    @property
    def _deliver_committed(self) -> bool:
        return self.storage.kind == "kafka" and self.storage.deliver == "committed"

    @property
    def audit_file(self) -> str | None:
        """The path of the audit log; None if there is none."""
        if self.audit.file is not None:
            return self.audit.file or None
        if self.broker.durability == "memory":
            return None
        return str(PurePath(self.data.folder) / AUDIT_FILE)

    @property
    def memory_bytes_max(self) -> int:
        """The memory budget; if it is not set, half of the memory that the process may use."""
        return self.limits.memory_bytes_max or default_memory_bytes()

    @property
    def _topics_room(self) -> int:
        """The memory that the names of topics may take, and the rest of topics again."""
        left = self.memory_bytes_max * (1 - SMALL_SHARE) - sum(self.memory_fixed.values())
        return max(int(left * bounds.TOPICS_MEMORY_SHARE), bounds.TOPICS_MEMORY_BYTES_MIN)

    @property
    def memory_fixed(self) -> dict[Purpose, int]:
        """The parts of the memory budget that do not depend on clients, in bytes."""
        if self.broker.durability == "memory":
            return {}
        return {
            Purpose.LOG: self.log.waiting_bytes_max,
            Purpose.CACHES: (
                self._kafka_memory_bytes
                if self.storage.kind == "kafka"
                else self._index_cache_bytes_max + self._tier_memory_bytes
            ),
            Purpose.REPLAY: bounds.REPLAY_FIXED_BYTES,
            Purpose.FLIGHT: self.flight_arriving_bytes_max if self.flight.address else 0,
        }

    @property
    def flight_arriving_bytes_max(self) -> int:
        """The limit of unfinished messages of all Flight clients; one message always fits."""
        share = int(self.memory_bytes_max * bounds.FLIGHT_ARRIVING_SHARE)
        wanted = min(bounds.FLIGHT_ARRIVING_BYTES_MAX, share)
        return max(bounds.FLIGHT_MESSAGE_BYTES_MAX, wanted)

    @property
    def _index_cache_bytes_max(self) -> int:
        share = int(self.memory_bytes_max * bounds.INDEX_CACHE_SHARE)
        return min(bounds.INDEX_CACHE_BYTES_MAX, share)

    @property
    def _kafka_cache_bytes_max(self) -> int:
        share = int(self.memory_bytes_max * bounds.INDEX_CACHE_SHARE)
        return min(bounds.KAFKA_CACHE_BYTES_MAX, share)

    @property
    def _kafka_memory_bytes(self) -> int:
        """The memory of the cache, the follower, and the consumers that are always there."""
        consumers = 1 + bounds.LOG_READERS + bool(self.storage.namespaces)
        return (
            self._kafka_cache_bytes_max
            + bounds.KAFKA_FOLLOW_BYTES_MAX
            + consumers * bounds.KAFKA_AHEAD_BYTES_MAX
        )

    @property
    def _tier_memory_bytes(self) -> int:
        """The memory for copies to and from the object store."""
        return bounds.TIER_MEMORY_BYTES if self.storage.tier.url else 0

    @property
    def _tier_options(self) -> TierOptions | None:
        tier = self.storage.tier
        if not tier.url:
            return None
        return TierOptions(
            url=tier.url,
            local=Retention(
                age_seconds_max=tier.local_seconds_max or None,
                bytes_max=tier.local_bytes_max or None,
            ),
            cache_bytes_max=tier.cache_bytes_max,
        )

    def new_memory_budget(self) -> MemoryBudget:
        """Return the memory budget of a process, with its fixed parts reserved."""
        budget = MemoryBudget(
            self.memory_bytes_max,
            address_share=self.limits.memory_address_share,
            principal_share=self.limits.memory_principal_share,
            unauthenticated_share=self.limits.memory_unauthenticated_share,
        )
        for purpose, size in self.memory_fixed.items():
            budget.reserve(purpose, size)
        return budget

    @property
    def channels(self) -> dict[int, str] | None:
        """The topics of herald channels; None if not set, so that all 256 exist."""
        named = self.herald.channels
        return {int(channel): topic for channel, topic in named.items()} or None

    @property
    def log_options(self) -> LogOptions | None:
        """The options of the log; None if there is no log."""
        if self.broker.durability == "memory":
            return None
        patterns = [
            (pattern, _DURABILITY[each.durability])
            for each in self.log.durability
            for pattern in each.topics
        ]
        return LogOptions(
            durability=DurabilityRules(_DURABILITY[self.broker.durability], patterns),
            segment_bytes_max=self.log.segment_bytes_max,
            waiting_bytes_max=self.log.waiting_bytes_max,
            cache_bytes_max=self.log.cache_bytes_max,
            index_cache_bytes_max=self._index_cache_bytes_max,
            retention=Retention(
                age_seconds_max=self.log.age_seconds_max or None,
                bytes_max=self.log.bytes_max or None,
                rules=tuple(
                    TopicRetention(
                        topics=each.topics,
                        age_seconds_max=each.age_seconds_max or None,
                        bytes_max=each.bytes_max or None,
                        last_only=each.last_only,
                    )
                    for each in self.retention
                ),
            ),
            tier=self._tier_options,
        )

    @property
    def kafka_options(self) -> KafkaOptions | None:
        """The options of the log on Kafka; None if it is not on Kafka."""
        log, storage = self.log_options, self.storage
        if log is None or storage.kind != "kafka":
            return None
        return KafkaOptions(
            bootstrap=storage.bootstrap or "",
            topic=storage.topic,
            node=storage.node,
            settings=storage.librdkafka,
            namespaces=storage.namespaces,
            log=log,
            commit_seconds_max=storage.commit_seconds_max,
            cache_bytes_max=self._kafka_cache_bytes_max,
            deliver_committed=self._deliver_committed,
        )

    @property
    def topics_judged(self) -> list[str]:
        """The patterns of topics whose messages need the consent of a middleware."""
        return [topic for each in self.hooks.required for topic in each.topics]

    @property
    def herald_replay(self) -> dict[int, str]:
        """The start position of the subscribers of each herald channel."""
        return {int(channel): start for channel, start in self.herald.replay.items()}
