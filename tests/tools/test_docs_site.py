"""The site of `make docs` has every page, and its links lead to pages of the site."""

import re
from pathlib import Path

import yaml

from tools.docs_site import PAGES, foreign, places, rewritten, slug

ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def named(entry: object) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [name for part in parts for name in named(part)]


def test_the_navigation_names_every_page_once() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named(CONFIG["nav"])) == sorted([*pages, *PAGES.values()])


def test_a_broken_link_ends_the_build() -> None:
    assert CONFIG["strict"] is True
    for kinds in CONFIG["validation"].values():
        assert set(kinds.values()) == {"warn"}
    assert "anchors" in CONFIG["validation"]["links"]


def test_the_theme_loads_no_fonts() -> None:
    assert CONFIG["theme"]["font"] is False
    assert "extra_javascript" not in CONFIG


def test_every_object_of_the_reference_exists() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE):
        source = ROOT / "src" / name.replace(".", "/")
        package = source.parent / "__init__.py"
        is_module = source.with_suffix(".py").exists()
        assert is_module or f'"{source.name}"' in package.read_text(), name


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = (
        "[a](docs/start.md#x) ![b](docs/images/p.png) [c](CHANGELOG.md) [d](examples/demo) [e](#f)"
    )
    assert rewritten(text, folder="", page="index.md") == (
        "[a](start.md#x) ![b](images/p.png) [c](changelog.md) d [e](#f)"
    )
    text = "[a](../README.md) [b](../../SECURITY.md) [c](https://example.org/x)"
    assert rewritten(text, folder="docs/protocols", page="protocols/herald.md") == (
        "[a](../README.md) [b](../reporting.md) [c](https://example.org/x)"
    )


def test_code_is_left_as_it_is() -> None:
    text = "```\n[a](docs/start.md)\n```\n[a](docs/start.md)\n"
    assert rewritten(text, folder="", page="index.md") == (
        "```\n[a](docs/start.md)\n```\n[a](start.md)\n"
    )
    assert places(text, "") == {"docs/start.md"}


def test_an_anchor_is_that_of_the_repository() -> None:
    assert slug("What `serve` — and Kafka — does", "-") == "what-serve--and-kafka--does"


def test_a_page_that_asks_another_host_is_found() -> None:
    assert foreign('<script src="https://cdn.example/x.js">')
    assert foreign('<link rel="stylesheet" href="//fonts.example/x.css">')
    assert foreign("@import url(https://fonts.example/x)")
    assert not foreign('<a href="https://example.org">x</a><script src="assets/x.js"></script>')
