"""The client's side of a program's pipes. `examples/broker_program.py` shows that it works."""

import asyncio
import os
import subprocess
import sys

import pytest

import penstock
from penstock.client import BadOption, Unreachable

TWICE = """
import asyncio, penstock
from penstock.client import Unreachable

async def main():
    async def connect():
        async with penstock.connect("stdio://", protocol="fleximq", timeout=5) as client:
            print("printed", client.identity)
    await connect()
    try:
        await connect()
    except Unreachable as error:
        print(error.reason)

asyncio.run(main())
"""
JOIN_REPLY = bytes.fromhex("0102 000003e8") + bytes(19) + b"\x0a\x81\xa6status\xcc\xc8" + bytes(8)


async def connect() -> None:
    async with penstock.connect("stdio://", protocol="fleximq"):
        pass


def test_other_programs_cannot_connect() -> None:
    with pytest.raises(Unreachable, match=r"was not started by a broker; list it as a \[\[program"):
        asyncio.run(connect())


def test_other_protocols_have_no_programs() -> None:
    with pytest.raises(BadOption, match="programs of a broker do not use"):
        penstock.connect("stdio://", protocol="herald")


def test_pipes_are_used_once_and_prints_do_not_reach_them() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", TWICE],
        input=JOIN_REPLY,
        capture_output=True,
        timeout=20,
        check=True,
        env={**os.environ, "PENSTOCK_CLIENT_ID": "1000"},
    )
    assert done.stdout == bytes.fromhex("0100") + bytes(32)  # JOIN, and nothing else
    assert done.stderr.decode().splitlines() == [
        "printed 1000",
        "standard input and output were used before",
    ]
