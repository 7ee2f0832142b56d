"""The five-minute start is true: every command of docs/start.md is run, and prints what it says.

Ports are others than the page's, and ids and times are compared by their form.
"""

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.running import PENSTOCK, Running, environment
from tests.support.served import free_port, until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "start.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS_MAX = 300.0
HOST = "127.0.0.1"
FORMS = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r" +", " "),
)


def blocks(language: str) -> list[str]:
    return [text for spoken, text in BLOCKS if spoken == language]


def steps() -> list[tuple[list[str], list[str]]]:
    """The arguments of each `penstock` on the page, and the lines that it prints."""
    found = []
    for step in re.split(r"^\$ ", "".join(blocks("console")), flags=re.MULTILINE)[1:]:
        command, *lines = step.splitlines()
        name, *arguments = shlex.split(command)
        assert name == "penstock"
        found.append((arguments, [form(line) for line in lines]))
    return found


def form(text: str) -> str:
    for pattern, name in FORMS:
        text = re.sub(pattern, name, text)
    return text


def subscriptions(http: str) -> list[str]:
    with urllib.request.urlopen(f"{http}/api/subscriptions", timeout=SECONDS_MAX) as answer:  # noqa: S310
        return [each["pattern"] for each in json.load(answer)["subscriptions"]]


@pytest.mark.spark
def test_every_step_prints_what_the_page_says(tmp_path: Path) -> None:
    ports = {usual: free_port() for usual in (7000, 7080, 7090)}
    tcp, http, flight = (f"{HOST}:{port}" for port in ports.values())
    listeners = ", ".join(
        f'{{ url = "{url}" }}' for url in (f"tcp://{tcp}", f"udp://{tcp}", f"ws://{http}/ws")
    )
    serving = {
        "PENSTOCK_LISTENER": f"[{listeners}]",
        "PENSTOCK_FLIGHT__ADDRESS": flight,
        "PENSTOCK_DATA__FOLDER": str(tmp_path / "penstock-data"),
    }
    asking = {"PENSTOCK_URL": f"tcp://{tcp}", "PENSTOCK_HTTP_URL": f"http://{http}"}
    (serve, banner), (listen, heard), *others = steps()

    with Running(*serve, **serving) as broker:
        for line in banner:
            said = broker.line().replace(f"{tmp_path}/", "")
            for usual, port in ports.items():
                said = said.replace(f":{port}", f":{usual}")
            assert form(said) == line
        with Running(*listen, **asking) as listener:
            until(lambda: subscriptions(f"http://{http}"), "a subscription")
            for arguments, lines in others:
                done = subprocess.run(  # noqa: S603
                    [*PENSTOCK, *arguments], env=environment(**asking), capture_output=True,
                    text=True, timeout=SECONDS_MAX, check=False,
                )  # fmt: skip
                assert [form(line) for line in done.stdout.splitlines()] == lines, done.stderr
            assert [form(listener.line()) for _ in heard] == heard
        assert broker.end()[0] == 0

    (program,), (table,) = blocks("python"), blocks("text")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == table.strip(), done.stderr


def test_setting_up_is_a_target_of_make() -> None:
    (block,) = blocks("")
    command, export = block.splitlines()
    assert export == 'export PATH="$PWD/.venv/bin:$PATH"'
    done = subprocess.run(  # noqa: S603
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
