"""Chapter 5: `penstock pipeline run --once` makes tables of all messages."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

from examples.demo.broker import Broker
from examples.demo.errors import DemoFailed
from examples.demo.processes import penstock
from examples.demo.screen import chapter, line, problem, waiting

__all__ = ["run_spark"]

HERE = Path(__file__).parent
JAVA_MIN = 17
JAVA_SECONDS_MAX = 20
RUN_SECONDS_MAX = 300.0
POLL_SECONDS = 0.1
STOP_SECONDS_MAX = 1.0


def java_problem() -> str:
    """Return why Spark cannot run, in one line; empty if it can."""
    todo = f"install Java {JAVA_MIN} (Debian: apt install openjdk-17-jre-headless)"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        place = f"JAVA_HOME, which is {home}" if home else "PATH"
        return f"Spark needs Java, and there is none in {place}: {todo}; then make demo again."
    done = subprocess.run(  # noqa: S603
        [java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS_MAX, check=False
    )
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or newer, and {java} is not: {todo}."
    return ""


def write_config(folder: Path, broker: Broker) -> Path:
    """Write the pipeline's configuration with the broker's address to the demo's folder."""
    text = (HERE / "pipeline.toml").read_text()
    file = folder / "pipeline.toml"
    file.write_text(text.replace("grpc://127.0.0.1:7090", broker.flight))
    shutil.copytree(HERE / "queries", folder / "queries")
    return file


async def run_spark(folder: Path, broker: Broker) -> bool:
    """Make the tables; return whether Spark can run."""
    chapter("5 Spark", "The pipeline makes tables of every message: bronze, silver, gold.")
    missing = await asyncio.to_thread(java_problem)
    if missing:
        problem(missing)
        return False
    await run_pipeline(write_config(folder, broker))
    return True


async def run_pipeline(config: Path) -> None:
    """Update all tables from the log, and show the progress; raise DemoFailed."""
    warehouse, output = config.parent / "warehouse", config.parent / "pipeline.txt"
    scratch = config.parent / "scratch"
    scratch.mkdir()
    run = penstock(
        "pipeline", "run", "--once", "--config", str(config),
        output=output,
        end_seconds_max=STOP_SECONDS_MAX,
        TMPDIR=str(scratch),
        JDK_JAVA_OPTIONS=f"-Djava.io.tmpdir={scratch}",
    )  # fmt: skip
    with run as process, waiting("Spark starts; this takes most of the time …") as status:
        async with asyncio.timeout(RUN_SECONDS_MAX):
            while process.poll() is None:
                if made := _tables(warehouse):
                    status.update(f"Spark runs; table {len(made)} is {made[-1]} …")
                await asyncio.sleep(POLL_SECONDS)
    if process.returncode:
        lines = output.read_text().strip().splitlines() or ["it printed nothing"]
        raise DemoFailed(f"the pipeline failed: {lines[-1]}")
    line(f"Tables: {', '.join(_tables(warehouse))}.")


def _tables(warehouse: Path) -> list[str]:
    """Return the existing tables, in the order of their creation.

    Folders further down are created and removed while the pipeline runs.
    """
    logs = (warehouse.glob(f"{place}/_delta_log") for place in ("*", "*/*"))
    found = [log.parent for some in logs for log in some]
    found.sort(key=lambda folder: folder.stat().st_ctime)
    return [str(folder.relative_to(warehouse)) for folder in found]
