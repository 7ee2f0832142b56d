"""What Spark says on standard error: nothing of no use, and nothing of use is kept back."""

import subprocess
import sys

import pytest

from penstock.spark.noise import without_noise

LET_GO = b"""Traceback (most recent call last):
  File "/somewhere/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
BrokenPipeError: [Errno 32] Broken pipe
"""
LET_GO_LINES = LET_GO.splitlines(keepends=True)
TWO_AT_ONCE = b"".join(
    line for pair in zip(LET_GO_LINES, LET_GO_LINES, strict=True) for line in pair
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
        (LET_GO, b""),
        (b"a\n" + LET_GO + LET_GO + b"b\n", b"a\nb\n"),
        (b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: else\n",
         b"WARNING: else\n"),
        (b"a\n" + TWO_AT_ONCE + b"b\n" + LET_GO, b"a\nb\n"),
        (LET_GO_LINES[0] + OF_THE_DAEMON + b"".join(LET_GO_LINES[1:]),
         LET_GO_LINES[0] + OF_THE_DAEMON + b"".join(LET_GO_LINES[1:])),
        (OF_A_USER, OF_A_USER),
        (OF_THE_DAEMON, OF_THE_DAEMON),
        (LET_GO[:60], LET_GO[:60]),
        (OF_A_USER + LET_GO + OF_A_USER, OF_A_USER * 2),
        (b"\xff no newline", b"\xff no newline"),
    ],
)  # fmt: skip
def test_only_noise_is_left_out(said: bytes, heard: bytes) -> None:
    assert b"".join(without_noise(said.splitlines(keepends=True))) == heard


def test_what_a_child_says_arrives_and_ours_is_put_back() -> None:
    program = """
import os, subprocess, sys
from penstock.spark.noise import filtered_stderr
with filtered_stderr():
    child = subprocess.Popen(["sh", "-c",
        "echo WARNING: Using incubator modules: x >&2; echo from the child >&2"])
child.wait()
sys.stderr.write("ours\\n")
import threading
for thread in threading.enumerate():
    if thread.name == "penstock-stderr": thread.join(5)
"""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    )
    assert sorted(done.stderr.splitlines()) == ["from the child", "ours"]
