"""The memory that the broker may use: the lowest limit of its control groups, or the machine's."""

import os
from pathlib import Path

import pytest

from penstock.limits import MEMORY_DEFAULT_BYTES_MAX, MEMORY_DEFAULT_BYTES_MIN
from penstock.server import system_memory
from penstock.server.system_memory import default_memory_bytes, usable_memory_bytes

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 1 << 20


def limited(root: Path, groups: str, limits: dict[str, str]) -> int:
    """Return the usable memory for a process in `groups` with `limits` by file."""
    for name, text in {"proc/self/cgroup": groups, **limits}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return usable_memory_bytes(root)


def test_without_limits_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert usable_memory_bytes(tmp_path) == PHYSICAL
    assert limited(tmp_path, "0::/a\n", {"sys/fs/cgroup/a/memory.max": "max\n"}) == PHYSICAL


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "200", "a/memory.max": "300"}, 200),
        ("0::/a/b\n", {"a/b/memory.max": "300", "a/memory.max": "200"}, 200),
        ("0::/a\n", {"memory.max": "100", "other/memory.max": "50"}, 100),
        ("4:cpu,memory:/c\n", {"memory/c/memory.limit_in_bytes": "400"}, 400),
        ("4:cpu:/c\n", {"memory/c/memory.limit_in_bytes": "400", "c/memory.max": "1"}, None),
        ("0::/a\n", {"a/memory.max": str(1 << 62)}, None),
    ],
)
def test_the_lowest_limit_of_its_groups_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    assert limited(tmp_path, groups, files) == (expected or PHYSICAL)


@pytest.mark.parametrize(
    ("usable", "expected"),
    [
        (1000 * MIB, 500 * MIB),
        (MIB, MEMORY_DEFAULT_BYTES_MIN),
        (1 << 50, MEMORY_DEFAULT_BYTES_MAX),
    ],
)
def test_the_default_is_half_within_bounds(
    monkeypatch: pytest.MonkeyPatch, usable: int, expected: int
) -> None:
    monkeypatch.setattr(system_memory, "usable_memory_bytes", lambda: usable)
    assert default_memory_bytes.__wrapped__() == expected
