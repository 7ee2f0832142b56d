"""Tables for the README and the pages, made from the figures in bench/results.

python -m bench.report          print the tables
python -m bench.report --write  put them where a page has their marks
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/performance.md")


def results(name: str) -> list[dict[str, Any]]:
    """The rows of a kept result."""
    rows: list[dict[str, Any]] = json.loads((ROOT / f"bench/results/{name}.json").read_text())[
        "results"
    ]
    return rows


def codecs_table() -> str:
    record = json.loads((ROOT / "bench/results/codecs.json").read_text())
    lines = [
        "| protocol | scan | encode | both | plain codec | both / plain | both in bare copies |",
        "|---|---|---|---|---|---|---|",
    ]
    lines.extend(
        f"| {row['protocol']} | {row['scan'] / 1e6:.0f} | {row['encode'] / 1e6:.0f}"
        f" | {row['both'] / 1e6:.0f} | {row['plain'] / 1e6:.2f}"
        f" | {row['times_plain']:.0f} | {row['copies']:.1f} |"
        for row in record["results"]
        if row["value_bytes"] == 100
    )
    return "\n".join(lines)


def pubsub_table() -> str:
    record = json.loads((ROOT / "bench/results/pubsub.json").read_text())
    rows = {(row["protocol"], row["subscribers"]): row for row in record["results"]}
    lines = [
        "| | published to one | times nats-server | delivered to eight | times nats-server |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["protocol"] for row in record["results"]):
        one, eight = rows[name, 1], rows[name, 8]
        lines.append(
            f"| {'nats-server' if name == 'nats' else name} | {one['published'] / 1e6:.2f}"
            f" | {one['times_nats']:.1f} | {eight['delivered'] / 1e6:.2f}"
            f" | {eight['times_nats']:.1f} |"
        )
    return "\n".join(lines)


def intake_table() -> str:
    lines = [
        "| | acknowledged | times JetStream | bytes on disk for each | of the disk's speed |",
        "|---|---|---|---|---|",
    ]
    lines.extend(
        f"| {'JetStream' if row['protocol'] == 'jetstream' else row['protocol']}"
        f" | {row['acknowledged'] / 1e6:.2f} | {row['times_jetstream']:.1f}"
        f" | {row['stored_bytes_each']:.0f} | {row['disk_share']:.0%} |"
        for row in results("intake")
    )
    return "\n".join(lines)


def logged_table() -> str:
    rows = {(row["protocol"], row["durability"]): row for row in results("logged")}
    lines = [
        "| | no log | `os` | `fsync` | times nats-server with `os` | with `fsync` |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(name for name, _ in rows if name != "nats"):
        none, system, disk = (rows[name, each] for each in ("memory", "os", "fsync"))
        lines.append(
            f"| {name} | {none['published'] / 1e6:.2f} | {system['published'] / 1e6:.2f}"
            f" | {disk['published'] / 1e6:.2f} | {system['times_nats']:.1f}"
            f" | {disk['times_nats']:.1f} |"
        )
    return "\n".join(lines)


def replay_table() -> str:
    lines = ["| | live | replayed | times live |", "|---|---|---|---|"]
    lines.extend(
        f"| {row['protocol']} | {row['live'] / 1e6:.2f} | {row['replayed'] / 1e6:.2f}"
        f" | {row['times_live']:.1f} |"
        for row in results("replay")
    )
    return "\n".join(lines)


def append_table() -> str:
    lines = ["| | taking | own | system |", "|---|---|---|---|"]
    for row in results("log"):
        if row["measure"] == "size":
            what = f"a log of {row['gigabytes']:.1f} GB"
        elif row["measure"] == "topics":
            what = f"{row['topics']:,} topics {row['use']}"
        else:
            continue
        lines.append(
            f"| {what} | {row['taking_ns']:.0f} | {row['own_ns']:.0f} | {row['system_ns']:.0f} |"
        )
    return "\n".join(lines)


def reading_table() -> str:
    lines = [
        "| | million messages a second | GB/s | processor time of a message, ns |",
        "|---|---|---|---|",
    ]
    lines.extend(
        f"| {row['way']} | {row['messages_a_second'] / 1e6:.1f}"
        f" | {row['bytes_a_second'] / 1e9:.2f} | {row['processor_ns']:.0f} |"
        for row in results("log")
        if row["measure"] == "read"
    )
    return "\n".join(lines)


def topics_table() -> str:
    lines = ["| topics in turn | acknowledged | topics made a second |", "|---|---|---|"]
    lines.extend(
        f"| {row['topics']:,} | {row['acknowledged'] / 1e6:.2f} | {row['topics_made']:,.0f} |"
        for row in results("topics")
    )
    return "\n".join(lines)


def log_latency_table() -> str:
    lines = ["| | | durability | p50 | p90 | p99 |", "|---|---|---|---|---|---|"]
    lines.extend(
        f"| {row['protocol']} | {row['measure']} | `{row['durability']}` | {row['p50_us']:.0f}"
        f" | {row['p90_us']:.0f} | {row['p99_us']:.0f} |"
        for row in results("log_latency")
    )
    return "\n".join(lines)


def opening_table() -> str:
    lines = [
        "| log | opened | read | broker ready | the same without a log |",
        "|---|---|---|---|---|",
    ]
    ends = {"clean": "closed cleanly", "killed": "after kill -9"}
    lines.extend(
        f"| {row['gibibytes']:.1f} GiB, {ends[row['end']]} | {row['open_seconds']:.2f} s"
        f" | {row['bytes_read'] / 1e6:.1f} MB | {row['ready_seconds']:.2f} s"
        f" | {row['empty_ready_seconds']:.2f} s |"
        for row in results("opening")
    )
    return "\n".join(lines)


def spark_table() -> str:
    others = {
        "rows": ("all columns of all rows, dropped", "Parquet files"),
        "to Parquet": ("all columns to Parquet files", "Parquet files"),
        "by topic": ("counted by topic", "Parquet files"),
        "over Flight": ("all columns over Flight, dropped", "the segments"),
        "now": ("`availableNow` into the bronze table", "Parquet files to Parquet files"),
    }
    hows = {"scan": ", by `scan`", "source": ", by `spark.read`"}
    lines = [
        "| | million rows a second | beside it | million rows a second | times |",
        "|---|---|---|---|---|",
    ]
    for row in (*results("spark_scan"), *results("spark_bronze")):
        if row["way"] not in others:
            continue
        what, beside = others[row["way"]]
        lines.append(
            f"| {what}{hows.get(row.get('how'), '')} | {row['ours'] / 1e6:.2f} | {beside}"
            f" | {row['other'] / 1e6:.2f} | {row['times']:.2f} |"
        )
    return "\n".join(lines)


def spark_latency_table() -> str:
    lines = ["| | milliseconds |", "|---|---|"]
    for row in results("spark_bronze"):
        if row["way"] == "one row":
            lines.append(f"| micro-batch of one row to {row['to']} | {row['milliseconds']:.0f} |")
        elif row["way"] == "fresh":
            lines.append(
                "| from sending to the commit in bronze at 1,000 messages a second, p50, p99"
                f" | {row['50']:.0f}, {row['99']:.0f} |"
            )
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "codecs": codecs_table,
    "pubsub": pubsub_table,
    "intake": intake_table,
    "logged": logged_table,
    "replay": replay_table,
    "append": append_table,
    "reading": reading_table,
    "topics": topics_table,
    "log-latency": log_latency_table,
    "opening": opening_table,
    "spark": spark_table,
    "spark-latency": spark_latency_table,
}


def readme_with_tables(readme: str) -> str:
    """Return a page with every table replaced that it has marks for."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        before, mark, rest = readme.partition(begin)
        if not mark:
            continue
        _, _, after = rest.partition(end)
        readme = f"{before}{begin}{table()}\n{end}{after}"
    return readme


def main() -> None:
    if "--write" in sys.argv:
        for page in PAGES:
            path = ROOT / page
            path.write_text(readme_with_tables(path.read_text()))
    else:
        for table in TABLES.values():
            print(table(), end="\n\n")


if __name__ == "__main__":
    main()
