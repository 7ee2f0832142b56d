"""Attack a broker while honest clients use it: `python -m tests.attack.run [--seconds N] …`.

A broker with all its listeners runs in a process of its own, honest clients of all protocols in a
second one, attackers in a third. The honest clients are measured without attackers first, then with
them. At the end:

- every acknowledged message is in the log once, and reached every subscriber of its topic;
- the honest clients' p99 is at most twice what it was without attackers;
- the broker's memory stayed within its budget, and it is the process that was started;
- no attacker saw a byte of an honest client;
- the broker stops in time on SIGTERM, and its log is whole.

The report says how long the broker's event loop ran while it was attacked, and how long it was ready
and waited for a processor. Latency that comes from such waits is not the broker's choice of whom it
serves: other programs on the machine, its own threads and processes, and the clients cause it.

Between the two, the same attackers attack a second broker on the same machine. What the honest
clients of the first one feel then is the load of the machine alone: no broker can be better unless
it makes the attackers' work cheaper, or leaves processors idle. With `--own-processor` the broker
has a processor, and all clients have another one, as if they were on other machines. Neither is
judged.

Exit codes: 0 all of this holds, 1 something does not.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.credentials import hash_password
from tests.attack.attacker import Target
from tests.attack.honest import LAYOUT, MARK, TOPICS
from tests.crash.loads import segments
from tests.support.running import Running, environment, run

MIB: Final = 1 << 20
TLS: Final = Path(__file__).parents[1] / "support" / "tls"
BUDGET_BYTES: Final = 512 * MIB
TOKEN: Final = "the attackers' own token"  # noqa: S105
LIMITED_TOKEN: Final = "the limited attackers' token"  # noqa: S105
CALM_SHARE: Final = 0.25
"""The part of the time in which there are no attackers."""
ELSEWHERE_SHARE: Final = 0.1
ELSEWHERE_SECONDS_MIN: Final = 20.0
"""The time in which attackers attack another broker, as a part of the whole, which it adds to."""
OVERHEAD_BYTES: Final = 100 * MIB
"""What the process may take beside its budget, as docs/operating.md says."""
LATENCY_RATIO_MAX: Final = 2.0
LATENCY_FLOOR_MS: Final = 10.0
"""A p99 below this is good enough, whatever it was before."""
IDLE_RUNS: Final = 10
"""An attack that does nothing in so many runs is broken; in fewer, the broker may have cut it."""
STOP_SECONDS_MAX: Final = 5.0
SAMPLE_SECONDS: Final = 0.25


def configuration(folder: Path) -> str:
    channels = "\n".join(f'{number} = "honest/{number}"' for number in range(TOPICS))
    return f"""
[data]
folder = "{folder / "data"}"
[limits]
memory_bytes_max = {BUDGET_BYTES}
stop_seconds_max = {STOP_SECONDS_MAX}
[http]
address = "127.0.0.1:0"
[flight]
address = "127.0.0.1:0"
[herald.channels]
{channels}
[[listener]]
url = "tcp://127.0.0.1:0"
[[listener]]
url = "tls://127.0.0.1:0"
certificate = "{TLS / "localhost.pem"}"
key = "{TLS / "localhost.key"}"
[[listener]]
url = "udp://127.0.0.1:0"
[[principal]]
name = "honest"
networks = ["127.0.0.1/32"]
[[principal.rule]]
allow = ["publish", "subscribe"]
topics = ["honest/#"]
[[principal]]
name = "operator"
basic = {{ username = "honest", password_hash = "{hash_password("not guessed")}" }}
[[principal]]
name = "attacker"
token = "{TOKEN}"
[[principal.rule]]
allow = ["publish", "subscribe", "request", "serve", "group"]
topics = ["attack/#", "service/request/attack/#", "service/serve/attack/#"]
[[principal]]
name = "limited"
token = "{LIMITED_TOKEN}"
quota = {{ connections_max = 5, messages_per_second_max = 100, stored_bytes_max = 1_000_000 }}
[[principal.rule]]
allow = ["publish"]
topics = ["attack/#"]
[anonymous]
[[anonymous.rule]]
allow = ["publish", "subscribe", "request", "serve"]
topics = ["attack/#"]
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds that a thread ran, and seconds that it was ready and waited for a processor."""

    ran: float
    waited: float

    @classmethod
    def of_main_thread(cls, process: int) -> "ProcessorTime":
        """Return the times of a process's main thread since its start."""
        text = Path(f"/proc/{process}/task/{process}/schedstat").read_text()
        ran_ns, waited_ns, _ = map(int, text.split())
        return cls(ran_ns / 1e9, waited_ns / 1e9)

    def __str__(self) -> str:
        return f"ran {self.ran:.1f} s, waited {self.waited:.1f} s for a processor"

    def __sub__(self, before: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(self.ran - before.ran, self.waited - before.waited)


def pin(process: int, processor: int) -> None:
    """Let a process, and all threads and processes that it will start, use one processor."""
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {processor})


class Broker:
    """The broker under attack, and the samples of its memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        path = folder / "penstock.toml"
        path.write_text(configuration(folder))
        path.chmod(0o600)
        self.process = Running("serve", "--config", path)
        lines = [self.process.line()]
        while lines[-1] != "Ready.":
            lines.append(self.process.line())
        self.banner = "\n".join(lines)
        # What it logs is not of interest here, and must not fill the pipe.
        error = self.process.popen.stderr
        assert error is not None
        self.log_lines = 0
        self.last_lines: list[str] = []
        threading.Thread(target=self._read_log, args=(error,), daemon=True).start()
        self.peak_bytes = 0

    def _read_log(self, pipe: Iterator[bytes]) -> None:
        with contextlib.suppress(ValueError):
            for line in pipe:
                self.log_lines += 1
                self.last_lines = [*self.last_lines[-50:], line.decode(errors="replace")]

    def place(self, scheme: str) -> tuple[str, int]:
        found = re.search(rf"{re.escape(scheme)}://127\.0\.0\.1:(\d+)", self.banner)
        assert found, self.banner
        return "127.0.0.1", int(found[1])

    @property
    def target(self) -> Target:
        host, port = self.place("grpc")
        return Target(
            tcp=self.place("tcp"),
            tls=self.place("tls"),
            udp=self.place("udp"),
            http=self.place("http"),
            flight=f"grpc://{host}:{port}",
            token=TOKEN,
            limited_token=LIMITED_TOKEN,
        )

    @property
    def alive(self) -> bool:
        return self.process.popen.poll() is None

    def memory_bytes(self) -> int:
        """Return the resident memory of the process, without pages of files."""
        text = Path(f"/proc/{self.process.popen.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", text)
        return int(found[1]) << 10 if found else 0

    def loop_time(self) -> ProcessorTime:
        """Return the times of the event loop, zero once the process has ended."""
        with contextlib.suppress(OSError, ValueError):
            return ProcessorTime.of_main_thread(self.process.popen.pid)
        return ProcessorTime(0.0, 0.0)

    def watch(self, seconds: float) -> None:
        """Wait, and remember the peak of its memory."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.alive:
            self.peak_bytes = max(self.peak_bytes, self.memory_bytes())
            time.sleep(SAMPLE_SECONDS)

    def stop(self) -> tuple[float, int]:
        """Stop it with SIGTERM; return the seconds it took and its exit code."""
        started = time.monotonic()
        self.process.popen.send_signal(signal.SIGTERM)
        code = self.process.popen.wait(STOP_SECONDS_MAX + 20)
        return time.monotonic() - started, code


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def command(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def of_honest_clients(batch: pa.RecordBatch) -> pa.Array:
    """Return a mask of the rows whose value is one of an honest client."""
    return pc.equal(pc.binary_slice(batch.column("value"), 0, len(MARK)), MARK)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that has told all it has to tell."""
    process.kill()
    process.wait(60)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def messages_in_log(data: Path) -> dict[tuple[int, int], int]:
    """Return how often each message of an honest publisher is in the log."""
    counts: dict[tuple[int, int], int] = {}
    for path in segments(data):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                for value in batch.filter(of_honest_clients(batch)).column("value").to_pylist():
                    publisher, sequence, _ = LAYOUT.unpack_from(value, len(MARK))
                    counts[publisher, sequence] = counts.get((publisher, sequence), 0) + 1
    return counts


def _latency(phase: dict[str, float]) -> str:
    return ", ".join(f"{name} {phase.get(f'{name}_ms')} ms" for name in ("p50", "p99", "max"))


@dataclasses.dataclass(slots=True)
class Outcome:
    """All figures of a run, and what did not hold."""

    honest: dict[str, Any]
    attackers: dict[str, Any]
    base_bytes: int
    peak_bytes: int
    stop_seconds: float
    log_lines: int
    loop_time: ProcessorTime
    """Of the event loop, while it was attacked."""
    load: float
    """Load average of the machine at the end of the attack, over a minute."""
    faults: list[str] = dataclasses.field(default_factory=list)

    def require(self, holds: object, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    def text(self) -> str:
        calm, attacked, elsewhere = (
            self.honest["phases"].get(name, {}) for name in ("calm", "attacked", "elsewhere")
        )
        acts = self.attackers["acts"]
        sent, delivered = self.honest["sent"], self.honest["delivered"]
        lines = [
            f"honest: {sent:,} sent, {delivered:,} delivered, {len(self.honest['failed'])} refused",
            f"latency without attackers: {_latency(calm)}",
            f"latency with attackers:    {_latency(attacked)}",
            *([f"beside an attacked broker: {_latency(elsewhere)}"] if elsewhere else ()),
            f"event loop with attackers: {self.loop_time}; load average {self.load:.1f}",
            f"memory: {self.base_bytes / MIB:.0f} MiB at the start, at most {self.peak_bytes / MIB:.0f}",
            f"stopped in {self.stop_seconds:.1f} s; {self.log_lines:,} lines of log",
            f"attacks ({sum(acts.values()):,} acts):",
        ]
        lines += [
            f"  {name.replace('_', ' '):40} {runs:6,} runs {acts.get(name, 0):10,} acts"
            for name, runs in sorted(self.attackers["runs"].items())
        ]
        lines += [f"FAULT: {fault}" for fault in self.faults] or ["All of it held."]
        return "\n".join(lines)


@contextlib.contextmanager
def attack_elsewhere(
    folder: Path, seconds: float, attackers: int, seed: int, only: Sequence[str]
) -> Iterator[Broker]:
    """Attack a broker that no honest client uses."""
    inside = folder / "elsewhere"
    inside.mkdir()
    broker = Broker(inside)
    with broker.process:
        target = msgspec.json.encode(broker.target).decode()
        enemies = start("tests.attack.attackers", target, seconds, attackers, seed, *only)
        try:
            yield broker
        finally:
            end(enemies)


def attack(
    folder: Path,
    *,
    seconds: float,
    honest: int,
    attackers: int,
    seed: int,
    only: Sequence[str] = (),
    figures: bool = True,
    own_processor: bool = False,
) -> Outcome:
    """Run a broker, honest clients and attackers; return all figures.

    With `only` the attackers do the attacks of these names. Without `figures` latency is not
    judged, nor compared with that beside an attacked broker: a short run beside other work.
    """
    processors = sorted(os.sched_getaffinity(0))
    broker = Broker(folder)
    with broker.process:
        if own_processor:
            pin(broker.process.popen.pid, processors[0])
        base = broker.memory_bytes()
        host, port = broker.place("tcp")
        clients = start("tests.attack.honest", f"tcp://{host}:{port}", honest)
        if own_processor:
            pin(clients.pid, processors[-1])
        try:
            assert answer(clients) == "connected", broker.last_lines
            calm = max(3.0, seconds * CALM_SHARE)
            broker.watch(min(2.0, calm / 2))  # connecting is over
            command(clients, "phase calm")
            broker.watch(calm)
            if figures:
                during = max(ELSEWHERE_SECONDS_MIN, seconds * ELSEWHERE_SHARE)
                with attack_elsewhere(folder, during, attackers, seed, only) as decoy:
                    if own_processor:
                        pin(decoy.process.popen.pid, processors[0])
                    command(clients, "phase elsewhere")
                    broker.watch(during)
                    command(clients, "phase ")
            attacked = seconds - calm
            target = msgspec.json.encode(broker.target).decode()
            enemies = start("tests.attack.attackers", target, attacked, attackers, seed, *only)
            command(clients, "phase attacked")
            before = broker.loop_time()
            broker.watch(attacked)
            loop_time, load = broker.loop_time() - before, os.getloadavg()[0]
            command(clients, "phase ")
            told = json.loads(answer(enemies))
            end(enemies)
            command(clients, "end")
            report = json.loads(answer(clients))
        finally:
            end(clients)
        alive = broker.alive
        took, code = broker.stop() if alive else (0.0, broker.process.popen.returncode)
        outcome = Outcome(
            report, told, base, broker.peak_bytes, took, broker.log_lines, loop_time, load
        )
        outcome.require(
            alive, f"the broker ended with {code}: {''.join(broker.last_lines)[-3000:]}"
        )
        outcome.require(not code, f"the broker's exit code is {code}")
    judge(outcome, broker.data, figures=figures)
    return outcome


def judge(outcome: Outcome, data: Path, *, figures: bool) -> None:
    """Add what does not hold to the faults of an outcome."""
    honest, told = outcome.honest, outcome.attackers
    outcome.require(not honest["failed"], f"honest publishes failed: {honest['failed'][:5]}")
    outcome.require(not honest["missing"], f"{honest['missing']} messages did not arrive")
    outcome.require(not honest["disordered"], f"{honest['disordered']} streams are out of order")
    outcome.require(not told["leaks"], f"attackers saw messages of others: {told['leaks'][:5]}")
    outcome.require(not told["crashes"], f"attacks failed by themselves: {told['crashes'][:5]}")
    tried = [name for name, runs in told["runs"].items() if runs >= IDLE_RUNS]
    idle = [name for name in tried if not told["acts"].get(name)]
    outcome.require(not idle, f"attacks that did nothing: {idle}")
    limit = outcome.base_bytes + BUDGET_BYTES + OVERHEAD_BYTES
    outcome.require(outcome.peak_bytes <= limit, f"{outcome.peak_bytes:,} bytes of memory")
    outcome.require(
        outcome.stop_seconds <= STOP_SECONDS_MAX + 1, f"stopping took {outcome.stop_seconds:.1f} s"
    )
    calm, attacked = (honest["phases"].get(name) for name in ("calm", "attacked"))
    outcome.require(calm and attacked, "honest clients were not measured")
    if calm and attacked and figures:
        allowed = max(LATENCY_FLOOR_MS, LATENCY_RATIO_MAX * calm["p99_ms"])
        outcome.require(attacked["p99_ms"] <= allowed, f"p99 of {attacked['p99_ms']} ms")
    found = messages_in_log(data)
    acknowledged = {
        (int(publisher), sequence)
        for publisher, sequences in honest["accepted"].items()
        for sequence in sequences
    }
    lost = acknowledged - found.keys()
    outcome.require(not lost, f"{len(lost)} acknowledged messages are not in the log")
    outcome.require(max(found.values(), default=1) == 1, "messages are in the log twice")
    verified = run("log", "verify", "--data", data)
    outcome.require(not verified.code, f"the log is damaged: {verified.err}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--honest", type=int, default=200)
    parser.add_argument("--attackers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="only these attacks")
    parser.add_argument(
        "--own-processor", action="store_true", help="one processor for the broker alone"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = attack(
            Path(folder),
            seconds=options.seconds,
            honest=options.honest,
            attackers=options.attackers,
            seed=options.seed,
            only=options.only,
            own_processor=options.own_processor,
        )
    sys.stdout.write(outcome.text() + "\n")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
