"""What a broker says when it is ready: one line for each thing an operator wants to find."""

from collections.abc import Sequence

from penstock.model import Protocol
from penstock.server.config import Config
from penstock.transport.addresses import Address, parse_address

__all__ = ["banner"]

DURABILITY = {
    "fsync": "acknowledged messages are on the disk",
    "os": "acknowledged messages are with the operating system",
    "memory": "messages are kept in memory and end with the process",
}


def banner(
    config: Config, addresses: Sequence[Address], *, version: str, flight: Address | None = None
) -> str:
    """Return the text for a broker that listens at `addresses`, ports being those it got.

    `flight` is where it serves tables.
    """
    places = [address.location for address in addresses]
    width = max(map(len, places), default=0)
    lines = [f"Penstock {version}"]
    for place, address in zip(places, addresses, strict=True):
        lines.append(f"  listen  {place:<{width}}  {_who(address)}")
    lines += [f"  program {' '.join(program.command)}" for program in config.program]
    folder = "-" if config.broker.durability == "memory" else config.data.folder
    if flight is not None:
        host = f"[{flight.host}]" if ":" in flight.host else flight.host
        place = f"{'grpc+tls' if flight.is_secure else 'grpc'}://{host}:{flight.port}"
        lines.append(f"  flight  {place:<{width}}  tables, by Arrow Flight{_strangers(flight)}")
    lines += [
        f"  data    {folder:<{width}}  {DURABILITY[config.broker.durability]}",
        f"  http    {_http(config, addresses)}",
        "Ready.",
    ]
    return "\n".join(lines)


def _who(address: Address) -> str:
    spoken = list(Protocol) if address.protocol is None else [address.protocol]
    names = ", ".join(protocol.label for protocol in spoken)
    return names + _strangers(address)


def _strangers(address: Address) -> str:
    anonymous = address.is_loopback if address.anonymous is None else address.anonymous
    if not anonymous:
        return "; credentials needed"
    return "" if address.is_loopback else "; open to everyone"


def _http(config: Config, addresses: Sequence[Address]) -> str:
    beside = parse_address(f"tcp://{config.http.address}")
    served = any(
        address.scheme == "ws" and (address.host, address.port) == (beside.host, beside.port)
        for address in addresses
    )
    text = f"http://{config.http.address}"
    return text if served else f"{text} (nothing answers there in this version)"
