"""`penstock bench`: how fast a broker is, in any protocol."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import (
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    PROTOCOLS,
    CommandFailed,
    Json,
    examples,
    json_line,
    terminable,
)
from penstock.cli.columns import plural
from penstock.cli.log_options import quiet_pipe
from penstock.limits import BENCH_CLIENTS_MAX, BENCH_LATENCIES_MAX, BENCH_VALUE_BYTES_MAX

if TYPE_CHECKING:
    from penstock.cli.bench_load import Figures, Load, Tick
    from penstock.cli.bench_wires import Wire

__all__ = ["BENCH_EXAMPLES", "bench"]

_DURABILITIES: Final = ("fsync", "os", "memory")
_PERCENTS: Final = (50, 95, 99)
_TOPIC: Final = "channel/255"


BENCH_EXAMPLES: Final = examples(
    "penstock bench",
    "penstock bench --protocol herald --subscribers 8 --durability memory",
    "penstock bench --url tcp://127.0.0.1:7000 --protocol rheos2 --rate 10000 --json",
)


def bench(
    *,
    protocol: Annotated[
        str, typer.Option(metavar=f"{'|'.join(PROTOCOLS)}|all", help="What clients speak.")
    ] = "all",
    size: Annotated[
        int, typer.Option(min=8, max=BENCH_VALUE_BYTES_MAX, metavar="BYTES", help="Of a value.")
    ] = 100,
    publishers: Annotated[
        int, typer.Option(min=1, max=BENCH_CLIENTS_MAX, metavar="N", help="Each is a process.")
    ] = 1,
    subscribers: Annotated[
        int, typer.Option(min=1, max=BENCH_CLIENTS_MAX, metavar="N", help="Each is a process.")
    ] = 1,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=3600, metavar="S", help="How long each of the two loads lasts."),
    ] = 3.0,
    rate: Annotated[
        int,
        typer.Option(
            min=0,
            max=200_000,
            metavar="R",
            help="Messages a second while latency is measured; 0 does not measure it.",
        ),
    ] = 1000,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_DURABILITIES),
            help="Of the broker that is started.",
            show_default="fsync",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A running broker, tcp://HOST:PORT; without it one is started for each protocol.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Where to; herald: channel/0 to channel/255.")
    ] = _TOPIC,
    json: Json = False,
) -> None:
    """Measure throughput at full speed, then latency at a steady rate.

    Frames are made beforehand, so that it is the broker that is measured. Only what arrived is
    counted; if messages are lost it says so and ends with 1. The load is real: a running broker
    keeps its messages, and delivers them to whoever subscribes to the topic.
    """
    names = list(PROTOCOLS) if protocol == "all" else [protocol]
    if protocol not in {*PROTOCOLS, "all"}:
        raise typer.BadParameter(
            f"{protocol!r} is none of {', '.join(PROTOCOLS)}, all.", param_hint="--protocol"
        )
    if durability not in {None, *_DURABILITIES} or (durability and url):
        raise typer.BadParameter(
            "is fsync, os or memory, and for a broker that is started: leave it out with --url.",
            param_hint="--durability",
        )
    if rate * seconds > BENCH_LATENCIES_MAX:
        raise typer.BadParameter(
            f"with --seconds makes more than {BENCH_LATENCIES_MAX:,} messages; lower one of them.",
            param_hint="--rate",
        )
    wires = [_wire(name, topic) for name in names]
    address = None if url is None else _address(url)
    settings = {
        "value_bytes": size, "publishers": publishers, "subscribers": subscribers,
        "seconds": seconds, "rate": rate,
        "durability": "as the broker is set" if url else durability or "fsync",
        "broker": url or "started for this",
    }  # fmt: skip
    results: list[dict[str, Any]] = []
    code = 0
    with terminable():
        try:
            for wire in wires:
                with _broker(address, durability or "fsync") as place:
                    loads = {"address": place, "publishers": publishers}
                    loads |= {"subscribers": subscribers, "seconds": seconds, "value_bytes": size}
                    results.append(_measure(wire, loads, rate))
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
            sys.stdout.buffer.write(json_line({**settings, "results": results}))
        else:
            _print(settings, results)
    if any(result["lost"] for result in results):
        code = code or EXIT_INCOMPLETE
    raise typer.Exit(code)


def _wire(name: str, topic: str) -> "Wire":
    from penstock.cli.bench_wires import WIRE_KINDS  # noqa: PLC0415  (so that --help starts fast)
    from penstock.client.errors import NotAChannel  # noqa: PLC0415
    from penstock.client.topics import channel_of  # noqa: PLC0415

    if name == "herald":
        try:
            channel_of(topic)
        except NotAChannel as error:
            raise typer.BadParameter(f"{error}.", param_hint="--topic") from None
    return WIRE_KINDS[name](topic)


def _address(url: str) -> tuple[str, int]:
    from penstock.client import InvalidAddress  # noqa: PLC0415
    from penstock.client.address import parse_address  # noqa: PLC0415

    problem = "a load goes by tcp, without credentials"
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
    from penstock.cli.bench_broker import own_broker  # noqa: PLC0415

    with own_broker(durability) as place:
        yield place


def _measure(wire: "Wire", loads: dict[str, Any], rate: int) -> dict[str, Any]:
    """Return the figures of a protocol: throughput, then latency unless `rate` is 0."""
    from penstock.cli.bench_load import Load  # noqa: PLC0415

    fast = _run(Load(wire, **loads), f"{wire.name}: throughput")
    result: dict[str, Any] = {
        "protocol": wire.name,
        "published": fast.published,
        "acknowledged": fast.acknowledged,
        "delivered": fast.delivered,
        "in_per_second": fast.published / fast.taken_seconds,
        "out_per_second": fast.delivered / fast.delivered_seconds,
        "lost": _lost(fast, loads["subscribers"]),
        "latency_ms": None,
    }
    if rate:
        steady = _run(Load(wire, **loads, rate=rate), f"{wire.name}: latency")
        result["lost"] += _lost(steady, loads["subscribers"])
        late = sorted(steady.late)
        if late:
            result["latency_ms"] = {
                f"p{percent}": late[min(len(late) - 1, len(late) * percent // 100)] * 1000
                for percent in _PERCENTS
            } | {"max": late[-1] * 1000}
    return result


def _run(load: "Load", what: str) -> "Figures":
    from penstock.cli.bench_load import run_load  # noqa: PLC0415
    from penstock.cli.bench_wires import HandshakeFailed  # noqa: PLC0415

    @contextlib.contextmanager
    def watch() -> "Iterator[Tick]":
        from penstock.cli.log_progress import progress_bar  # noqa: PLC0415

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


def _lost(figures: "Figures", subscribers: int) -> int:
    """Return how many deliveries and acknowledgments are missing, or too many."""
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
