"""Run several benchmarks one after the other, all of them even if the bars of some fail.

    python -m bench.run bench.macro.pubsub bench.macro.sizes [-- ARGUMENT …]

Each gets the arguments after `--`. At the end it lists those that failed, and fails if any did.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["run"]


def run(modules: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Run each module with the arguments; return those that failed."""
    failed = []
    for module in modules:
        print(f"# {module}", flush=True)
        if subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode:  # noqa: S603
            failed.append(module)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    failed = run(parser.parse_args(given[:split]).modules, given[split + 1 :])
    for module in failed:
        print(f"failed: {module}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
