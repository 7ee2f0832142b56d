"""Tables for the README, made from the figures in bench/results.

python -m bench.report          print the tables
python -m bench.report --write  put them into README.md
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


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


TABLES: dict[str, Any] = {"codecs": codecs_table, "pubsub": pubsub_table}


def readme_with_tables(readme: str) -> str:
    """Return `readme` with every table between its marks replaced."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        before, _, rest = readme.partition(begin)
        _, _, after = rest.partition(end)
        readme = f"{before}{begin}{table()}\n{end}{after}"
    return readme


def main() -> None:
    path = ROOT / "README.md"
    if "--write" in sys.argv:
        path.write_text(readme_with_tables(path.read_text()))
    else:
        for table in TABLES.values():
            print(table(), end="\n\n")


if __name__ == "__main__":
    main()
