"""The programs of the README run; its commands, links and folders exist."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SLOW, TESTS
from tests.support.live import LiveBroker

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = sorted([*TOP, *(ROOT / "docs").rglob("*.md")])


def test_every_make_command_is_a_target() -> None:
    targets = {
        line.partition(":")[0]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if ":" in line
    }
    for path in PAGES:
        for line in path.read_text().splitlines():
            words = line.replace("`", " ").split()
            for word, following in itertools.pairwise(words):
                if (
                    word == "make"
                    and following.replace("-", "").isalpha()
                    and f"`make {following}" in line
                ):
                    assert following in targets, f"{path.name}: make {following}"


@pytest.mark.parametrize("page", TOP, ids=lambda page: page.name)
def test_every_folder_and_file_that_is_named_exists(page: Path) -> None:
    for name in re.findall(r"`((?:src|tests|bench|examples|docs)/[\w./]*)`", page.read_text()):
        assert (ROOT / name).exists(), name


def test_every_module_that_is_called_slow_exists() -> None:
    for name in SLOW:
        assert (TESTS / name).exists(), name


def test_every_decision_has_a_status_and_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for path in sorted(folder.glob("[0-9]*.md")):
        title, status = re.match(r"# (.+)\n\nStatus: (\w+)", path.read_text()).groups()
        assert f"| [{title}]({path.name}) | {status}" in index
        assert status in {"accepted", "superseded"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for part in page.read_text().split("](")[1:]:
        target, _, anchor = part.partition(")")[0].partition("#")
        if "://" in target or " " in target:
            continue
        place = (page.parent / target) if target else page
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", place.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}#{anchor}"


def slug(heading: str) -> str:
    """What a heading is called in an address."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_message_is_what_the_example_prints() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("## One message, five protocols")[1].split("```")[1].split()
    program = subprocess.run(  # noqa: S603
        [sys.executable, str(ROOT / "examples" / "five_protocols.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    sent = program.stdout.split("sends it\n")[1].split("and as subscribers")[0].split()
    assert shown == sent


@pytest.mark.spark
def test_the_programs_run(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    first, second = (part.split("```")[0] for part in readme.split("```python\n")[1:])
    with LiveBroker(data=tmp_path / "penstock-data") as broker:
        address = "{}:{}".format(*broker.address)
        assert "21.5" in output(tmp_path, first.replace("127.0.0.1:7000", address))
    assert "sensors/17/temp" in output(tmp_path, second)


def output(folder: Path, program: str) -> str:
    path = folder / "program.py"
    path.write_text(program)
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
