"""`make demo-cluster`: it is there, and a short form of it runs where that is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLUSTER = "PENSTOCK_CLUSTER"
"""The variable with which `make cluster` runs what needs many processes."""
SECONDS_MAX = 600


def test_make_runs_it() -> None:
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", "demo-cluster", "ARGS=--messages 20"],  # noqa: S607
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    words = done.stdout.splitlines()[-1].split()
    assert words[-4:] == ["-m", "examples.demo_cluster", "--messages", "20"]


def test_it_has_a_help_text() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo_cluster", "--help"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert "--messages" in done.stdout


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.skipif(CLUSTER not in os.environ, reason="`make cluster` runs it: nine processes")
def test_counts_are_exact_after_the_loss_of_a_node_and_a_kafka_broker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo_cluster", "--messages", "40"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "All counts are exact." in done.stdout
    assert "NO" not in done.stdout.split()
