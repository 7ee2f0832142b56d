"""Apache Kafka to try and to test with: fetched once, started as processes of its own.

    java -jar ivy ──Maven Central──▶ ~/.cache/penstock/kafka-VERSION/*.jar ──▶ brokers in KRaft mode

`make kafka` runs it. Ivy is part of PySpark; `mvn` is used where PySpark is not installed. Both
know where Maven Central is, or which mirror replaces it.
"""

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

__all__ = [
    "LIKE_KAFKA",
    "QUICK",
    "VERSION",
    "KafkaBroker",
    "KafkaFailed",
    "KafkaMissing",
    "fetch",
    "free_ports",
    "start_brokers",
]

VERSION: Final = "4.1.0"
SCALA: Final = "2.13"

FIRST_PORT: Final = 9092
"""Port of the first broker of `make kafka`; the others follow."""
CONTROLLER_PORTS_AFTER: Final = 10_000
"""Distance of the controllers' ports of `make kafka`."""
FETCH_SECONDS_MAX: Final = 600.0
START_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 10.0
FREEZE_SECONDS_MAX: Final = 10.0
QUICK: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java with which Kafka starts soon and takes little memory, but is slow."""
LIKE_KAFKA: Final = (
    "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""Options of Kafka's own start script, for measurements."""
"""Java heap of a broker; the whole process stays below 1 GiB."""

_CLUSTER_ID: Final = "cGVuc3RvY2sta2Fma2EtMQ"
_POM: Final = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>penstock</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka_{SCALA}</artifactId><version>{VERSION}</version></dependency></dependencies>
</project>"""


class KafkaMissing(Exception):
    """Kafka cannot be had on this machine; the text says why. Tests that need it are skipped."""


class KafkaFailed(Exception):
    """Kafka is there, but does not run; the text says why. Tests that need it fail."""


# --- Fetching -------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder for the jars of this version."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / f"kafka-{VERSION}"


def fetch() -> Path:
    """Return the folder with Kafka's jars, fetching them if it is missing; raise KafkaMissing."""
    folder = cache_folder()
    if folder.is_dir():
        return folder
    java = shutil.which("java")
    if java is None:
        raise KafkaMissing("Java is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        jars = Path(temporary) / "jars"
        commands = [*_ivy(java, Path(temporary), jars), *_maven(Path(temporary), jars)]
        if not commands:
            raise KafkaMissing("neither PySpark nor mvn is installed to fetch it")
        reason = ""
        for command in commands:
            reason = _run(command)
            if not reason and any(jars.glob(f"kafka_{SCALA}-*.jar")):
                with contextlib.suppress(OSError):  # another process was faster
                    jars.rename(folder)
                return folder
        raise KafkaMissing(f"it could not be fetched from Maven Central: {reason}")


def _ivy(java: str, temporary: Path, jars: Path) -> Iterator[list[str]]:
    """Yield the command that fetches with PySpark's Ivy, if PySpark is installed."""
    spark = importlib.util.find_spec("pyspark")
    for place in (spark and spark.submodule_search_locations) or ():
        for ivy in sorted(Path(place, "jars").glob("ivy-*.jar")):
            yield [
                java, "-jar", str(ivy), "-cache", str(temporary / "ivy"), "-confs", "default",
                "-dependency", "org.apache.kafka", f"kafka_{SCALA}", VERSION,
                "-types", "jar", "bundle",
                "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
            ]  # fmt: skip


def _maven(temporary: Path, jars: Path) -> Iterator[list[str]]:
    """Yield the command that fetches with Maven, if it is installed."""
    maven = shutil.which("mvn")
    if maven is not None:
        pom = temporary / "pom.xml"
        pom.write_text(_POM)
        yield [
            maven, "--quiet", "--batch-mode", "--file", str(pom),
            "dependency:copy-dependencies", f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
        ]  # fmt: skip


def _run(command: Sequence[str]) -> str:
    """Run a command; return the last line of its output if it fails."""
    try:
        subprocess.run(  # noqa: S603
            command,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {FETCH_SECONDS_MAX:.0f} seconds"
    except subprocess.CalledProcessError as error:
        lines = error.stdout.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


# --- Brokers --------------------------------------------------------------------------------------


class Ports(NamedTuple):
    """The ports of a broker: for clients and other brokers, and for controllers."""

    clients: int
    controllers: int


def free_ports(count: int) -> list[Ports]:
    """Return ports that are free at the moment, for `count` brokers."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(2 * count):
            each = stack.enter_context(socket.socket())
            each.bind(("127.0.0.1", 0))
            found.append(each.getsockname()[1])
    return [Ports(*found[2 * number : 2 * number + 2]) for number in range(count)]


class KafkaBroker:
    """One broker and controller of a cluster on this machine; its data is in `folder`."""

    def __init__(
        self,
        number: int,
        folder: Path,
        ports: Sequence[Ports],
        *,
        host: str = "127.0.0.1",
        command: Sequence[str] = (),
        settings: Mapping[str, object] = MappingProxyType({}),
        java: Sequence[str] = QUICK,
    ) -> None:
        """Write its settings; `number` counts from 1, `ports` are those of all brokers.

        `command` is put before that of the process, to start it in another network. `settings` of
        Kafka are added to those that it has.
        """
        self.number = number
        self.host = host
        self._command = list(command)
        self._java = java
        self.folder = folder
        self.ports = ports[number - 1]
        self.process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id={number}\n"
        )
        copies = min(len(ports), 3)
        all_settings = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": ",".join(
                f"{each}@{host}:{place.controllers}" for each, place in enumerate(ports, 1)
            ),
            "listeners": f"CLIENTS://{host}:{self.ports.clients},"
            f"CONTROLLERS://{host}:{self.ports.controllers}",
            "advertised.listeners": f"CLIENTS://{host}:{self.ports.clients}",
            "inter.broker.listener.name": "CLIENTS",
            "controller.listener.names": "CONTROLLERS",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT",
            "log.dirs": data,
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": max(copies - 1, 1),
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": max(copies - 1, 1),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            "group.initial.rebalance.delay.ms": 0,
            **settings,
        }
        lines = "".join(f"{key}={value}\n" for key, value in all_settings.items())
        (folder / "server.properties").write_text(lines)

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{self.host}:{self.ports.clients}"

    def start(self) -> None:
        """Start the process; raise KafkaMissing. It ends with the process that started it."""
        java = shutil.which("java")
        jars = fetch()
        if java is None:
            raise KafkaMissing("Java is not installed")
        setpriv = shutil.which("setpriv")
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603
                [
                    *self._command,
                    *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
                    java, *self._java, "-cp", f"{jars}/*",
                    "kafka.Kafka", str(self.folder / "server.properties"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End the process, and wait for its end."""
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the process at once: what a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self, *, frozen: bool) -> None:
        """Stop the process without ending it, or let it go on.

        A thread that waits for a processor stops when it gets one, so this waits for all of them.
        """
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)
        deadline = time.monotonic() + FREEZE_SECONDS_MAX
        while frozen and not _is_stopped(self.process.pid) and time.monotonic() < deadline:
            time.sleep(0.001)


def _is_stopped(process: int) -> bool:
    """Return whether all threads of a process are stopped."""
    states = (path.read_text() for path in Path(f"/proc/{process}/task").glob("*/stat"))
    return all(state.rpartition(")")[2].split()[0] in "Tt" for state in states)


@contextlib.contextmanager
def start_brokers(
    folder: Path,
    ports: Sequence[Ports],
    settings: Mapping[str, object] = MappingProxyType({}),
    *,
    java: Sequence[str] = QUICK,
) -> Iterator[list[KafkaBroker]]:
    """Start a cluster, wait until it answers, and end it; raise KafkaMissing or KafkaFailed."""
    brokers = [
        KafkaBroker(number, folder / str(number), ports, settings=settings, java=java)
        for number in range(1, len(ports) + 1)
    ]
    try:
        for broker in brokers:
            broker.start()
        _wait(brokers)
        yield brokers
    finally:
        for broker in brokers:
            broker.kill()  # nothing is read from its data again


def _wait(brokers: Sequence[KafkaBroker]) -> None:
    """Wait until all brokers are members of the cluster; raise KafkaFailed."""
    client = AdminClient(
        {"bootstrap.servers": ",".join(each.address for each in brokers), "log_level": 0}
    )
    ends = time.monotonic() + START_SECONDS_MAX
    while True:
        with contextlib.suppress(KafkaException):
            if len(client.list_topics(timeout=1.0).brokers) == len(brokers):
                return
        for broker in brokers:
            if broker.process is not None and broker.process.poll() is not None:
                output = (broker.folder / "output.txt").read_text(errors="replace")
                raise KafkaFailed(f"a broker ended while starting: {output[-500:]}")
        if time.monotonic() > ends:
            raise KafkaFailed(f"it did not start in {START_SECONDS_MAX:.0f} seconds")
        time.sleep(0.05)


def main(arguments: Sequence[str]) -> None:
    """Run brokers until Ctrl+C."""
    parser = argparse.ArgumentParser(prog="make kafka", description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ports = [
        Ports(FIRST_PORT + number, FIRST_PORT + number + CONTROLLER_PORTS_AFTER)
        for number in range(options.brokers)
    ]
    try:
        if not cache_folder().is_dir():
            print(f"Fetching Apache Kafka {VERSION} from Maven Central, once.", flush=True)
        fetch()
        with (
            tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder,
            start_brokers(Path(folder), ports) as brokers,
        ):
            addresses = ",".join(broker.address for broker in brokers)
            print(f"Apache Kafka {VERSION} at {addresses}; its data is in {folder}.")
            print(f"penstock serve --storage 'kafka://{addresses}/penstock?node=0'")
            print("Ctrl+C ends it and removes its data.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (KafkaMissing, KafkaFailed) as error:
        sys.exit(f"make kafka: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
