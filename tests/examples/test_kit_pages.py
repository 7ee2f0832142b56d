"""The pages on installing, upgrading, backups, sizing and incidents: their commands, names and links."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import penstock
from penstock.cli.main import command_line
from penstock.storage.arrow.format.index_file import INDEX_FORMAT
from penstock.storage.arrow.format.segment import FORMAT
from penstock.storage.options import LogOptions, TierOptions
from tests.support.commands import Commands
from tests.support.live import LiveBroker
from tests.support.running import environment
from tests.support.served import until

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    name: (DOCS / name).read_text()
    for name in ("install.md", "upgrade.md", "backup.md", "sizing.md", "incidents.md")
}
UNIT = (ROOT / "deploy" / "systemd" / "penstock.service").read_text()
SMALL = LogOptions(segment_bytes_max=65_536)
COPIES_MAX = 5


def console(page: str) -> list[list[str]]:
    """The commands of each block, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in blocks
    ]


def shell(command: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-ec", command], cwd=folder, env=environment(PATH=path),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


# --- Backup and restore ---------------------------------------------------------------------------


class Load:
    """A client that publishes until it is stopped; `acknowledged` counts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0

    def _run(self) -> None:
        with penstock.connect_sync(self._url, protocol="lamamq") as client:
            while not self._stop.is_set():
                start = self.acknowledged
                values = [b"%200d" % number for number in range(start, start + 100)]
                client.publish_many("backup/t", values)  # returns when all are acknowledged
                self.acknowledged += 100

    @contextmanager
    def running(self) -> Iterator["Load"]:
        self._thread.start()
        try:
            until(lambda: self.acknowledged >= 2_000, "messages", seconds_max=60)
            yield self
        finally:
            self._stop.set()
            self._thread.join(60)


def values_in(folder: Path) -> list[int]:
    with LiveBroker(data=folder) as broker:
        url = "tcp://{}:{}".format(*broker.address)
        with penstock.connect_sync(url, protocol="fleximq") as client:
            count = broker.server.storage.status().end
            with client.subscribe("backup/t@earliest", timeout=20) as messages:
                return [int(next(messages).value) for _ in range(count)]


def test_a_copy_under_load_verifies_and_has_what_was_acknowledged(tmp_path: Path) -> None:
    backup, restore, _ = console("backup.md")
    assert backup[0].startswith("cp ")
    assert restore.pop() == "penstock serve"
    data = tmp_path / "penstock-data"
    with LiveBroker(data=data, log_options=SMALL) as broker:
        url = "tcp://{}:{}".format(*broker.address)
        with Load(url).running() as load:
            before = load.acknowledged
            copy, verify = backup
            for left in reversed(range(COPIES_MAX)):
                try:
                    shell(copy, tmp_path)
                    break
                except AssertionError as error:  # as the page says: copy again
                    if not left or ".new" not in str(error):
                        raise
                    shutil.rmtree(tmp_path / "backup")
            shell(verify, tmp_path)
            assert load.acknowledged > before, "nothing was published meanwhile"
    assert len(list((tmp_path / "backup").rglob("*.arrows"))) > 1
    for command in restore:
        shell(command, tmp_path)
    found = values_in(data)
    assert found == list(range(len(found)))
    assert before <= len(found) <= load.acknowledged


def test_a_folder_is_restored_from_the_object_store(tmp_path: Path, commands: Commands) -> None:
    lines = console("backup.md")[2]
    url = f"file://{tmp_path}/store"
    options = LogOptions(segment_bytes_max=1, tier=TierOptions(url))
    with LiveBroker(data=tmp_path / "penstock-data", log_options=options) as broker:
        with penstock.connect_sync("tcp://{}:{}".format(*broker.address), protocol="lamamq") as one:
            for number in range(4):
                one.publish("backup/t", b"%d" % number)
        status = broker.server.broker.reader.status
        until(lambda: status().tier.segments == 3, "uploads", seconds_max=60)
    shutil.rmtree(tmp_path / "penstock-data")
    for line in lines:
        said = line.replace("restored", f"{tmp_path}/new").replace("s3://bucket/penstock", url)
        done = commands.run(*shlex.split(said)[1:])
        assert done.code == 0, done
    assert values_in(tmp_path / "new") == [0, 1, 2]


def test_a_segment_is_restored_from_a_backup(tmp_path: Path, commands: Commands) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with (
        LiveBroker(data=data, log_options=SMALL) as broker,
        Load("tcp://{}:{}".format(*broker.address)).running() as load,
    ):
        pass
    shutil.copytree(data, backup)
    first = min(data.rglob("*.arrows"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    assert commands.run("log", "verify", "--data", data).code == 1
    shutil.copy(min(backup.rglob("*.arrows")), first)
    first.with_suffix(".damage.json").unlink(missing_ok=True)
    assert commands.run("log", "verify", "--data", data).code == 0
    assert values_in(data) == list(range(load.acknowledged))


# --- Install --------------------------------------------------------------------------------------


def test_the_wheel_is_installed_with_locked_packages() -> None:
    wheel, _ = console("install.md")
    make, packages, own, shown = map(shlex.split, wheel)
    assert make[:3] == ["python3", "-m", "venv"]
    assert {"--require-hashes", "--only-binary=:all:"} < set(packages)
    assert (ROOT / packages[-1]).exists()
    assert own[-1] == "penstock-broker"
    assert shown == [f"{make[-1]}/bin/penstock", "--version"]
    # tests/tools/test_wheel.py installs a wheel; `make wheel ARGS=--install` does it with all packages.
    assert f"ExecStart={shown[0]} serve" in UNIT


def test_files_of_the_unit_are_installed_where_it_looks(tmp_path: Path) -> None:
    _, lines = console("install.md")
    placed = set()
    for line in lines:
        words = shlex.split(line)
        if words[0] == "install":
            placed.add(words[-1])
            words[-1] = str(tmp_path) + words[-1]
            subprocess.run(words, check=True, cwd=ROOT)  # noqa: S603
    (config,) = (each for each in placed if each.endswith(".toml"))
    assert f"--config {config}" in UNIT
    assert any(each.startswith("/etc/systemd/system/") for each in placed)
    assert len(placed) == 3


# --- Upgrade --------------------------------------------------------------------------------------


def test_every_format_has_a_row() -> None:
    for part, newest in (("segments", FORMAT), ("indexes", INDEX_FORMAT)):
        found = re.findall(rf"^\| {part} \| (\d+) \|", PAGES["upgrade.md"], re.MULTILINE)
        assert [int(each) for each in found] == list(range(1, newest + 1))


# --- Names ----------------------------------------------------------------------------------------


def test_every_alert_has_a_section_and_no_other_has() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    sections = re.findall(r"^### (\w+)$", PAGES["incidents.md"], re.MULTILINE)
    assert sections == [rule["alert"] for rule in group["rules"]]


@pytest.mark.parametrize("page", PAGES)
def test_commands_settings_metrics_and_files_exist(page: str) -> None:
    text = PAGES[page]
    group = command_line()
    for name, second in re.findall(r"`penstock ([a-z]+)(?: ([a-z]+))?", text):
        command = group.commands[name]
        if hasattr(command, "commands") and not hasattr(command, "default"):
            assert not second or second in command.commands, (name, second)
    configuration = (DOCS / "configuration.md").read_text() + (DOCS / "pipeline.md").read_text()
    for table, key in re.findall(r"`(\w+)\.(\w+)`", text):
        if key not in {"toml", "json", "journal", "md"}:
            assert f"`{key}`" in configuration or f"{table}.{key}" in configuration, (table, key)
    for metric in re.findall(r"`(penstock_\w+)`", text):
        assert f"`{metric}`" in (DOCS / "http.md").read_text(), metric
    for path in re.findall(r"`((?:deploy|requirements|tests|tools)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert f"\n{target}:" in makefile, target


def test_events_that_the_runbook_names_exist() -> None:
    events = (DOCS / "operating.md").read_text()
    named = re.findall(r"events? `([a-z ]+)`", PAGES["incidents.md"])
    assert len(named) > 5
    for each in named:
        assert f"`{each}`" in events, each


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        path, _, anchor = target.partition("#")
        found = (DOCS / path).resolve() if path else DOCS / page
        assert found.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, target
