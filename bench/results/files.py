"""Read and write the results files, one JSON file for each benchmark."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "load", "save"]

FOLDER = Path(__file__).parent


def load(name: str) -> dict[str, Any]:
    """Return `<name>.json`: `date`, `commit` and `machine` of a run, and its rows as `results`."""
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return record


def save(name: str, results: list[dict[str, Any]]) -> Path:
    """Write `results` as `<name>.json`, with date, commit and machine; return the path."""
    record = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("describe", "--always", "--dirty", "--abbrev=12"),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "results": results,
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(FOLDER), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
