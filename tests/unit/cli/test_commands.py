"""The small commands, and how fast the command line itself is."""

import hashlib
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import argon2
import pytest
import typer

from penstock import __version__
from tests.support.commands import Commands

ROOT = Path(__file__).parents[3]
PENSTOCK = [sys.executable, "-m", "penstock.cli"]


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [*PENSTOCK, *arguments], input=text, capture_output=True, text=True, timeout=10, check=False
    )


def test_the_package_installs_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["penstock"] == "penstock.cli.main:main"


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"penstock {__version__}\n", "")


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("serve", "hash-password", "hash-key"):
        assert command in done.stdout


def test_hash_password_prints_what_the_file_holds() -> None:
    done = run("hash-password", text="correct horse\n")
    assert done.returncode == 0
    encoded = done.stdout.strip()
    assert argon2.extract_parameters(encoded).type is argon2.Type.ID
    assert argon2.PasswordHasher().verify(encoded, "correct horse")
    assert "correct horse" not in done.stdout


def test_hash_key_prints_what_the_file_holds() -> None:
    done = run("hash-key", text="abc\n")
    # The digest of "abc" in FIPS 180-2, appendix B.1
    assert done.stdout == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"


def test_hash_key_makes_a_new_key() -> None:
    key, digest = run("hash-key", "--new").stdout.split()
    assert len(key) >= 40
    assert hashlib.sha256(key.encode()).hexdigest() == digest
    assert run("hash-key", "--new").stdout.split()[0] != key


@pytest.mark.parametrize("command", ["hash-password", "hash-key"])
def test_no_secret_is_one_line(command: str) -> None:
    done = run(command)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "standard input" in done.stderr


def test_the_command_line_is_imported_in_half_a_second_without_the_broker() -> None:
    program = (
        "import sys, time; started = time.process_time(); import penstock.cli.main; "
        "print(time.process_time() - started); "
        "print(*[name for name in sys.modules if name.startswith(('pyspark', 'pyarrow', "
        "'penstock.server', 'argon2', 'uvloop'))])"
    )
    seconds = []
    for _ in range(3):  # the best of three: others use this machine too
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=True
        )
        taken, loaded = done.stdout.split("\n")[:2]
        assert loaded == ""
        seconds.append(float(taken))
        if seconds[-1] < 0.5:
            return
        time.sleep(0.2)
    raise AssertionError(f"imported in {seconds}")


def test_the_broker_does_not_import_spark_and_arrow_only_for_a_log() -> None:
    program = (
        "import sys, penstock.server.run; "
        "print(*[name for name in sys.modules if name.startswith(('pyspark', 'pyarrow'))])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=True
    )
    assert done.stdout.strip() == ""


def test_a_closed_standard_output_is_no_accident() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m penstock.cli --version >&-', sys.executable],
        stderr=subprocess.PIPE, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("group", [[], ["log"], ["pipeline"], ["config"], ["user"]], ids=str)
def test_without_a_command_the_help_is_shown(group: list[str]) -> None:
    done = run(*group)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run(*group, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pubb"], "No such command 'pubb'. Did you mean 'pub'? See: penstock --help"),
        (["log", "lss"], "No such command 'lss'. Did you mean 'ls'? See: penstock log --help"),
        (["xyzzy"], "No such command 'xyzzy'. See: penstock --help"),
    ],
)
def test_a_command_that_there_is_not_is_one_line(arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"penstock: {line}\n")


@pytest.mark.parametrize("module", ["typer", "penstock.cli.messages.pub", "penstock.client"])
def test_an_interrupt_while_it_starts_is_quiet(module: str) -> None:
    program = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from penstock.cli.main import main
sys.argv = ["penstock", "pub", "x", "y", "--url", "tcp://127.0.0.1:1"]
main()
"""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def _at_fault() -> None:
    raise RuntimeError("two\nlines")


def test_a_fault_of_ours_is_one_line_and_the_place_is_shown_on_demand(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = typer.Typer()
    broken.command("broken")(_at_fault)
    broken.command("serve")(_at_fault)
    monkeypatch.setattr("penstock.cli.main.command_line", lambda: typer.main.get_command(broken))
    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)
    line = "penstock: internal error: RuntimeError: two lines; PENSTOCK_DEBUG=1 shows where\n"
    assert commands.run("broken") == (70, "", line)
    lasting = commands.run("serve")
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    for done in (lasting, commands.run("broken")):
        assert (done.code, done.out) == (70, "")
        assert done.err.startswith("Traceback ")
        assert "in _at_fault" in done.err
        assert done.err.endswith(line)
