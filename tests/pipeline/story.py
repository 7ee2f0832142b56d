"""The whole way: messages of five protocols through a broker into tables, counted at both ends.

    python -m tests.pipeline.story [--messages 2000000] [--flight] [--folder DIR]

A real `penstock serve` takes JSON from clients of all five protocols, which speak by themselves, not
by our client library. Then `penstock pipeline run --once` makes bronze, silver and gold of its log.
Senders sum up what they send, DuckDB what is in the tables; it ends with 1 if any sum differs.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import duckdb

from tests.crash.loads import (
    FleximqPublisher,
    HeraldPublisher,
    LamamqPublisher,
    Publisher,
    Rheos1Publisher,
    Rheos2Publisher,
)
from tests.support.served import Served, until

MESSAGES = 2_000_000
PROTOCOLS = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
TOPICS = 5
CHUNK = 1_000
WINDOW = 10_000
BAD_EVERY = 997
"""One message of so many is no JSON: a dead letter."""
SETTLED_SECONDS_MAX = 120.0

CONFIG = """
[source]
{source}

[[silver]]
name = "orders"
topics = ["story/#", "channel/#"]
field = [
  {{ name = "id", type = "long", required = true }},
  {{ name = "amount", type = "long", required = true, path = "order.amount" }},
  {{ name = "note", type = "string" }},
]

[gold]
traffic_window_seconds = 10
"""


@dataclasses.dataclass(frozen=True)
class Sum:
    """What there is of a topic: all messages and their bytes, and of the good ones the fields."""

    messages: int = 0
    size: int = 0
    good: int = 0
    ids: int = 0
    amounts: int = 0


Sums = dict[tuple[str, str], Sum]
"""By protocol and topic."""


# --- Sending


def publisher_of(protocol: str, topic: int) -> Publisher:
    name = f"{protocol}-{topic}"
    if protocol == "herald":
        return HeraldPublisher(name, channel=10 + topic)
    kinds: dict[str, Callable[..., Publisher]] = {
        "rheos1": Rheos1Publisher,
        "rheos2": Rheos2Publisher,
        "fleximq": FleximqPublisher,
        "lamamq": LamamqPublisher,
    }
    return kinds[protocol](name, topic=f"story/{protocol}/{topic}")


def value_of(number: int) -> bytes:
    if number % BAD_EVERY == 0:
        return b"order %d was lost" % number
    return b'{"id":%d,"order":{"amount":%d},"note":"%d left"}' % (
        number,
        number * 7919 % 1000,
        number % 13,
    )


def send(protocol: str, address: tuple[str, int], count: int) -> Sums:
    """Send a protocol's messages, to each of its topics in turn; return what was sent."""
    sent: Sums = {}
    for topic in range(TOPICS):
        publisher = publisher_of(protocol, topic)
        publisher.connect(address)
        numbers = range(topic, count, TOPICS)
        total = Sum()
        for start in range(0, len(numbers), CHUNK):
            total = _send_some(publisher, numbers[start : start + CHUNK], total)
        publisher.settle()
        if publisher.failed or publisher.errors:
            raise SystemExit(f"{protocol}: the broker refused messages")
        publisher.disconnect()
        sent[protocol, str(publisher.topic)] = total
    return sent


def _send_some(publisher: Publisher, numbers: range, total: Sum) -> Sum:
    values = [value_of(number) for number in numbers]
    good = [number for number in numbers if number % BAD_EVERY]
    data = b"".join(
        publisher.frame(number, str(publisher.topic), value)
        for number, value in zip(numbers, values, strict=True)
    )
    if publisher.acknowledged_protocol:
        publisher.waiting += numbers
        publisher.write(data)
        publisher.read_until(lambda: len(publisher.waiting) <= WINDOW)
    else:
        publisher.write(data)
        publisher.settle()
    return Sum(
        total.messages + len(values),
        total.size + sum(map(len, values)),
        total.good + len(good),
        total.ids + sum(good),
        total.amounts + sum(number * 7919 % 1000 for number in good),
    )


def send_all(address: tuple[str, int], messages: int) -> Sums:
    """Send by all protocols at the same time, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    count = messages // len(PROTOCOLS)
    sent: Sums = {}
    with concurrent.futures.ProcessPoolExecutor(len(PROTOCOLS), context) as pool:
        jobs = [pool.submit(send, protocol, address, count) for protocol in PROTOCOLS]
        for job in jobs:
            sent |= job.result()
    return sent


# --- What is there


def found(warehouse: Path) -> Iterator[tuple[str, Sums]]:
    """Yield what tables hold, by topic and protocol, asked with DuckDB."""
    whole = "count(*), sum(octet_length(value)), 0, 0, 0"
    good = "0, 0, count(distinct message_id), sum(id), sum(amount)"
    for table, columns in (
        ("bronze", whole),
        ("silver/orders", good),
        ("gold/traffic", "sum(messages), sum(bytes), 0, 0, 0"),
        ("dead_letters", "count(*), 0, 0, 0, 0"),
    ):
        dataset = deltalake.DeltaTable(str(warehouse / table)).to_pyarrow_dataset()
        with duckdb.connect() as connection:
            connection.register("t", dataset)
            select = f"select protocol, topic, {columns} from t group by all"  # noqa: S608
            rows = connection.execute(select).fetchall()
        yield table, {(row[0], row[1]): Sum(*map(int, row[2:])) for row in rows}


def expected(sent: Sums) -> dict[str, Sums]:
    """What tables must hold."""
    return {
        "bronze": {key: Sum(each.messages, each.size) for key, each in sent.items()},
        "silver/orders": {
            key: Sum(0, 0, each.good, each.ids, each.amounts) for key, each in sent.items()
        },
        "gold/traffic": {key: Sum(each.messages, each.size) for key, each in sent.items()},
        "dead_letters": {key: Sum(each.messages - each.good) for key, each in sent.items()},
    }


def differences(warehouse: Path, sent: Sums) -> list[str]:
    """Compare; return what is not as it was sent."""
    wanted = expected(sent)
    problems = []
    for table, sums in found(warehouse):
        for key in sorted(sums.keys() | wanted[table].keys()):
            there, sought = sums.get(key, Sum()), wanted[table].get(key, Sum())
            if there != sought:
                problems.append(f"{table} {'/'.join(key)}: {there}, sent were {sought}")
    dataset = deltalake.DeltaTable(str(warehouse / "gold/sessions")).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        row = connection.execute("select sum(messages), sum(bytes) from t").fetchone()
    all_sent = (
        sum(each.messages for each in sent.values()),
        sum(each.size for each in sent.values()),
    )
    if row is None or tuple(map(int, row)) != all_sent:
        problems.append(f"gold/sessions: {row}, sent were {all_sent}")
    return problems


def committed(table: Path) -> float:
    """When a table was last changed."""
    return max(path.stat().st_mtime for path in (table / "_delta_log").glob("*.json"))


# --- The story


def run_pipeline(config: Path) -> None:
    """Run the command, as an operator does."""
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "run", "--once"]
    subprocess.run([*command, "--config", str(config)], check=True)  # noqa: S603


def tell(
    folder: Path,
    *,
    messages: int,
    flight: bool = False,
    run: Callable[[Path], None] = run_pipeline,
) -> tuple[dict[str, float], list[str]]:
    """Tell the story; return the seconds of its parts, and what is not as it was sent."""
    seconds: dict[str, float] = {}
    config = folder / "pipeline.toml"
    warehouse = folder / "warehouse"
    with Served(folder) as served:
        started = time.time()
        sent = send_all(served.address, messages)
        total = sum(each.messages for each in sent.values())
        seconds["send"] = time.time() - started
        source = f'endpoint = "{served.endpoint}"' if flight else f'path = "{served.data}"'
        config.write_text(CONFIG.format(source=source))
        until(lambda: kept(served) >= total, "all on disk", seconds_max=SETTLED_SECONDS_MAX)
        last = time.time()
        run(config)
        for name in ("bronze", "silver/orders", "gold/traffic", "gold/sessions"):
            done = committed(warehouse / name)
            seconds[name] = done - last
            last = done
    started = time.time()
    problems = differences(warehouse, sent)
    seconds["check"] = time.time() - started
    return seconds, problems


def kept(served: Served) -> int:
    """How many messages the broker shows."""
    from penstock.flight.client import FlightClient  # noqa: PLC0415

    with FlightClient(served.endpoint) as client:
        return client.bounds()[0].end


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--flight", action="store_true", help="read over Flight, not from files")
    parser.add_argument(
        "--folder", type=Path, help="where to keep log and tables; default: nowhere"
    )
    arguments = parser.parse_args()
    os.environ.pop("PENSTOCK_TOKEN", None)
    with tempfile.TemporaryDirectory(prefix="penstock-story-") as temporary:
        folder = arguments.folder or Path(temporary)
        seconds, problems = tell(folder, messages=arguments.messages, flight=arguments.flight)
    print(json.dumps({"messages": arguments.messages, "flight": arguments.flight}))  # noqa: T201
    for name, each in seconds.items():
        print(f"{name:<14} {each:8.1f} s {arguments.messages / each / 1e6:8.2f} million a second")  # noqa: T201
    for problem in problems:
        print(f"differs: {problem}", file=sys.stderr)  # noqa: T201
    if not problems:
        print("every message is in every table once")  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
