"""The process that atheris drives: `python -m tests.fuzz.instrumented NAME [libFuzzer options]`."""

import sys

import atheris

from tests.fuzz.inputs import load


def main(arguments: list[str]) -> None:
    """Fuzz one target until libFuzzer's options or a broken promise end the process."""
    name, *options = arguments
    with atheris.instrument_imports(include=["penstock"]):
        target = load(name)
    atheris.Setup([name, *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
