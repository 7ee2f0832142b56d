"""Programs that are started, spoken to by their pipes, started again and stopped."""

import ast
import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.environment import INHERITED_VARIABLES
from penstock.errors import BrokerFull
from penstock.limits import MEMORY_BLOCK_BYTES
from penstock.memory import MemoryBudget
from penstock.transport.stdio import (
    CLIENT_ID_VARIABLE,
    Program,
    Supervisor,
)
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Broken, Echo, Owner, until

ECHO = """
import os, sys
while data := os.read(0, 65536):
    os.write(1, data)
"""
SAY_ID = f"""
import os, sys
os.write(1, os.environ[{CLIENT_ID_VARIABLE!r}].encode() + b"\\n")
sys.stdin.buffer.read()
"""
DEAF = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"r")
signal.pause()
"""
BY_SIGNAL = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"t"), sys.exit(0)))
os.write(1, b"r")
signal.pause()
"""


def python(source: str, name: str = "child", **more: Any) -> Program:
    return Program(name, (sys.executable, "-S", "-c", source), **more)


class Keeper(Echo):
    """Keeps what it takes and answers nothing."""

    def received(self, data: memoryview) -> int:
        self.taken += data
        return len(data)


class Programs(Owner):
    """See transport.stdio.ProgramOwner: ids count from 1000."""

    def opened(self, link: Any, *rest: Any) -> Any:
        return super().opened(link, *rest), 999 + len(self.handlers)


def supervisor(owner: Owner, program: Program, **options: Any) -> Supervisor:
    made = Supervisor(owner, program, **{"restart_seconds_min": 0.01, **options})  # type: ignore[arg-type]
    made.start()
    return made


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def pipes() -> set[str]:
    """Return the pipes that this process has open."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(each.readlink()))
    return {each for each in found if each.startswith("pipe:")}


def pid_of(link: Any) -> int:
    return int(link.peer.partition("[")[2].rstrip("]"))


def test_a_program_is_spoken_to_by_its_pipes(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python(ECHO))
        await until(lambda: owner.links)
        data = bytes(range(256)) * 4000
        owner.links[0].write(data[:7])  # perhaps before the program is there
        owner.links[0].write(data[7:])
        await until(lambda: len(owner.handlers[0].taken) == len(data))
        assert owner.handlers[0].taken == data
        pid = pid_of(owner.links[0])
        await made.stop(seconds_max=5)
        assert not owner.links
        assert len(owner.handlers[0].lost_for) == 1
        assert not alive(pid)

    run(check())


def test_each_run_finds_its_client_id_in_the_environment(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python(SAY_ID))
        for identifier in (b"1000\n", b"1001\n"):
            await until(lambda: owner.handlers and owner.handlers[-1].taken)
            assert owner.handlers[-1].taken == identifier
            count = len(owner.handlers)
            owner.links[0].close()
            await until(lambda count=count: len(owner.handlers) > count)
        await made.stop(seconds_max=5)
        assert not owner.links

    run(check())


def test_directory_and_environment_are_given(run: Run, tmp_path: Path) -> None:
    source = (
        "import os; os.write(1, f\"{os.getcwd()} {os.environ['COLOUR']}\".encode()); os.read(0, 1)"
    )

    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(
            owner, python(source, directory=str(tmp_path), environment={"COLOUR": "red"})
        )
        await until(lambda: owner.handlers and owner.handlers[0].taken)
        assert owner.handlers[0].taken.decode() == f"{tmp_path} red"
        await made.stop(seconds_max=5)

    run(check())


def test_a_program_gets_no_secrets_of_the_broker(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PRINCIPAL__TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    source = (
        "import os; os.write(1, repr((sorted(os.environ), os.listdir('/proc/self/fd'))).encode());"
        "os.read(0, 1)"
    )

    async def check() -> None:
        owner = Programs(Keeper)
        with tempfile.TemporaryFile() as file:
            os.set_inheritable(file.fileno(), True)  # noqa: FBT003
            made = supervisor(owner, python(source))
            await until(lambda: owner.handlers and owner.handlers[0].taken.endswith(b")"))
            names, descriptors = ast.literal_eval(bytes(owner.handlers[0].taken).decode())
            assert str(file.fileno()) not in descriptors
            await made.stop(seconds_max=5)
        allowed = INHERITED_VARIABLES | {CLIENT_ID_VARIABLE, "LC_TIME", "LC_CTYPE", "LC_ALL"}
        assert {"PATH", "LC_TIME", CLIENT_ID_VARIABLE} <= set(names) <= allowed

    run(check())


def test_what_a_program_says_last_is_heard(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os, sys; sys.stdin.buffer.read(); os.write(1, b'last words')"
        made = supervisor(owner, python(source))
        await until(lambda: owner.links and "[" in owner.links[0].peer)
        await made.stop(seconds_max=5)
        assert owner.handlers[0].taken == b"last words"
        assert "code 0" in owner.handlers[0].lost_for[0]

    run(check())


def test_a_program_that_ends_is_started_again_ever_later(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        loop = asyncio.get_running_loop()
        starts: list[float] = []
        owner.new_handler = lambda link: (starts.append(loop.time()), Keeper(link))[1]
        made = supervisor(
            owner,
            Program("short", ("/bin/true",)),
            restart_seconds_min=0.05,
            restart_seconds_max=0.2,
        )
        await until(lambda: len(starts) >= 5)
        await made.stop(seconds_max=1)
        pauses = [after - before for before, after in itertools.pairwise(starts)]
        for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.2), strict=False):
            assert pause >= least * 0.99
        assert made.restarts == len(starts) - 1
        assert all(len(handler.lost_for) == 1 for handler in owner.handlers)
        assert not owner.links

    run(check())


def test_a_program_that_cannot_be_started_is_tried_again(run: Run, tmp_path: Path) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        script = tmp_path / "late"
        with capture_logs() as logs:
            made = supervisor(owner, Program("late", (str(script),)), restart_seconds_max=0.02)
            await until(lambda: len(owner.handlers) >= 2)
        assert logs[0].pop("connection") > 0
        assert logs[0] == {"event": "program cannot be started", "log_level": "warning",
                           "program": "late", "reason": "no such file or directory"}  # fmt: skip
        ready = tmp_path / "ready"
        ready.write_text("#!/bin/sh\nexec cat\n")
        ready.chmod(0o755)
        ready.rename(script)
        await until(lambda: owner.links and "[" in owner.links[0].peer)
        await made.stop(seconds_max=5)
        assert not owner.links
        assert all(len(handler.lost_for) == 1 for handler in owner.handlers)

    run(check())


def test_a_program_that_is_not_let_in_is_tried_again(run: Run) -> None:
    class Full(Programs):
        turned_away = 0

        def opened(self, link: Any, *rest: Any) -> Any:
            if self.turned_away < 2:
                self.turned_away += 1
                raise BrokerFull(0)
            return super().opened(link, *rest)

    async def check() -> None:
        owner = Full(Keeper)
        made = supervisor(owner, python(ECHO))
        await until(lambda: owner.links)
        assert owner.turned_away == 2
        await made.stop(seconds_max=5)
        assert not owner.links

    run(check())


def test_a_program_that_heeds_no_end_of_input_is_terminated(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python(BY_SIGNAL))
        await until(lambda: owner.handlers and owner.handlers[0].taken == b"r")
        await made.stop(seconds_max=0.4)
        assert owner.handlers[0].taken == b"rt"
        assert "code 0" in owner.handlers[0].lost_for[0]

    run(check())


def test_a_program_that_heeds_nothing_is_killed_with_its_children(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = f"import os, subprocess, sys\nchild = subprocess.Popen(['sleep', '60'])\nos.write(1, b'%d ' % child.pid)\n{DEAF}"
        made = supervisor(owner, python(source))
        await until(lambda: owner.handlers and owner.handlers[0].taken.endswith(b" r"))
        pid, child = pid_of(owner.links[0]), int(owner.handlers[0].taken.split()[0])
        assert alive(pid)
        assert alive(child)
        started = asyncio.get_running_loop().time()
        await made.stop(seconds_max=0.4)
        assert asyncio.get_running_loop().time() - started < 3
        assert "code -9" in owner.handlers[0].lost_for[0]
        await until(lambda: not alive(pid) and not alive(child))

    run(check())


def test_a_child_that_keeps_the_pipes_does_not_keep_the_session(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os, subprocess\nchild = subprocess.Popen(['sleep', '5'])\nos.write(1, b'%d' % child.pid)"
        made = supervisor(owner, python(source), restart_seconds_min=20)
        await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        child = int(owner.handlers[0].taken)
        assert alive(child)
        os.kill(child, 9)
        await made.stop(seconds_max=1)

    run(check())


def test_a_program_that_closes_its_output_is_stopped(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os, sys; os.close(1); sys.stdin.buffer.read()"
        made = supervisor(owner, python(source), restart_seconds_min=20)
        await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        await made.stop(seconds_max=1)

    run(check())


def test_a_program_that_closes_its_output_gets_what_it_is_owed(run: Run, tmp_path: Path) -> None:
    class Owing(Keeper):
        def ended(self) -> None:
            asyncio.get_running_loop().call_later(0.05, self.pay)

        def pay(self) -> None:
            self.link.write(b"owed")
            self.link.close()

    async def check() -> None:
        owner = Programs(Owing)
        got = tmp_path / "got"
        source = (
            "import os, sys; os.write(1, b'last'); os.close(1);"
            f"open({str(got)!r}, 'wb').write(sys.stdin.buffer.read())"
        )
        made = supervisor(owner, python(source), restart_seconds_min=20)
        await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        assert bytes(owner.handlers[0].taken) == b"last"
        assert got.read_bytes() == b"owed"
        await made.stop(seconds_max=1)

    run(check())


def test_standard_error_is_logged_line_by_line(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import sys; sys.stderr.write('one\\ntwo\\n\\n' + 'x' * 5000 + '\\nlast'); sys.stderr.flush(); sys.stdin.buffer.read()"
        with capture_logs() as logs:
            made = supervisor(owner, python(source, "talker"))
            await until(lambda: sum("standard error" in entry["event"] for entry in logs) >= 3)
            await made.stop(seconds_max=5)
        said = [entry for entry in logs if "standard error" in entry["event"]]
        assert [entry["line"] for entry in said if set(entry["line"]) != {"x"}] == [
            "one",
            "two",
            "last",
        ]
        assert all(len(entry["line"]) <= 4096 for entry in said)
        assert all(entry["program"].startswith("stdio:talker[") for entry in said)

    run(check())


def test_a_handler_that_breaks_kills_its_program_alone(run: Run) -> None:
    async def check() -> None:
        bad, good = Programs(Broken), Programs(Keeper)
        breaking = supervisor(
            bad, python("import os; os.write(1, b'x'); os.read(0, 1)"), restart_seconds_min=20
        )
        working = supervisor(good, python(ECHO))
        await until(lambda: bad.handlers and bad.handlers[0].lost_for)
        assert len(bad.failures) == 1
        good.links[0].write(b"fine")
        await until(lambda: good.handlers[0].taken == b"fine")
        await asyncio.gather(breaking.stop(seconds_max=1), working.stop(seconds_max=1))
        assert not bad.links
        assert not good.links

    run(check())


def test_a_handler_that_breaks_at_the_end_of_output_is_reported(run: Run) -> None:
    class BrokenEnd(Keeper):
        def ended(self) -> None:
            raise RuntimeError("an end too many")

    async def check() -> None:
        owner = Programs(BrokenEnd)
        source = "import os, signal; os.close(1); signal.pause()"
        made = supervisor(owner, python(source), restart_seconds_min=20)
        await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        assert [str(each) for each in owner.failures] == ["an end too many"]
        assert "code -9" in owner.handlers[0].lost_for[0]
        await made.stop(seconds_max=1)

    run(check())


def test_a_program_that_has_exited_is_not_killed(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python("import os; os.read(0, 1)"), restart_seconds_min=20)
        await until(lambda: owner.links)
        link = owner.links[0]
        link.close()
        await until(lambda: owner.handlers[0].lost_for)
        link.abort()  # another process group may have its number by now
        await made.stop(seconds_max=1)

    run(check())


def test_the_pipes_of_a_program_that_exits_at_once_are_closed(run: Run) -> None:
    def slow_handler(link: Any) -> Keeper:
        asyncio.get_running_loop().call_soon(time.sleep, 0.2)  # the program exits meanwhile
        return Keeper(link)

    async def check() -> None:
        owner = Programs(slow_handler)
        before = pipes()
        # Its child keeps standard input and standard error.
        program = Program("child", ("sh", "-c", "sleep 4 >/dev/null <&0 & exit"))
        made = supervisor(owner, program, restart_seconds_min=20)
        await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        await until(lambda: pipes() <= before, 2)
        await made.stop(seconds_max=1)

    run(check())


def test_while_paused_nothing_is_taken_and_the_program_waits(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os\nwhile True: os.write(1, bytes(65536))"
        made = supervisor(owner, python(source))
        await until(lambda: owner.handlers and len(owner.handlers[0].taken) > 1_000_000)
        link, handler = owner.links[0], owner.handlers[0]
        link.pause()
        taken = len(handler.taken)
        await asyncio.sleep(0.1)
        assert len(handler.taken) == taken
        link.resume()
        await until(lambda: len(handler.taken) > taken + 1_000_000)
        await made.stop(seconds_max=0.4)

    run(check())


def test_a_program_that_does_not_read_congests_and_drains(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: None); os.write(1, b'r'); signal.pause(); sys.stdin.buffer.read()"
        made = supervisor(owner, python(source))
        await until(lambda: owner.handlers and owner.handlers[0].taken)
        link, handler = owner.links[0], owner.handlers[0]
        link.write(bytes(3_000_000))
        assert link.congested
        assert link.buffered > 2_000_000
        while not handler.drained_count:  # the signal may come before the program waits for it
            os.kill(pid_of(link), 10)
            await asyncio.sleep(0.02)
        assert not link.congested
        await made.stop(seconds_max=5)

    run(check())


@pytest.mark.parametrize("when", ["at once", "while it pauses"])
def test_a_stop_is_quick_when_nothing_runs(run: Run, when: str) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, Program("short", ("/bin/true",)), restart_seconds_min=20)
        if when == "while it pauses":
            await until(lambda: owner.handlers and owner.handlers[0].lost_for)
        started = asyncio.get_running_loop().time()
        await made.stop(seconds_max=5)
        assert asyncio.get_running_loop().time() - started < 3
        assert not owner.links

    run(check())


def test_of_a_paused_program_nothing_is_read(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python(ECHO))
        await until(lambda: owner.links and owner.links[0]._outputs)
        link = owner.links[0]
        link.pause()
        link.pause()
        link.write(b"x" * 1000)
        await asyncio.sleep(0.2)
        assert owner.handlers[0].taken == b""
        assert link._input.waiting_bytes == 0, "the pipe holds it"
        link.resume()
        assert owner.handlers[0].taken == b""
        link.resume()
        await until(lambda: owner.handlers[0].taken == b"x" * 1000)
        await made.stop(seconds_max=1)

    run(check())


def test_the_pipes_of_a_program_whose_child_keeps_them_are_closed(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        before = pipes()
        program = Program("child", ("sh", "-c", "exec 3<&0; sleep 4 <&3 >/dev/null & read line"))
        made = supervisor(owner, program, restart_seconds_min=20)
        await until(lambda: owner.links and owner.links[0]._stdin)
        owner.links[0].write(b"exit\n")
        await until(lambda: owner.handlers[0].lost_for)
        await until(lambda: pipes() <= before, 2)
        await made.stop(seconds_max=1)

    run(check())


def test_a_line_of_standard_error_is_logged_when_it_is_whole(run: Run) -> None:
    async def check() -> None:
        owner = Programs(Keeper)
        source = "import os; os.write(2, b'first, '); os.write(1, b'x'); os.read(0, 1); "
        source += "os.write(2, b'second\\nthird')"
        with capture_logs() as logs:
            made = supervisor(owner, python(source), restart_seconds_min=20)
            await until(lambda: owner.handlers and owner.handlers[0].taken)
            await asyncio.sleep(0.05)
            owner.links[0].write(b"x")
            await until(lambda: owner.handlers[0].lost_for)
            await made.stop(seconds_max=1)
        lines = [each["line"] for each in logs if "standard error" in each["event"]]
        assert lines == ["first, second", "third"]

    run(check())


def test_a_program_counts_as_moving_as_time_passes(run: Run) -> None:
    class Time:
        now = 1000.0

        def time(self) -> float:
            return self.now

    async def check() -> None:
        owner = Programs(Keeper)
        made = supervisor(owner, python(ECHO))
        await until(lambda: owner.links and owner.links[0]._stdin)
        link, clock = owner.links[0], Time()
        loop, link._loop = link._loop, clock
        before = link.measure()
        clock.now += 3
        assert link.measure() == before + 3 * MEMORY_BLOCK_BYTES
        link._loop = loop
        await made.stop(seconds_max=1)

    run(check())


def test_a_program_that_ends_returns_its_memory(run: Run) -> None:
    class Budgeted(Programs):
        memory = MemoryBudget(1 << 30)

        def opened(self, link: Any, *rest: Any) -> Any:
            link.account = self.memory.open("")
            return super().opened(link, *rest)

    async def check() -> None:
        owner = Budgeted(Keeper)
        made = supervisor(owner, python("import os; os.read(0, 1)"), restart_seconds_min=20)
        await until(lambda: owner.links and owner.links[0]._stdin)
        owner.links[0].measure()
        assert owner.memory.left() != {}
        await made.stop(seconds_max=1)
        await until(lambda: not owner.links)
        assert owner.memory.left() == {}

    run(check())
