"""The stderr of Spark's processes: known noise is dropped, every other line arrives."""

import subprocess
import sys

import pytest

from penstock.spark.stderr_filter import drop_spark_noise

CLOSED = b"""Traceback (most recent call last):
  File "/somewhere/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
BrokenPipeError: [Errno 32] Broken pipe
"""
CLOSED_LINES = CLOSED.splitlines(keepends=True)
TWO_AT_ONCE = b"".join(
    line for pair in zip(CLOSED_LINES, CLOSED_LINES, strict=True) for line in pair
)
OF_A_USER = b"""Traceback (most recent call last):
  File "/somewhere/job.py", line 3, in work
    raise BrokenPipeError
BrokenPipeError
"""
OF_THE_DAEMON = b"""Traceback (most recent call last):
  File "/somewhere/pyspark/daemon.py", line 264, in manager
ValueError: worth knowing
"""


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (CLOSED, b""),
        (b"a\n" + CLOSED + CLOSED + b"b\n", b"a\nb\n"),
        (b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: else\n",
         b"WARNING: else\n"),
        (b"a\n" + TWO_AT_ONCE + b"b\n" + CLOSED, b"a\nb\n"),
        (CLOSED_LINES[0] + OF_THE_DAEMON + b"".join(CLOSED_LINES[1:]),
         CLOSED_LINES[0] + OF_THE_DAEMON + b"".join(CLOSED_LINES[1:])),
        (OF_A_USER, OF_A_USER),
        (OF_THE_DAEMON, OF_THE_DAEMON),
        (CLOSED[:60], CLOSED[:60]),
        (OF_A_USER + CLOSED + OF_A_USER, OF_A_USER * 2),
        (b"\xff no newline", b"\xff no newline"),
    ],
)  # fmt: skip
def test_only_noise_is_left_out(said: bytes, heard: bytes) -> None:
    assert b"".join(drop_spark_noise(said.splitlines(keepends=True))) == heard


def test_the_stderr_of_a_child_is_filtered_and_that_of_the_process_stays() -> None:
    program = """
import os, subprocess, sys
from penstock.spark.stderr_filter import filtered_stderr
before = os.fstat(2)
with filtered_stderr() as stderr:
    assert os.path.samestat(os.fstat(2), before)
    child = subprocess.Popen(["sh", "-c",
        "echo WARNING: Using incubator modules: x >&2; echo from the child >&2"], stderr=stderr)
child.wait()
sys.stderr.write("ours\\n")
import threading
for thread in threading.enumerate():
    if thread.name == "penstock-stderr": thread.join(5)
"""
    done = _run(program)
    assert sorted(done.stderr.splitlines()) == ["from the child", "ours"]


def test_a_session_is_quiet_and_its_warnings_arrive() -> None:
    program = """
from penstock.spark import session
spark = session("quiet", short=True)
assert spark.range(3).count() == 3
logger = spark._jvm.org.slf4j.LoggerFactory.getLogger("a.job")
logger.info("not shown")
logger.warn("shown")
spark.stop()
"""
    lines = _run(program).stderr.splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["WARN job: shown"]


def _run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
