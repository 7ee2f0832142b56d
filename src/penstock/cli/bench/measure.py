"""Measure brokers in one protocol after the other, and print the results."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import typer

from penstock.cli.bench.broker import own_broker
from penstock.cli.bench.load import Figures, Load, Tick, run_load
from penstock.cli.bench.wire import HandshakeFailed, Wire, wire_of
from penstock.cli.common.client_options import terminable
from penstock.cli.common.columns import plural
from penstock.cli.common.failure import EXIT_INCOMPLETE, EXIT_INTERRUPTED, CommandFailed
from penstock.cli.common.output import json_line, quiet_pipe
from penstock.cli.common.progress import progress_bar
from penstock.client import InvalidAddress
from penstock.client.address import parse_address
from penstock.client.errors import NotAChannel

__all__ = ["Settings", "measure_protocols"]

_PERCENTS: Final = (50, 95, 99)


class Settings(NamedTuple):
    """The options of a measurement. `durability` is of a broker that is started: without `url`."""

    value_bytes: int
    publishers: int
    subscribers: int
    seconds: float
    rate: int
    durability: str
    url: str | None
    topic: str


def measure_protocols(labels: Sequence[str], settings: Settings, *, json: bool) -> None:
    """Measure protocols and print the results; end with EXIT_INCOMPLETE if messages were lost."""
    wires = [_wire(label, settings.topic) for label in labels]
    url = settings.url
    address = None if url is None else _address(url)
    shown = {
        "value_bytes": settings.value_bytes,
        "publishers": settings.publishers,
        "subscribers": settings.subscribers,
        "seconds": settings.seconds,
        "rate": settings.rate,
        "durability": "as the broker is set" if url else settings.durability,
        "broker": url or "started for this",
    }
    results: list[dict[str, Any]] = []
    code = 0
    with terminable():
        try:
            for wire in wires:
                with _broker(address, settings.durability) as place:
                    results.append(_measure(wire, place, settings))
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandFailed(
                f"no connection to {url}: {reason}",
                "start a broker with `penstock serve`, or leave out --url",
            ) from None
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line({**shown, "results": results}))
        else:
            _print(shown, results)
    if any(result["lost"] for result in results):
        code = code or EXIT_INCOMPLETE
    raise typer.Exit(code)


def _wire(label: str, topic: str) -> Wire:
    try:
        return wire_of(label)(topic)
    except NotAChannel as error:
        raise typer.BadParameter(f"{error}.", param_hint="--topic") from None


def _address(url: str) -> tuple[str, int]:

    problem = "bench connects by tcp, without credentials"
    try:
        address = parse_address(url)
    except InvalidAddress as error:
        problem = error.reason
    else:
        if address.scheme == "tcp":
            return address.host, address.port
    raise typer.BadParameter(
        f"{url}: {problem}. Give one such as tcp://127.0.0.1:7000.", param_hint="--url"
    )


@contextlib.contextmanager
def _broker(address: tuple[str, int] | None, durability: str) -> Iterator[tuple[str, int]]:
    if address is not None:
        yield address
        return

    with own_broker(durability) as place:
        yield place


def _measure(wire: Wire, address: tuple[str, int], settings: Settings) -> dict[str, Any]:
    """Return the figures of a protocol: throughput, then latency unless `rate` is 0."""
    load = Load(
        wire,
        address,
        value_bytes=settings.value_bytes,
        publishers=settings.publishers,
        subscribers=settings.subscribers,
        seconds=settings.seconds,
    )

    fast = _run(load, f"{wire.name}: throughput")
    result: dict[str, Any] = {
        "protocol": wire.name,
        "published": fast.published,
        "acknowledged": fast.acknowledged,
        "delivered": fast.delivered,
        "in_per_second": fast.published / fast.taken_seconds,
        "out_per_second": fast.delivered / fast.delivered_seconds,
        "lost": _lost(fast, settings.subscribers),
        "latency_ms": None,
    }
    if settings.rate:
        steady = _run(load._replace(rate=settings.rate), f"{wire.name}: latency")
        result["lost"] += _lost(steady, settings.subscribers)
        late = sorted(steady.late)
        if late:
            result["latency_ms"] = {
                f"p{percent}": late[min(len(late) - 1, len(late) * percent // 100)] * 1000
                for percent in _PERCENTS
            } | {"max": late[-1] * 1000}
    return result


def _run(load: Load, what: str) -> Figures:

    @contextlib.contextmanager
    def watch() -> Iterator[Tick]:

        passed = 0.0
        with progress_bar(what, int(load.seconds), unit="s") as progress:

            def tick(more: float) -> None:
                nonlocal passed
                before, passed = passed, min(passed + more, load.seconds)
                progress(int(passed) - int(before))

            yield tick

    try:
        return run_load(load, watch)
    except HandshakeFailed as error:
        host, port = load.address
        place = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        raise CommandFailed(f"the broker at {place} {error.reason}", error.remedy) from None


def _lost(figures: Figures, subscribers: int) -> int:
    """Return the number of deliveries and acknowledgments that are missing or too many."""
    lost = abs(figures.published * subscribers - figures.delivered)
    if figures.acknowledged is not None:
        lost += abs(figures.published - figures.acknowledged)
    return lost


def _print(settings: dict[str, Any], results: list[dict[str, Any]]) -> None:
    clients = (
        f"{plural(settings['publishers'], 'publisher')}, "
        f"{plural(settings['subscribers'], 'subscriber')}"
    )
    typer.echo(
        f"Values of {settings['value_bytes']:,} bytes; {clients}; {settings['seconds']:g} s each; "
        f"broker: {settings['broker']}; durability: {settings['durability']}."
    )
    if settings["rate"]:
        typer.echo(f"Latency in ms at {settings['rate']:,} messages a second.")
    columns = ("in/s", "out/s", "p50", "p95", "p99", "max", "lost")
    typer.echo(f"{'':<9}" + "".join(f"{column:>12}" for column in columns))
    for result in results:
        speeds = (f"{result['in_per_second']:,.0f}", f"{result['out_per_second']:,.0f}")
        latency = result["latency_ms"]
        names = (*(f"p{percent}" for percent in _PERCENTS), "max")
        times = [f"{latency[name]:.2f}" if latency else "-" for name in names]
        cells = (*speeds, *times, f"{result['lost']:,}")
        typer.echo(f"{result['protocol']:<9}" + "".join(f"{cell:>12}" for cell in cells))
