"""The text that a broker prints when it is ready."""

from collections.abc import Sequence

from penstock.protocols import PROTOCOLS
from penstock.server.config import Config
from penstock.transport.addresses import Address

__all__ = ["banner"]

DURABILITY = {
    "fsync": "acknowledged messages are on the disk",
    "os": "acknowledged messages are with the operating system",
    "memory": "messages are in memory and lost when the process ends",
}


def banner(
    config: Config,
    addresses: Sequence[Address],
    *,
    version: str,
    flight: Address | None = None,
    http: Address | None = None,
) -> str:
    """Return the text for a broker that listens at `addresses`, with their actual ports.

    `flight` is the address of Arrow Flight. `http` is the address of the HTTP API, if it is not
    that of a WebSocket listener.
    """
    places = [address.location for address in addresses]
    width = max(map(len, places), default=0)
    lines = [f"Penstock {version}"]
    for place, address in zip(places, addresses, strict=True):
        lines.append(f"  listen  {place:<{width}}  {_protocols(address)}")
    lines += [f"  program {' '.join(program.command)}" for program in config.program]
    kafka = config.kafka_options
    if kafka is not None:
        folder, kept = kafka.location, "acknowledged messages are committed in Kafka"
    else:
        folder = "-" if config.broker.durability == "memory" else config.data.folder
        kept = DURABILITY[config.broker.durability]
    if flight is not None:
        host = f"[{flight.host}]" if ":" in flight.host else flight.host
        place = f"{'grpc+tls' if flight.is_secure else 'grpc'}://{host}:{flight.port}"
        lines.append(f"  flight  {place:<{width}}  tables, by Arrow Flight{_access(flight)}")
    lines += [
        f"  data    {folder:<{width}}  {kept}",
        f"  http    {_http(addresses, http)}",
        "Ready.",
    ]
    return "\n".join(lines)


def _protocols(address: Address) -> str:
    accepted = list(PROTOCOLS) if address.protocol is None else [address.protocol]
    names = ", ".join(protocol.label for protocol in accepted)
    return names + _access(address)


def _access(address: Address) -> str:
    if not address.accepts_anonymous:
        return "; credentials needed"
    return "" if address.is_loopback else "; open to everyone"


def _http(addresses: Sequence[Address], other: Address | None) -> str:
    places = [each for each in addresses if each.scheme in {"ws", "wss"}]
    if other is not None:
        places.append(other)
    if not places:
        return "-  off: give --http, or a ws:// listener"
    return ", ".join(_page(place) for place in places)


def _page(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if address.is_secure else 'http'}://{host}:{address.port}"
