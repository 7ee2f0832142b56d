"""Look for known vulnerabilities in the packages of lock files, with pip-audit.

A known vulnerability is a failure. Where no advisory service can be reached, or the registry in use
has no advisories, the audit is skipped, and one line says why.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_SECONDS_MAX: Final = 120
_SERVICES: Final = ("pypi", "osv")
_UNREACHABLE: Final = (
    "ConnectionError", "ConnectTimeout", "ReadTimeout", "HTTPError", "ProxyError", "SSLError",
)  # fmt: skip


class Skipped(Exception):
    """No service answers; the text says why."""


def ask(service: str, lock: Path) -> list[dict[str, Any]]:
    """Return what a service knows of each package; raise Skipped, or SystemExit on an error."""
    command = [
        sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--require-hashes",
        "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10",
        "--vulnerability-service", service,
    ]  # fmt: skip
    try:
        ended = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise Skipped(f"{service} did not answer within {_SECONDS_MAX} seconds") from None
    try:
        packages: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except ValueError:
        last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
        for word in _UNREACHABLE:
            if word in last:
                raise Skipped(f"{service} cannot be reached ({word})") from None
        raise SystemExit(f"pip-audit failed for {lock}: {last}") from None
    if all("skip_reason" in package for package in packages):
        raise Skipped(f"{service} knows none of the {len(packages)} packages")
    return packages


def audit(lock: Path) -> bool:
    """Print the vulnerabilities of a lock file's packages; return whether there are none."""
    reasons = []
    for service in _SERVICES:
        try:
            packages = ask(service, lock)
        except Skipped as skipped:
            reasons.append(str(skipped))
            continue
        found = [(each, flaw) for each in packages for flaw in each.get("vulns", ())]
        for package, flaw in found:
            fixed = ", ".join(flaw["fix_versions"]) or "no version"
            print(f"{lock}: {package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
        unknown = [each["name"] for each in packages if "skip_reason" in each]
        known = len(packages) - len(unknown)
        print(f"{lock}: {known} packages audited with {service}, {len(found)} vulnerabilities")
        if unknown:
            print(f"{lock}: not audited: {', '.join(unknown)}")
        return not found
    print(f"{lock}: audit skipped: {'; '.join(reasons)}")
    return True


def main(locks: Sequence[str]) -> None:
    """Audit lock files; exit with 1 if a package has a known vulnerability."""
    results = [audit(Path(lock)) for lock in locks]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
