"""Freshness, counts and memory of a pipeline of many tables at a constant rate.

    python -m bench.spark.soak [--quick] [--save] [--seconds 600] [--rate 5000]

`penstock pipeline run` keeps 20 silver and 10 gold tables up to date while a client publishes. The
freshness of a message in a table is the time from the timestamp of the broker to the commit that
reflects the message. Messages of the first WARM_SECONDS are counted; their freshness is not. At the
end all tables are compared with the sums of the sender.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import deltalake
import duckdb
import msgspec
import numpy as np

from bench.macro.peers import HOST
from bench.macro.stores import data_folder, penstock_store
from bench.results import save
from bench.spark.soak_load import DEVICES, TOPICS, Sums, format_of, topic_of

RATE = 5_000
FRESH_SECONDS_MAX: Final = 10.0
GROWTH_MAX: Final = 1.1
"""Memory of the driver in the last third of the run, compared with the middle third."""
WARM_SECONDS: Final = 60.0
SETTLED_SECONDS_MAX: Final = 120.0
SAMPLE_SECONDS: Final = 5.0
MERGED: Final = 18
"""The number of the silver table with one row for each device."""
DEDUPLICATED: Final = 19
"""The number of the silver table that compares ids."""

FIELDS: Final = {
    "json": """[
  { name = "id", type = "long", required = true },
  { name = "device", required = true },
  { name = "celsius", type = "double", path = "values.celsius" },
  { name = "measured", type = "timestamp", formats = ["epoch_ms"] },
]""",
    "csv": """[
  { name = "id", type = "long", required = true },
  { name = "device", required = true },
  { name = "celsius", type = "double" },
  { name = "measured", type = "timestamp", formats = ["epoch_ms"] },
]""",
    "text": """[
  { name = "id", type = "long", required = true },
  { name = "device", required = true },
  { name = "celsius", type = "double" },
]""",
}
QUERIES: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "devices": ("select device, count(*) as n, avg(celsius) as celsius from t00 group by 1", (0,)),
    "minutes": ("select minute(measured) as minute, count(*) as n from t01 group by 1", (1,)),
    "hot": ("select device, count_if(celsius >= 0) as n from t02 group by 1", (2,)),
    "plants": ("select count(*) as n from t03 union all select count(*) from t04", (3, 4)),
    "states": ("select count(*) as n, max(id) as id from t18", (MERGED,)),
    "topics": (
        "select topic, sum(messages) as n from traffic where topic like 'soak/%' group by 1",
        tuple(range(TOPICS)),
    ),
}
"""The SQL tables: the query, and the topics whose messages it counts in `n`."""
REQUESTS: Final = "requests"
ALL: Final = "all"


def configure(folder: Path, data: Path) -> Path:
    """Write the pipeline's configuration; return its path."""
    queries = folder / "queries"
    queries.mkdir()
    for name, (text, _) in QUERIES.items():
        (queries / f"{name}.sql").write_text(text)
    lines = [
        f'silver_seconds = 2\n[source]\npath = "{data}"\n[warehouse]\nfolder = "warehouse"',
        '[gold]\nseconds = 3\ntraffic_window_seconds = 10\nsql = "queries"',
    ]
    for number in range(TOPICS):
        kind = format_of(number)
        more = ""
        if kind == "text":
            more = 'pattern = "<([0-9]+)> (d[0-9]+) ([0-9.]+)"'
        if number == MERGED:
            more = 'merge = { key = ["device"], order_by = "id" }'
        if number == DEDUPLICATED:
            more = 'dedup = ["id"]\nevent_time = "measured"\nwatermark_seconds = 20'
        lines.append(
            f'[[silver]]\nname = "t{number:02}"\ntopics = ["{topic_of(number)}"]\n'
            f'format = "{kind}"\nfield = {FIELDS[kind]}\n{more}'
        )
    path = folder / "pipeline.toml"
    path.write_text("\n\n".join(lines) + "\n")
    return path


# --- Processes


class Processes:
    """Memory and processor time of the pipeline: the driver's Python process and its JVM."""

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self.samples: list[tuple[float, int, int]] = []
        """Time, bytes of the Python process, bytes of the JVM."""
        self._ticks: dict[int, int] = {}

    def sample(self) -> None:
        """Read the memory of both and the processor time of all processes of the pipeline."""
        found = self._tree()
        jvm = next((pid for pid in found if _command(pid) == "java"), 0)
        self.samples.append((time.time(), _resident(self._driver), _resident(jvm)))
        for pid in found:
            self._ticks[pid] = _ticks(pid)

    def processor_seconds(self) -> float:
        """Return the processor time of all processes up to the last sample."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def _tree(self) -> list[int]:
        parents: dict[int, list[int]] = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(place.name))
        found, waiting = [], [self._driver]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += parents.get(pid, [])
        return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def growth(samples: Sequence[tuple[float, int, int]]) -> float:
    """Return the mean memory of the last third of the samples by that of the middle third."""
    sizes = [python + java for _, python, java in samples]
    third = len(sizes) // 3
    return float(np.mean(sizes[2 * third :]) / np.mean(sizes[third : 2 * third])) if third else 1.0


# --- Results


class Messages(NamedTuple):
    """Offset and broker time of all messages of bronze, with their topic and kind."""

    offset: "np.ndarray[Any, Any]"
    moment_us: "np.ndarray[Any, Any]"
    topic: "np.ndarray[Any, Any]"
    kind: "np.ndarray[Any, Any]"


def rows_of(table: Path, select: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of a table `t`."""
    dataset = deltalake.DeltaTable(str(table)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        return connection.execute(select).fetchall()


def messages(bronze: Path) -> Messages:
    """Read the messages of bronze in the order of offsets."""
    dataset = deltalake.DeltaTable(str(bronze)).to_pyarrow_dataset()
    select = 'select "offset", epoch_us(timestamp) as moment, topic, kind from t order by 1'
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        found = connection.execute(select).fetchnumpy()
    return Messages(
        found["offset"], found["moment"], found["topic"].astype("U"), found["kind"].astype("U")
    )


def commits(table: Path) -> Iterator[tuple[int, float]]:
    """Yield the offset that each commit of a table reaches, and its time."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_bytes().splitlines():
            done = msgspec.json.decode(line).get("txn")
            if done is not None and "/" in done["appId"] and ":" not in done["appId"]:
                yield done["version"], commit.stat().st_mtime


def freshness(
    table: Path, found: Messages, chosen: "np.ndarray[Any, Any]"
) -> "np.ndarray[Any, Any]":
    """Return the seconds from the broker's time to the commit, for each chosen message."""
    offsets, moments = (np.array(each) for each in zip(*commits(table), strict=True))
    order = np.argsort(moments, kind="stable")
    reached = np.maximum.accumulate(offsets[order])
    place = np.searchsorted(reached, found.offset[chosen], side="right")
    if (place >= len(reached)).any():
        raise SystemExit(f"{table}: {(place >= len(reached)).sum()} messages are not reflected")
    return np.asarray(moments[order][place] - found.moment_us[chosen] / 1e6)


def tables() -> dict[str, Sequence[int] | str]:
    """Return the topics whose messages each table reflects, REQUESTS, or ALL."""
    gold: dict[str, Sequence[int] | str] = {
        "gold/traffic": ALL,
        "gold/sessions": ALL,
        "gold/exchanges": REQUESTS,
        "gold/latency": REQUESTS,
    }
    return {
        "bronze": ALL,
        **{f"silver/t{number:02}": (number,) for number in range(TOPICS)},
        **gold,
        **{f"gold/{name}": topics for name, (_, topics) in QUERIES.items()},
    }


def selected(found: Messages, chosen: Sequence[int] | str) -> "np.ndarray[Any, Any]":
    """Return which messages a table reflects."""
    if chosen == ALL:
        return np.ones(len(found.offset), bool)
    if chosen == REQUESTS:
        return np.isin(found.kind, ["request", "reply"])
    return np.isin(found.topic, [topic_of(int(number)) for number in chosen])


def differences(warehouse: Path, sums: Sums) -> list[str]:
    """Compare all tables with the sums of the sender; return the differences."""
    total = sum(sums.sent) + 2 * sums.requests
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "bronze": ("count(*), count(distinct message_id)", (total, total)),
        "gold/traffic": ("sum(messages)", (total,)),
        "gold/sessions": ("sum(messages)", (total,)),
        "gold/exchanges": (
            "count(*), count(requested), count(replied)",
            (sums.requests, sums.requests, sums.requests),
        ),
        "gold/latency": ("sum(requests), sum(replies)", (sums.requests, sums.requests)),
        "dead_letters": ("count(*)", (sum(sums.sent) - sum(sums.good),)),
    }
    for number in range(TOPICS):
        newest = sums.newest[number]
        expected = (sums.good[number], sums.good[number], sums.ids[number])
        if number == MERGED:
            expected = (len(newest), len(newest), sum(newest.values()))
        wanted[f"silver/t{number:02}"] = "count(*), count(distinct message_id), sum(id)", expected
    for name, (_, topics) in QUERIES.items():
        count = sum((sums.sent if name == "topics" else sums.good)[topic] for topic in topics)
        wanted[f"gold/{name}"] = "sum(n)", (DEVICES if topics == (MERGED,) else count,)
    problems = []
    for name, (columns, expected) in wanted.items():
        (row,) = rows_of(warehouse / name, f"select {columns} from t")  # noqa: S608
        if tuple(map(int, row)) != expected:
            problems.append(f"{name}: {columns} is {row}, expected {expected}")
    return problems


# --- The run


def lag_of(warehouse: Path) -> int:
    """Return the greatest lag of any table in the status file, -1 without one."""
    try:
        status = msgspec.json.decode((warehouse / "_status.json").read_bytes())
    except OSError:
        return -1
    stages = status["stages"]
    for name, stage in stages.items():
        if stage["error"]:
            print(f"{name}: {stage['error']}", file=sys.stderr)
    return max(stage["lag"] for stage in stages.values())


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not in {seconds:.0f} s: {what}")
        time.sleep(0.2)


def soak(folder: Path, *, rate: float, seconds: float, warm: float) -> list[dict[str, Any]]:
    """Run pipeline and sender; return a row for each table, and one for the whole."""
    warehouse = folder / "warehouse"
    with penstock_store(folder=folder) as store, (folder / "pipeline.txt").open("wb") as out:
        command = [sys.executable, "-m", "penstock.cli", "pipeline", "run", "--config"]
        pipeline = subprocess.Popen(  # noqa: S603
            [*command, str(configure(folder, store.folder))], stdout=out, stderr=out
        )
        try:
            wait_until(lambda: lag_of(warehouse) == 0, "the pipeline's start", 120)
            processes = Processes(pipeline.pid)
            url = f"tcp://{HOST}:{store.port}"
            begun = time.time()
            sender = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "bench.spark.soak_load", url, str(rate),
                 str(warm + seconds)], stdout=subprocess.PIPE,
            )  # fmt: skip
            used, measured = 0.0, 0.0
            while sender.poll() is None:
                processes.sample()
                if not used and time.time() - begun >= warm:
                    used, measured = processes.processor_seconds(), time.time()
                    processes.samples.clear()
                if pipeline.poll() is not None:
                    raise SystemExit((folder / "pipeline.txt").read_text()[-3000:])
                time.sleep(min(SAMPLE_SECONDS, seconds / 10))
            share = (processes.processor_seconds() - used) / (processes.samples[-1][0] - measured)
            sums = msgspec.json.decode(sender.communicate()[0], type=Sums)
            ended = time.time()
            wait_until(lambda: lag_of(warehouse) == 0, "no lag", SETTLED_SECONDS_MAX)
            settled = time.time() - ended
            time.sleep(8)  # SQL tables of the last rows
        finally:
            pipeline.send_signal(signal.SIGINT)
            pipeline.wait(120)
    problems = differences(warehouse, sums)
    for problem in problems:
        print(f"differs: {problem}", file=sys.stderr)
    found = messages(warehouse / "bronze")
    late = found.moment_us >= (begun + warm) * 1e6
    results: list[dict[str, Any]] = []
    for name, chosen in tables().items():
        times = freshness(warehouse / name, found, late & selected(found, chosen))
        p50, p99 = (float(np.percentile(times, each)) for each in (50, 99))
        count = sum(1 for _ in (warehouse / name / "_delta_log").glob("*.json"))
        results.append(
            {"table": name, "messages": len(times), "p50": p50, "p99": p99,
             "max": float(times.max()), "commits": count}
        )  # fmt: skip
    sizes = [(python, java) for _, python, java in processes.samples]
    results.append(
        {
            "table": "",
            "sent": sum(sums.sent) + 2 * sums.requests,
            "seconds": seconds,
            "differences": len(problems),
            "growth": growth(processes.samples),
            "python_mib": sizes[-1][0] / 2**20,
            "jvm_mib": sizes[-1][1] / 2**20,
            "cores": share,
            "settled_seconds": settled,
        }
    )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--folder", type=Path, help="a new folder for log and tables, kept")
    arguments = parser.parse_args()
    seconds, warm = (10.0, 5.0) if arguments.quick else (arguments.seconds, WARM_SECONDS)
    with data_folder() as temporary:
        folder = arguments.folder or temporary
        folder.mkdir(parents=True, exist_ok=True)
        results = soak(folder, rate=arguments.rate, seconds=seconds, warm=warm)
    *found, whole = results
    for row in found:
        print(
            f"{row['table']:<16} p50 {row['p50']:6.2f} s  p99 {row['p99']:6.2f} s"
            f"  max {row['max']:6.2f} s  {row['commits']} commits"
        )
    print(
        f"{whole['sent']} messages, {whole['differences']} differences, pipeline on "
        f"{whole['cores']:.2f} cores, memory {whole['growth']:.3f} times, Python "
        f"{whole['python_mib']:.0f} MiB, JVM {whole['jvm_mib']:.0f} MiB, "
        f"settled in {whole['settled_seconds']:.1f} s"
    )
    if arguments.save:
        print(f"saved to {save('spark_soak', results)}")
    short = [row["table"] for row in found if row["p99"] > FRESH_SECONDS_MAX]
    short += ["counts"] if whole["differences"] else []
    short += ["memory"] if whole["growth"] > GROWTH_MAX else []
    for each in short:
        print(f"below target: {each}", file=sys.stderr)
    return 1 if whole["differences"] or (short and not arguments.quick) else 0


if __name__ == "__main__":
    sys.exit(main())
