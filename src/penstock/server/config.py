"""Broker settings. Defaults are safe for a public listener.

One class for each table of `penstock.toml`; `docs/configuration.md` describes every key. Names end
in unit and bound. The types state which values are valid. Use `config_loading.load` to get a
`Config` that is checked as a whole.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from penstock import limits as bounds
from penstock import model
from penstock.core.broker import BrokerSettings
from penstock.protocols import PROTOCOLS
from penstock.storage.options import DurabilityRules, LogOptions, Retention
from penstock.transport.addresses import OPTIONS, Address, parse_address

__all__ = [
    "IDENTITY_TABLE",
    "PROTOCOL_LIMITS",
    "AnonymousConfig",
    "BasicConfig",
    "BrokerConfig",
    "Config",
    "DataConfig",
    "Durability",
    "FlightConfig",
    "HeraldConfig",
    "HttpConfig",
    "IdentityConfig",
    "LimitsConfig",
    "ListenerConfig",
    "LogConfig",
    "PrincipalConfig",
    "ProgramConfig",
    "RuleConfig",
    "TopicDurabilityConfig",
    "Verdict",
]

Durability = Literal["fsync", "os", "memory"]
Verdict = Literal["allow", "deny"]
if TYPE_CHECKING:
    _ProtocolName = str
else:
    _ProtocolName = Literal[PROTOCOLS.labels]

IDENTITY_TABLE: Final = next(each.label for each in PROTOCOLS if each.identity_key)
"""The table of a principal for the protocol that authenticates by identity name and key."""

_DURABILITY = {
    "memory": model.Durability.MEMORY,
    "os": model.Durability.OS,
    "fsync": model.Durability.FSYNC,
}
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$", title="64 hexadecimal digits")]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class BrokerConfig(_Table, frozen=True):
    """`[broker]`: limits of sessions, slow consumers, and durability."""

    sessions_max: _Count = bounds.SESSIONS_MAX
    subscriptions_max: _Count = bounds.SUBSCRIPTIONS_MAX
    out_buffer_bytes_max: Annotated[int, Meta(ge=64 * bounds.KIB)] = bounds.OUT_BUFFER_BYTES_MAX
    hold_seconds_max: Annotated[float, Meta(ge=0, le=86_400)] = bounds.HOLD_SECONDS_MAX
    slow_consumer: Literal["drop", "disconnect"] = "drop"
    durability: Durability = "fsync"


class CommonLimitsConfig(_Table, frozen=True):
    """`[limits]`: times, rates and frame sizes. No size exceeds the protocol's specification."""

    connections_max: _Count = bounds.SESSIONS_MAX
    handshake_seconds_max: _Seconds = float(bounds.HANDSHAKE_SECONDS_MAX)
    handshake_bytes_max: Annotated[int, Meta(ge=64, le=bounds.DETECT_BYTES_MAX)] = (
        bounds.DETECT_BYTES_MAX
    )
    stop_seconds_max: _Seconds = 5.0
    messages_per_second_max: Annotated[int, Meta(ge=0)] = 0


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

    @property
    def place(self) -> Address | None:
        """The parsed address without a WebSocket path, None if not set; raise BadAddress."""
        if self.address is None:
            return None
        found = parse_address(f"tcp://{self.address}")
        return Address("ws", found.host, found.port, anonymous=self.anonymous)


class FlightConfig(_Table, frozen=True):
    """`[flight]`: the address of Arrow Flight; empty turns it off."""

    address: str = ""
    anonymous: bool | None = None
    certificate: _Text | None = None
    key: _Text | None = None
    stall_seconds_max: _Seconds = bounds.FLIGHT_STALL_SECONDS_MAX

    @property
    def place(self) -> Address | None:
        """The parsed address with TLS and access options, None if off; raise BadAddress."""
        if not self.address:
            return None
        secure = self.certificate is not None or self.key is not None
        address = parse_address(f"{'tls' if secure else 'tcp'}://{self.address}")
        return dataclasses.replace(
            address, anonymous=self.anonymous, certificate=self.certificate, key=self.key
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


class HeraldConfig(_Table, frozen=True):
    """`[herald]`: topics of channels. If `channels` is set, only those channels exist.

    `replay` is the start position of a channel's subscribers, such as `@earliest`.
    """

    channels: dict[str, str] = {}
    replay: dict[str, str] = {}


class ListenerConfig(_Table, frozen=True):
    """`[[listener]]`: an address where clients connect. Options are keys or part of the URL."""

    url: _Text
    protocol: _ProtocolName | None = None
    order: Literal["little", "big"] | None = None
    echo: bool | None = None
    strict: bool | None = None
    anonymous: bool | None = None
    certificate: _Text | None = None
    key: _Text | None = None
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


class RuleConfig(_Table, frozen=True):
    """`[[principal.rule]]` and `[[anonymous.rule]]`: the first that matches a topic applies."""

    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    allow: Annotated[tuple[Literal["publish", "subscribe"], ...], Meta(min_length=1)] | None = None
    deny: Annotated[tuple[Literal["publish", "subscribe"], ...], Meta(min_length=1)] | None = None


class BasicConfig(_Table, frozen=True):
    """`basic` of a principal: user name and password, for fleximq and HTTP."""

    username: _Text
    password_hash: _Text


class IdentityConfig(_Table, frozen=True):
    """IDENTITY_TABLE of a principal: an identity name and its key."""

    identity: Annotated[
        str, Meta(min_length=1, extra={"bytes_max": bounds.IDENTITY_NAME_BYTES_MAX})
    ]
    key_sha256: _Sha256


class PrincipalConfig(_Table, frozen=True):
    """`[[principal]]`: an account with its credentials and rules."""

    name: _Text
    token: _Text | None = None
    basic: BasicConfig | None = None
    api_key_sha256: _Sha256 | None = None
    identity_key: IdentityConfig | None = msgspec.field(name=IDENTITY_TABLE, default=None)
    default: Verdict | None = None
    rule: tuple[RuleConfig, ...] = ()


class AnonymousConfig(_Table, frozen=True):
    """`[anonymous]`: rules for clients without credentials, on listeners that accept them."""

    default: Verdict | None = None
    rule: tuple[RuleConfig, ...] = ()


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
    herald: HeraldConfig = HeraldConfig()
    anonymous: AnonymousConfig = AnonymousConfig()
    listener: tuple[ListenerConfig, ...] = ()
    principal: tuple[PrincipalConfig, ...] = ()
    program: tuple[ProgramConfig, ...] = ()

    @property
    def broker_settings(self) -> BrokerSettings:
        """The settings of the core."""
        return BrokerSettings(
            sessions_max=self.broker.sessions_max,
            subscriptions_max=self.broker.subscriptions_max,
            out_buffer_bytes_max=self.broker.out_buffer_bytes_max,
            hold_seconds_max=self.broker.hold_seconds_max,
            disconnect_slow_consumers=self.broker.slow_consumer == "disconnect",
        )

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
            retention=Retention(
                age_seconds_max=self.log.age_seconds_max or None,
                bytes_max=self.log.bytes_max or None,
            ),
        )

    @property
    def herald_replay(self) -> dict[int, str]:
        """The start position of the subscribers of each herald channel."""
        return {int(channel): start for channel, start in self.herald.replay.items()}
