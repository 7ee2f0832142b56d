"""The targets by name, their seeds, and the inputs that fuzzing found."""

import importlib
from pathlib import Path
from typing import Protocol, cast

NAMES = ("detect", "rheos1", "rheos2", "fleximq", "herald", "lamamq")
CORPUS = Path(__file__).parent / "corpus"


class Target(Protocol):
    """One of the modules in `targets`: the first byte of an input selects options, if any."""

    SEEDS: list[bytes]

    def check(self, data: bytes) -> None:
        """Raise AssertionError if a promise does not hold for `data`."""


def load(name: str) -> Target:
    """Import a target, and with it the codec it checks."""
    return cast("Target", importlib.import_module(f"tests.fuzz.targets.{name}"))


def found(name: str) -> list[bytes]:
    """Every input that once broke a promise of this target, by file name."""
    paths = sorted((CORPUS / name).iterdir())
    return [path.read_bytes() for path in paths if path.name != "README.md"]
