"""The options of `penstock bench`."""

from typing import Annotated, Final

import typer

from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples
from penstock.cli.protocol_help import LABELS, PROTOCOL_CHOICE
from penstock.limits import BENCH_CLIENTS_MAX, BENCH_LATENCIES_MAX, BENCH_VALUE_BYTES_MAX

__all__ = ["BENCH_EXAMPLES", "bench"]

_DURABILITIES: Final = ("fsync", "os", "memory")
_TOPIC: Final = "channel/255"


BENCH_EXAMPLES: Final = examples(
    "penstock bench",
    "penstock bench --protocol herald --subscribers 8 --durability memory",
    "penstock bench --url tcp://127.0.0.1:7000 --protocol rheos2 --rate 10000 --json",
)


def bench(
    *,
    protocol: Annotated[
        str, typer.Option(metavar=f"{PROTOCOL_CHOICE}|all", help="The protocol of the clients.")
    ] = "all",
    size: Annotated[
        int,
        typer.Option(min=8, max=BENCH_VALUE_BYTES_MAX, metavar="BYTES", help="Value size."),
    ] = 100,
    publishers: Annotated[
        int, typer.Option(min=1, max=BENCH_CLIENTS_MAX, metavar="N", help="Each is a process.")
    ] = 1,
    subscribers: Annotated[
        int, typer.Option(min=1, max=BENCH_CLIENTS_MAX, metavar="N", help="Each is a process.")
    ] = 1,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=3600, metavar="S", help="Duration of each of the two loads."),
    ] = 3.0,
    rate: Annotated[
        int,
        typer.Option(
            min=0,
            max=200_000,
            metavar="R",
            help="Messages per second of the latency load; 0 skips it.",
        ),
    ] = 1000,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_DURABILITIES),
            help="Durability of the broker that is started.",
            show_default="fsync",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A running broker, tcp://HOST:PORT; by default one is started per protocol.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="The topic; herald: channel/0 to channel/255.")
    ] = _TOPIC,
    json: Json = False,
) -> None:
    """Measure throughput at full speed, then latency at a steady rate.

    Frames are made beforehand, so the broker is measured and not its clients. Only messages that
    arrived are counted; if messages are lost the exit code is 1. The load is real: a running broker
    stores the messages and delivers them to all subscribers of the topic.
    """
    names = list(LABELS) if protocol == "all" else [protocol]
    if protocol not in {*LABELS, "all"}:
        raise typer.BadParameter(
            f"{protocol!r} is none of {', '.join(LABELS)}, all.", param_hint="--protocol"
        )
    if durability not in {None, *_DURABILITIES} or (durability and url):
        raise typer.BadParameter(
            "is fsync, os or memory, for a broker that is started: leave it out with --url.",
            param_hint="--durability",
        )
    if rate * seconds > BENCH_LATENCIES_MAX:
        raise typer.BadParameter(
            f"with --seconds makes more than {BENCH_LATENCIES_MAX:,} messages; lower one of them.",
            param_hint="--rate",
        )
    from penstock.cli.bench.measure import Settings, measure_protocols  # noqa: PLC0415  (--help)

    measure_protocols(
        names,
        Settings(
            value_bytes=size,
            publishers=publishers,
            subscribers=subscribers,
            seconds=seconds,
            rate=rate,
            durability=durability or "fsync",
            url=url,
            topic=topic,
        ),
        json=json,
    )
