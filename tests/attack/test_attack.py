"""A short run of `make attack`: few clients, for some seconds."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attack.attackers import ATTACKS
from tests.attack.run import ProcessorTime, attack, pin

SECONDS = float(os.environ.get("PENSTOCK_ATTACK_SECONDS", "24"))


def test_honest_clients_are_served_while_attackers_do_what_they_can(tmp_path: Path) -> None:
    outcome = attack(tmp_path, seconds=SECONDS, honest=40, attackers=16, seed=7, figures=False)
    assert not outcome.faults, outcome.text()
    assert len(outcome.attackers["runs"]) > len(ATTACKS) // 2


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the kernel has no scheduler statistics"
)
def test_the_processor_time_of_a_process_is_told() -> None:
    before = ProcessorTime.of_main_thread(os.getpid())
    ends = time.thread_time() + 0.01
    while time.thread_time() < ends:
        pass
    times = ProcessorTime.of_main_thread(os.getpid()) - before
    assert times.ran > 0.005
    assert times.waited >= 0.0


def test_a_process_is_given_one_processor() -> None:
    processor = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pin(process.pid, processor)
        assert os.sched_getaffinity(process.pid) == {processor}
        process.communicate(b"\n")
