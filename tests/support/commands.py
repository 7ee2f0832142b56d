"""The command line run in this process: what it prints, and how it ends."""

import sys
from typing import NamedTuple

import pytest

from penstock.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def error_line(self) -> str:
        """The one line of a command that an operator must set right."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("penstock: ")
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("penstock: ").rstrip("\n")


class Commands:
    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        monkeypatch.delenv("PENSTOCK_DATA__FOLDER", raising=False)

    def run(self, *arguments: object) -> Done:
        """Run `penstock` with arguments."""
        self._monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *self._capfd.readouterr())
