"""Write the figures of bench/results into the blocks of README.md and docs/.

    python -m bench.figures           rewrite every block (also `make figures`)
    python -m bench.figures --print   print all tables

A block is between two comments. If a line break follows the first one, the block is a table
with date, commit and results file below it; otherwise it is a number inside a sentence:

    <!-- intake:begin -->             An idle client takes <!-- idle-client:begin -->4.1
    | table |                         KiB<!-- idle-client:end -->.
    <!-- intake:end -->
"""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.chart import draw
from bench.results import FOLDER, load

__all__ = ["BLOCK", "CHART", "TABLES", "chart", "figures", "pages", "with_figures"]

ROOT = Path(__file__).parents[1]
CHART: Final = ROOT / "docs" / "images" / "brokers.svg"
BLOCK: Final = re.compile(
    r"<!-- (?P<name>[a-z0-9-]+):begin -->(?P<line>\n?)(?P<text>.*?)<!-- (?P=name):end -->",
    re.DOTALL,
)
Rows = list[dict[str, Any]]


def pages() -> list[Path]:
    """Return README.md and every page below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(header)
    lines = [names, ["---"] * len(names), *rows]
    cells = ([f" {cell} " if cell else " " for cell in line] for line in lines)
    return "\n".join(f"|{'|'.join(line)}|" for line in cells)


def peer(row: dict[str, Any]) -> str:
    """Return the protocol of a row, or the broker it is compared with and its stored version."""
    names = {
        "nats": f"nats-server {row.get('nats_version', '')}".rstrip(),
        "jetstream": f"JetStream {row.get('nats_version', '')}".rstrip(),
        "write, fdatasync": "a bare loop",
        "read, write, fdatasync, answer": "a bare server",
    }
    return names.get(row["protocol"], row["protocol"])


def million(rate: float, digits: int = 2) -> str:
    return f"{rate / 1e6:.{digits}f}"


def codecs(results: Rows) -> str:
    return table(
        [
            "million frames/s",
            "scan",
            "encode",
            "both",
            "plain codec",
            "both / plain codec",
            "cost of both in bare copies",
        ],
        (
            [
                row["protocol"],
                *(million(row[way], 0) for way in ("scan", "encode", "both")),
                million(row["plain"]),
                f"{row['times_plain']:.0f}",
                f"{row['copies']:.1f}",
            ]
            for row in results
            if row["value_bytes"] == 100
        ),
    )


def pubsub(results: Rows) -> str:
    rows = {(row["protocol"], row["subscribers"]): row for row in results}
    names = dict.fromkeys(row["protocol"] for row in results)
    return table(
        [
            "million messages/s",
            "1 subscriber",
            "times nats-server",
            "8 subscribers, delivered to all",
            "times nats-server",
        ],
        (
            [
                peer(rows[name, 1]),
                million(rows[name, 1]["delivered"]),
                f"{rows[name, 1]['times_nats']:.1f}",
                million(rows[name, 8]["delivered"]),
                f"{rows[name, 8]['times_nats']:.1f}",
            ]
            for name in names
        ),
    )


def sizes(results: Rows) -> str:
    rows = {(row["protocol"], row["value_bytes"]): row for row in results}
    names = [name for name in dict.fromkeys(row["protocol"] for row in results) if name != "relay"]
    lengths = list(dict.fromkeys(row["value_bytes"] for row in results))
    relayed = "whole frames" if "frame_bytes" in results[0] else "values alone"
    return table(
        [
            f"times nats-server (times a bare relay of {relayed})",
            *(f"{length:,} bytes" for length in lengths),
        ],
        (
            [
                peer(rows[name, lengths[0]]),
                *(
                    f"{row['times_nats']:.1f} ({row['times_relay']:.2f})"
                    for row in (rows[name, length] for length in lengths)
                ),
            ]
            for name in names
        ),
    )


def brokers(results: Rows) -> str:
    first, *rows = results
    versions = first["versions"]
    lines = []
    for (durability, size, subscribers), cell in _cells(rows).items():
        own = [row["times_peer"] for row in cell if row["system"] not in PEERS]
        found = {row["system"]: row for row in cell if row["system"] in PEERS}
        reference = found["nats" if "nats" in found else "jetstream"]
        lines.append(
            [
                f"`{durability}`",
                f"{size:,}",
                str(subscribers),
                f"{reference['published'] / 1e6:.3f}",
                f"{min(own):.1f} to {max(own):.1f}",
                *(f"{found[n]['times_peer']:.2f}" if n in found else "" for n in PEERS[2:]),
            ]
        )
    return table(
        [
            "durability",
            "bytes",
            "subscribers",
            f"nats-server {versions['nats']} or its JetStream, million/s",
            "Penstock, times that",
            f"Redis {versions['redis']}",
            f"Mosquitto {versions['mosquitto']}",
        ],
        lines,
    )


def broker_latency(results: Rows) -> str:
    lines = []
    for (durability, size, subscribers), cell in _cells(results[1:]).items():
        reference = "nats" if durability == "memory" else "jetstream"
        found = {row["system"]: row["latency"] for row in cell if "latency" in row}
        for percent, load_row in found["rheos2"].items():
            lines.append(
                [
                    f"`{durability}`",
                    f"{size:,}",
                    str(subscribers),
                    f"{percent} %: {load_row['per_second']:,.0f}/s",
                    *(
                        _percentiles(found[name][percent]) if name in found else ""
                        for name in ("rheos2", reference, "redis", "mosquitto")
                    ),
                ]
            )
    return table(
        [
            "durability",
            "bytes",
            "subscribers",
            f"load, of the throughput of {results[0].get('load_of', 'the slowest broker')}",
            "Penstock (rheos2), µs: p50 / p99 / p99.9",
            "nats-server or JetStream",
            "Redis",
            "Mosquitto",
        ],
        lines,
    )


PEERS: Final = ("nats", "jetstream", "redis", "mosquitto")


def _percentiles(row: dict[str, Any]) -> str:
    """Return the percentiles of a latency, or that the load is more than the broker can take."""
    if "p50_us" not in row:
        return "cannot"
    tail = f"{row['p999_us']:.0f}" if {"messages", "p999_us"} <= row.keys() else "–"  # noqa: RUF001
    return f"{row['p50_us']:.0f} / {row['p99_us']:.0f} / {tail}"


def _cells(rows: Rows) -> dict[tuple[str, int, int], Rows]:
    """Return the rows of each durability, size and number of subscribers."""
    found: dict[tuple[str, int, int], Rows] = {}
    for row in rows:
        key = row["durability"], row["value_bytes"], row["subscribers"]
        found.setdefault(key, []).append(row)
    return found


def chart() -> str:
    """Return the content of the file CHART."""
    return draw(load("brokers")["results"][1:])


def latency(results: Rows) -> str:
    rates = list(dict.fromkeys(row["per_second"] for row in results))
    found = {(row["protocol"], row["per_second"]): row for row in results}
    names = list(dict.fromkeys(row["protocol"] for row in results))
    return table(
        ["µs: p50 / p99", *(f"{rate:,}/s" for rate in rates)],
        (
            [
                peer(found[name, rates[0]]),
                *(_middle_and_tail(found[name, rate]) for rate in rates),
            ]
            for name in names
        ),
    )


def _middle_and_tail(row: dict[str, Any]) -> str:
    return f"{row['p50_us']:.0f} / {row['p99_us']:.0f}"


def groups(results: Rows) -> str:
    rows = {(row["system"], row["kind"], row["members"]): row for row in results}
    versions = {
        "nats": f"NATS queue group {results[0]['nats_version']}",
        "jetstream": "JetStream pull consumer",
        "redis": f"Redis stream {results[0]['redis_version']}",
    }

    def cell(name: str, kind: str, members: int) -> str:
        row = rows.get((name, kind, members))
        if row is None:
            return ""
        part = f" ({row['of_plain']:.0%})" if members and (name, kind, 0) in rows else ""
        return million(row["delivered"]) + part

    cells = [(kind, members) for kind in ("memory", "fsync") for members in (0, 1, 8)]
    return table(
        [
            "million messages/s (of a plain subscription)",
            *(
                f"`{kind}`, " + (f"group of {members}" if members else "plain")
                for kind, members in cells
            ),
        ],
        (
            [versions.get(name, name), *(cell(name, *each) for each in cells)]
            for name in dict.fromkeys(row["system"] for row in results)
        ),
    )


def many(results: Rows) -> str:
    return table(
        [
            "",
            "million messages/s",
            "times nats-server",
            "times slower than with one",
            "than topics of one pattern",
            "broker's processor time of a message, µs",
        ],
        (
            [
                f"{row['number']:,} {row['kind']}, {peer(row)}",
                f"{row['published'] / 1e6:.3f}",
                f"{row['times_nats']:.2f}",
                f"{row['times_slower']:.2f}",
                f"{row['times_one_pattern']:.2f}" if "times_one_pattern" in row else "",
                f"{row['broker_us']:.2f}" if "broker_us" in row else "",
            ]
            for row in results
        ),
    )


def percentiles(row: dict[str, Any]) -> list[str]:
    return [f"{row[name]:.0f}" for name in ("p50_us", "p90_us", "p99_us")]


def crowd(results: Rows) -> str:
    rows = {row["measure"]: row for row in results}
    idle, restless = rows["idle"], rows["restless"]
    return table(
        ["clients", "broker memory"],
        [
            [
                f"{idle['clients']:,} idle subscribers",
                f"{idle['kib_each']:.1f} KiB for each",
            ],
            [
                f"{restless['clients']:,} that come and go, {restless['visits']:,} visits in all",
                f"{restless['growth_kib']} KiB more at the end than at half time",
            ],
        ],
    )


def console(results: Rows) -> str:
    return table(
        ["page that is open", "broker without a console", "more with it", "of a core"],
        (
            [
                row["name"],
                f"{row['without_us']:.2f} µs a message",
                f"{row['more_us']:.3f} µs",
                f"{row['percent']:.1f} %",
            ]
            for row in results
            if row["measure"] == "cost"
        ),
    )


def console_throughput(results: Rows) -> str:
    return table(
        ["page that is open", "million messages/s without a console", "with it", "less"],
        (
            [
                row["name"],
                million(row["without"]),
                million(row["with"]),
                f"{row['lost_percent']:.1f} %",
            ]
            for row in results
            if row["measure"] == "throughput"
        ),
    )


def first_chart(results: Rows) -> str:
    return table(
        ["from `make demo` to", "seconds", "processes that ran or waited for a core"],
        ([row["to"], f"{row['seconds']:.1f}", f"{row['load']:.0f}"] for row in results),
    )


def console_pages(results: Rows) -> str:
    return table(
        ["page", "longest answer"],
        ([row["name"], f"{row['seconds']:.2f} s"] for row in results if row["measure"] == "page"),
    )


def intake(results: Rows) -> str:
    return table(
        ["", "million acknowledged/s", "times JetStream", "bytes on disk for each"],
        (
            [
                peer(row),
                million(row["acknowledged"]),
                f"{row['times_jetstream']:.1f}",
                f"{row['stored_bytes_each']:.0f}",
            ]
            for row in results
        ),
    )


def logged(results: Rows) -> str:
    rows = {(row["protocol"], row["durability"]): row for row in results}
    beside = rows["nats", "none"]
    lines = [
        [
            name,
            *(million(rows[name, each]["published"]) for each in ("fsync", "os", "memory")),
            *(f"{rows[name, each]['times_nats']:.1f}" for each in ("fsync", "os", "memory")),
        ]
        for name in dict.fromkeys(name for name, _ in rows if name != "nats")
    ]
    return table(
        [
            "million messages/s",
            "`fsync`",
            "`os`",
            "`memory`",
            "times nats-server: `fsync`",
            "`os`",
            "`memory`",
        ],
        [*lines, [peer(beside), "", "", million(beside["published"]), "", "", "1.0"]],
    )


def replay(results: Rows) -> str:
    return table(
        ["million messages/s", "live", "replayed", "times live"],
        (
            [
                row["protocol"],
                million(row["live"]),
                million(row["replayed"]),
                f"{row['times_live']:.1f}",
            ]
            for row in results
        ),
    )


def append(results: Rows) -> str:
    lines = []
    for row in results:
        if row["measure"] == "size":
            log = f"a log of {row['gigabytes']:.1f} GB"
        elif row["measure"] == "topics":
            noun = "topic" if row["topics"] == 1 else "topics"
            log = f"{row['topics']:,} {noun} {row['use']}"
        else:
            continue
        lines.append([log, *(f"{row[f'{part}_ns']:.0f}" for part in ("taking", "own", "system"))])
    return table(["ns for each message", "event loop", "whole process", "system"], lines)


def reading(results: Rows) -> str:
    ways = {
        "groups": "groups, as replay reads them",
        "loaded": "groups, loaded into a batch",
        "records": "Arrow record batches",
        "topic": "record batches of the only topic",
        "one of ten": "record batches of one topic of ten",
    }
    return table(
        ["", "million messages/s", "GB/s", "processor time of a message, ns"],
        (
            [
                ways[row["way"]],
                million(row["messages_a_second"], 1),
                f"{row['bytes_a_second'] / 1e9:.2f}",
                f"{row['processor_ns']:.0f}",
            ]
            for row in results
            if row["measure"] == "read"
        ),
    )


def topics(results: Rows) -> str:
    return table(
        ["topics in turn", "million acknowledged/s", "topics created/s"],
        (
            [f"{row['topics']:,}", million(row["acknowledged"]), f"{row['topics_made']:,.0f}"]
            for row in results
        ),
    )


def log_latency(results: Rows) -> str:
    return table(
        ["µs", "until", "durability", "p50", "p90", "p99"],
        (
            [peer(row), row["measure"], f"`{row['durability']}`", *percentiles(row)]
            for row in results
        ),
    )


def opening(results: Rows) -> str:
    ends = {"clean": "closed cleanly", "killed": "after kill -9"}
    return table(
        ["log", "log open after", "read", "broker ready after", "broker without a log"],
        (
            [
                f"{row['gibibytes']:.1f} GiB, {ends[row['end']]}",
                f"{row['open_seconds']:.2f} s",
                f"{row['bytes_read'] / 1e6:.1f} MB",
                f"{row['ready_seconds']:.2f} s",
                f"{row['empty_ready_seconds']:.2f} s",
            ]
            for row in results
        ),
    )


def last_values(results: Rows) -> str:
    return table(
        [
            "topics",
            "broker ready after",
            "memory for each topic",
            "after `@last`",
            "first and last message",
            "asked again",
        ],
        (
            [
                f"{row['topics']:,}",
                f"{row['ready_seconds']:.1f} s",
                f"{row['ready_bytes_each']:.0f} bytes",
                f"{row['asked_bytes_each']:.0f} bytes",
                f"{row['first_seconds']:.1f} s, {row['all_seconds']:.1f} s",
                f"{row['again_first_seconds']:.1f} s, {row['again_all_seconds']:.1f} s",
            ]
            for row in results
        ),
    )


def rare_topic(results: Rows) -> str:
    return table(
        ["messages of the topic", "log", "read", "of the log"],
        (
            [
                f"{row['messages']:,}, "
                + ("evenly spread" if row["burst"] == 1 else f"{row['burst']:,} at a time"),
                f"{row['gibibytes']:.1f} GiB",
                f"{row['bytes_read'] / 1e6:,.1f} MB",
                f"{row['share']:.1%}",
            ]
            for row in results
        ),
    )


def kafka_intake(results: Rows) -> str:
    senders = {
        "client, a callback each": "`confluent-kafka`, a callback for each",
        "client, no callbacks": "`confluent-kafka`, no callbacks",
    }
    return table(
        ["", "million acknowledged/s", "times `confluent-kafka`"],
        (
            [
                senders.get(row["sender"], row["sender"]),
                million(row["acknowledged"]),
                f"{row['times_client']:.1f}",
            ]
            for row in results
        ),
    )


def node_latency(results: Rows) -> str:
    return table(
        ["ms", "p50", "p90", "p99"],
        (
            [row["protocol"], *(f"{row[f'{name}_us'] / 1e3:.1f}" for name in ("p50", "p90", "p99"))]
            for row in results
        ),
    )


def node_costs(results: Rows) -> str:
    works = {
        "append": "own messages: scan, append, encode, commit",
        "follow": "messages of other nodes: fetch, check, load, route",
        "deliver": "the same, and encode and send to one local subscriber",
        "kafka": "Kafka: a commit, and its fetch by one node",
    }
    return table(
        ["processor time, µs", "each message", "each group"],
        (
            [works[row["work"]], f"{row['message_us']:.2f}", f"{row['group_us']:.0f}"]
            for row in results
            if row["measure"] == "cost"
        ),
    )


def namespace_costs(results: Rows) -> str:
    ways = {
        "read": "without namespaces: the group is read",
        "passed": "with namespaces: a reference is passed over",
    }
    by_way = {(row["way"], row["burst"]): row for row in results}
    bursts = sorted({row["burst"] for row in results})
    return table(
        [
            "processor time, µs",
            *(f"each group, in bursts of {burst:,} messages" for burst in bursts),
        ],
        (
            [text, *(f"{by_way[way, burst]['target_us']:.0f}" for burst in bursts)]
            for way, text in ways.items()
        ),
    )


def scaling(results: Rows) -> str:
    """Return what nodes carry by the costs that were measured, if each has one core."""
    costs = {row["work"]: row for row in results if row["measure"] == "cost"}
    (commit_ms,) = (row["milliseconds"] for row in results if row["measure"] == "commit")
    intervals = {
        f"commits as fast as Kafka answers ({commit_ms:.0f} ms)": commit_ms / 1e3,
        "a commit every 100 ms": 0.1,
        "a commit every second": 1.0,
    }
    return table(
        ["nodes, messages/s of all", *intervals],
        (
            [
                f"{nodes:,}",
                *(
                    rounded(nodes * messages_each(costs, nodes, seconds))
                    for seconds in intervals.values()
                ),
            ]
            for nodes in (10, 100, 1_000)
        ),
    )


def messages_each(costs: dict[str, dict[str, float]], nodes: int, interval: float) -> float:
    """Return the messages a second that each of many nodes can take with one core.

    It commits once in an interval, or less often: not more groups than messages.
    """
    own, others = costs["append"], costs["follow"]
    message = (own["message_us"] + (nodes - 1) * others["message_us"]) / 1e6
    group = (own["group_us"] + (nodes - 1) * others["group_us"]) / 1e6
    return max((1 - group / interval) / message, 1 / (message + group))


def rounded(number: float) -> str:
    """Return a number with two digits that count."""
    digits = 1 - math.floor(math.log10(number))
    return f"{round(number, digits):,.0f}"


def spark_scan(results: Rows) -> str:
    ways = {
        "rows": "all columns of all rows, dropped",
        "to Parquet": "all columns to Parquet files",
        "by topic": "counted by topic",
        "one topic": "all columns of one topic in a thousand, dropped",
        "over Flight": "all columns over Flight, dropped",
    }
    calls = {"scan": "`scan`", "source": "`spark.read`", "on Kafka": "`scan` of a log on Kafka"}
    others = {"Parquet": "Parquet files", "Kafka": "Kafka", "segments": "the segments"}
    return table(
        ["million rows/s", "by", "rate", "compared with", "rate", "times"],
        (
            [
                ways[row["way"]],
                calls[row["how"]],
                million(row["ours"]),
                others[row["beside"]],
                million(row["other"]),
                f"{row['times']:.2f}",
            ]
            for row in results
            if row["how"] in calls
        ),
    )


def spark_spike(results: Rows) -> str:
    rates = {(row["way"], row["how"]): row for row in results if row["beside"] == "Parquet"}
    return table(
        ["million rows/s", "a reader in the JVM", "`scan`", "Parquet files"],
        (
            [way, million(row["ours"]), million(rates[way, "scan"]["ours"]), million(row["other"])]
            for (way, how), row in rates.items()
            if how == "spike"
        ),
    )


def spark_bronze(results: Rows) -> str:
    lines = []
    for row in results:
        match row["way"]:
            case "now":
                ours, other = million(row["ours"]), million(row["other"])
                lines.append(["stream with `availableNow` into bronze", f"{ours} million rows/s"])
                lines.append(["Parquet files to Parquet files", f"{other} million rows/s"])
            case "one row":
                sink = "dropped" if row["to"] == "nothing" else "into bronze"
                lines.append([f"micro-batch of one row, {sink}", f"{row['milliseconds']:.0f} ms"])
            case "fresh":
                lines.append(
                    [
                        "from sending to the commit in bronze at 1,000 messages/s",
                        f"p50 {row['50']:.0f} ms, p99 {row['99']:.0f} ms",
                    ]
                )
    return table(["", "measured"], lines)


def spark_soak(results: Rows) -> str:
    *tables, whole = results
    silver = [row for row in tables if row["table"].startswith("silver/")]
    slowest = max(silver, key=lambda row: float(row["p99"]))
    rows = [("`bronze`", tables[0]), (f"slowest of {len(silver)} silver tables", slowest)]
    rows += [
        (f"`{row['table'].removeprefix('gold/')}`", row)
        for row in tables
        if row["table"].startswith("gold/")
    ]
    text = table(
        ["seconds from the broker's time to the commit", "p50", "p99", "greatest"],
        ([name, *(f"{row[key]:.1f}" for key in ("p50", "p99", "max"))] for name, row in rows),
    )
    return (
        f"{text}\n\n{tables[0]['messages'] / whole['seconds']:,.0f} messages/s for "
        f"{whole['seconds']:.0f} s; {whole['differences']} differences from the sums of the "
        f"sender. The pipeline used {whole['cores']:.1f} cores. Driver and JVM had "
        f"{whole['growth']:.2f} times the memory in the last third that they had in the second."
    )


def by_hand(results: Rows) -> str:
    return table(
        ["compared", "result", "date", "commit"],
        (
            [row["measure"], row["text"], row["date"].partition("T")[0], commit(row)]
            for row in results
        ),
    )


FORMER: Final = {
    "brokers": (
        "load_of",
        "Peers had shorter runs than Penstock, JetStream one window, and latency one round.",
    ),
    "pubsub": ("nats_version", "nats-server had shorter runs than Penstock."),
    "logged": ("nats_version", "nats-server had shorter runs than Penstock."),
    "intake": ("nats_version", "JetStream had shorter runs than Penstock, and other windows."),
    "sizes": ("frame_bytes", "nats-server had shorter runs than Penstock."),
    "latency": ("timer_slack_ns", "Publishers woke up to 50 µs late, which all figures include."),
    "log_latency": ("timer_slack_ns", "Publishers woke up to 50 µs late; all figures include it."),
    "many": (
        "broker_us",
        "The publisher was in Python, and the bound of the rates with connections.",
    ),
}
"""What a results file says if its rows lack a column that its program stores by now."""


class Table(NamedTuple):
    """A table and its results file."""

    file: str
    render: Callable[[Rows], str]


TABLES: Final = {
    "codecs": Table("codecs", codecs),
    "pubsub": Table("pubsub", pubsub),
    "sizes": Table("sizes", sizes),
    "brokers": Table("brokers", brokers),
    "broker-latency": Table("brokers", broker_latency),
    "latency": Table("latency", latency),
    "crowd": Table("crowd", crowd),
    "groups": Table("groups", groups),
    "many": Table("many", many),
    "console": Table("console", console),
    "console-pages": Table("console", console_pages),
    "console-throughput": Table("console", console_throughput),
    "first-chart": Table("first_chart", first_chart),
    "intake": Table("intake", intake),
    "logged": Table("logged", logged),
    "replay": Table("replay", replay),
    "append": Table("log", append),
    "reading": Table("log", reading),
    "topics": Table("topics", topics),
    "log-latency": Table("log_latency", log_latency),
    "opening": Table("opening", opening),
    "last-values": Table("last_values", last_values),
    "rare-topic": Table("rare_topic", rare_topic),
    "kafka-intake": Table("kafka_intake", kafka_intake),
    "node-latency": Table("node_latency", node_latency),
    "node-costs": Table("node_costs", node_costs),
    "scaling": Table("node_costs", scaling),
    "namespace-costs": Table("namespace_costs", namespace_costs),
    "spark-kafka": Table("spark_kafka", spark_scan),
    "spark-scan": Table("spark_scan", spark_scan),
    "spark-spike": Table("spark_scan", spark_spike),
    "spark-bronze": Table("spark_bronze", spark_bronze),
    "spark-soak": Table("spark_soak", spark_soak),
    "by-hand": Table("by_hand", by_hand),
}


def figures() -> dict[str, str]:
    """Return the numbers that pages have inside sentences."""
    idle = next(row for row in load("crowd")["results"] if row["measure"] == "idle")
    stored = next(row for row in load("intake")["results"] if row["protocol"] == "rheos2")
    return {
        "idle-client": f"{idle['kib_each']:.0f} KiB",
        "stored-bytes": f"{stored['stored_bytes_each']:.0f} bytes",
        **{row["figure"]: row["text"] for row in load("by_hand")["results"]},
    }


def commit(record: dict[str, Any]) -> str:
    """Return the commit of a run, as a page shows it."""
    number, dirty, _ = record["commit"].partition("-dirty")
    return f"`{number}`" + (" with uncommitted changes" if dirty else "")


def source(name: str, page: Path) -> str:
    """Return the line below a table: date, commit, machine and results file."""
    record = load(name)
    path = Path(os.path.relpath(FOLDER / f"{name}.json", page.parent)).as_posix()
    link = f"[{name}.json]({path})"
    if "date" not in record:
        return f"{record['note']} File: {link}."
    machine = record["machine"]
    column, former = FORMER.get(name, ("", ""))
    if column and column not in record["results"][0]:
        link += f". {former[:-1]}"
    return (
        f"Measured {record['date'].partition('T')[0]}, commit {commit(record)},"
        f" {machine['cores']} shared cores of {machine['processor']},"
        f" Python {machine['python']}: {link}."
    )


def with_figures(text: str, page: Path) -> str:
    """Return the text of a page with every block updated; raise KeyError for an unknown block."""
    numbers = figures()

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        if found["line"]:
            file, render = TABLES[name]
            shown = f"\n{render(load(file)['results'])}\n\n{source(file, page)}\n"
        else:
            shown = numbers[name]
        return f"<!-- {name}:begin -->{shown}<!-- {name}:end -->"

    return BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print all tables, change no page")
    arguments = parser.parse_args()
    if arguments.print:
        for file, render in TABLES.values():
            print(render(load(file)["results"]), end="\n\n")
        return
    CHART.write_text(chart())
    for page in pages():
        text = page.read_text()
        if (changed := with_figures(text, page)) != text:
            page.write_text(changed)
            print(f"{page.relative_to(ROOT)}: figures updated")


if __name__ == "__main__":
    main()
