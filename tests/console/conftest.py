"""A broker, its console as a process of its own, and one browser for all tests of the folder."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.gateway.options import GatewayOptions
from penstock.server.config import BasicConfig, Config, PrincipalConfig, RuleConfig
from penstock.server.credentials import Authenticator, hash_key, hash_password
from tests.support.http_live import HttpBroker

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS_MAX = 120.0
PASSWORD = "right"
TOKEN = "open sesame"
ADMINISTERS = RuleConfig(allow=("administer",), topics=("#",))
CONFIG = Config(
    principal=(
        PrincipalConfig(
            name="operator",
            default="allow",
            token_sha256=hash_key(TOKEN.encode()),
            rule=(ADMINISTERS,),
        ),
        PrincipalConfig(
            name="reader",
            basic=BasicConfig(username="reader", password_hash=hash_password(PASSWORD)),
            rule=(RuleConfig(allow=("subscribe",), topics=("plant/#",)),),
        ),
    )
)


class Console:
    """`penstock console` as a process; `url` is where it is."""

    def __init__(self, url: str, folder: Path, *options: str, token: str = "") -> None:
        """`url` is the HTTP address of the broker."""
        self._output = folder / "console.txt"
        words = [sys.executable, "-m", "penstock.cli", "console", "--listen", "127.0.0.1:0"]
        words += ["--url", url, *options]
        plain = {name: text for name, text in os.environ.items() if "PENSTOCK" not in name}
        if token:
            plain["PENSTOCK_TOKEN"] = token
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603
                words, stdout=out, stderr=subprocess.STDOUT, env=plain
            )
        try:
            until(lambda: " is at http" in self.output or self._process.poll() is not None)
        except AssertionError:
            self._process.kill()
            raise
        found = re.search(r"is at (http\S+)/", self.output)
        assert found is not None, self.output
        self.url = found[1]

    @property
    def output(self) -> str:
        return self._output.read_text()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(SECONDS_MAX)


def until(condition: Callable[[], object], *, seconds_max: float = SECONDS_MAX) -> None:
    """Wait for a condition; it must come true in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def is_ready(broker: HttpBroker) -> bool:
    """Whether it answers; at its first request a broker loads its HTTP libraries."""
    try:
        return broker.get("/readyz").status == 200
    except TimeoutError:
        return False


def fill_warehouse(folder: Path) -> None:
    """Write tables with the columns that the console reads of a pipeline's."""
    now = datetime.now(UTC)
    letters = {
        "schema": ["temps"],
        "error": ["celsius: is missing"],
        "value": [b'{"fahrenheit": 70}'],
        "topic": ["brewery/kettle/temp"],
        "message_id": ["5e1f3a90-11c2-8000-8000-00000000000c"],
        "timestamp": [now],
    }
    for name, columns in {
        "bronze": {"topic": ["a", "a", "b"], "value": [b"1", b"2", b"3"]},
        "silver/temps": {"topic": ["a"] * 40, "celsius": [20.0 + number for number in range(40)]},
        "gold/traffic": {"topic": ["a", "b", "c"], "messages": [5, 7, 3]},
        "dead_letters": letters,
    }.items():
        (folder / name).mkdir(parents=True)
        deltalake.write_deltalake(str(folder / name), pa.table(columns))


@pytest.fixture(scope="module")  # an open browser has an event loop: other modules have theirs
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    once = BrokerSettings(groups_by_name={"billing": GroupSettings(deliveries_max=1)})
    data = tmp_path_factory.mktemp("data")
    with HttpBroker(data=data, web_options=options, settings=once) as live:
        until(lambda: is_ready(live))
        yield live
    authenticator.close()


@pytest.fixture(scope="module")  # an open browser has an event loop: other modules have theirs
def console(broker: HttpBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    fill_warehouse(folder / "warehouse")
    running = Console(broker.url, folder, "--warehouse", str(folder / "warehouse"), token=TOKEN)
    yield running
    assert running.stop() == 0, running.output


@pytest.fixture(scope="module")  # an open browser has an event loop: other modules have theirs
def browser() -> Iterator["playwright.Browser"]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"{' or '.join(BROWSERS)} is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()
