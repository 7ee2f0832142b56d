"""Passwords are verified in processes of a low priority, which know no secret but the password."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import argon2
import pytest

from penstock.errors import AuthenticationFailed
from penstock.limits import VERIFICATION_NICENESS
from penstock.server.password_workers import PasswordWorkers
from tests.support.running import environment

CHEAP = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
PASSWORD = "correct horse \N{HORSE}".encode()
ENCODED = CHEAP.hash(PASSWORD)


def run(body: Callable[[PasswordWorkers], Awaitable[None]], **options: object) -> None:
    async def main() -> None:
        workers = PasswordWorkers(**options)  # type: ignore[arg-type]
        try:
            await body(workers)
        finally:
            workers.close()
        assert workers.processes == []

    asyncio.run(main())


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_right_and_wrong_passwords_of_any_bytes() -> None:
    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        assert not await workers.verify(ENCODED, b"")
        assert not await workers.verify(ENCODED, b"\x00\n\xff" * 300)
        assert await workers.verify(CHEAP.hash(b"\xff\x00"), b"\xff\x00")
        assert len(workers.processes) == 1

    run(body)


def test_verifications_at_the_same_time_have_a_process_each() -> None:
    async def body(workers: PasswordWorkers) -> None:
        found = await asyncio.gather(*(workers.verify(ENCODED, PASSWORD) for _ in range(2)))
        assert found == [True, True]
        assert len(workers.processes) == 2
        assert await asyncio.gather(*(workers.verify(ENCODED, b"no") for _ in range(2))) == [
            False,
            False,
        ]
        assert len(workers.processes) == 2, "they are used again"

    run(body)


def test_the_process_has_a_low_priority_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET", "known to the broker only")

    async def body(workers: PasswordWorkers) -> None:
        await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process) == min(own + VERIFICATION_NICENESS, 19)
        for name in ("environ", "cmdline"):
            told = Path(f"/proc/{process}/{name}").read_bytes()
            assert told, "it can be read"
            assert b"known to the broker only" not in told
            assert PASSWORD not in told
            assert ENCODED.encode() not in told
        files = {path.readlink() for path in Path(f"/proc/{process}/fd").iterdir()}
        assert len(files) <= 3, files

    run(body)


def test_a_process_that_ends_while_it_verifies_accepts_nothing() -> None:
    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        os.kill(process, signal.SIGSTOP)
        slow = asyncio.ensure_future(workers.verify(ENCODED, PASSWORD))
        await asyncio.sleep(0)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(AuthenticationFailed) as caught:
            await slow
        assert caught.value.reason == "it could not be verified, try again"
        assert await workers.verify(ENCODED, PASSWORD), "by another process"
        assert process not in workers.processes

    run(body)


def test_a_process_that_ends_while_it_is_idle_is_replaced() -> None:
    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        os.kill(process, signal.SIGKILL)
        await until(lambda: not is_running(process))
        assert await workers.verify(ENCODED, PASSWORD)
        assert not await workers.verify(ENCODED, b"wrong")

    run(body)


def test_a_process_that_hangs_is_ended() -> None:
    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        os.kill(process, signal.SIGSTOP)
        workers.seconds_max, usual = 0.1, workers.seconds_max
        with pytest.raises(AuthenticationFailed):
            await workers.verify(ENCODED, PASSWORD)
        workers.seconds_max = usual
        assert not is_running(process)
        assert await workers.verify(ENCODED, PASSWORD)

    run(body)


def test_the_broker_s_signals_do_not_end_a_verification() -> None:
    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(process, number)
        assert await workers.verify(ENCODED, PASSWORD)
        assert workers.processes == [process]

    run(body)


def test_its_priority_is_compared_with_the_broker_s() -> None:
    """It is in the broker's session: Linux shares processors out between sessions first."""

    async def body(workers: PasswordWorkers) -> None:
        assert await workers.verify(ENCODED, PASSWORD)
        (process,) = workers.processes
        assert os.getsid(process) == os.getsid(0)
        assert os.getpgid(process) == process  # Ctrl-C does not reach it

    run(body)


def test_one_that_cannot_run_is_not_started_for_each_password(tmp_path: Path) -> None:
    count = tmp_path / "starts"
    command = ("/bin/sh", "-c", f"echo >> {count}; exit 3")

    async def body(workers: PasswordWorkers) -> None:
        for _ in range(20):
            with pytest.raises(AuthenticationFailed):
                await workers.verify(ENCODED, PASSWORD)
        assert count.read_text() == "\n"

    run(body, command=command, retry_seconds=60.0)


def test_a_program_that_is_missing_refuses_passwords() -> None:
    async def body(workers: PasswordWorkers) -> None:
        with pytest.raises(AuthenticationFailed) as caught:
            await workers.verify(ENCODED, PASSWORD)
        assert caught.value.reason == "it cannot be verified now, try again"

    run(body, command=("/no/such/program",))


PARENT = """
import asyncio, sys
from penstock.server.password_workers import PasswordWorkers
async def main():
    workers = PasswordWorkers()
    await workers.verify(sys.argv[1], b"wrong")
    print(workers.processes[0], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_the_process_ends_with_the_broker() -> None:
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", PARENT, ENCODED], stdout=subprocess.PIPE, env=environment()
    ) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert is_running(process)
        parent.kill()
        parent.wait()

    asyncio.run(until(lambda: not is_running(process)))
