"""Every fenced block of the README and the pages is run by a test, and a new one cannot hide.

A claim says how many blocks of a language a page has, and which test runs them or compares them with
the code. Whoever adds a block adds what runs it, and counts it here.
"""

import collections
import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^[ ]*```(\w*)[^\n]*\n.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
DRAWING: Final = "a drawing"
"""What explains and is no command, program, file or answer."""

EXAMPLES: Final = "tests/examples/"
PROTOCOLS: Final = f"{EXAMPLES}test_protocol_pages.py"
Claims = dict[str, list[tuple[int, str]]]
CLAIMS: dict[str, Claims] = {
    "README.md": {
        "python": [(2, f"{EXAMPLES}test_readme.py")],
        "": [(2, f"{EXAMPLES}test_readme.py"), (1, DRAWING)],
    },
    "docs/architecture.md": {"": [(1, f"{EXAMPLES}test_architecture.py"), (3, DRAWING)]},
    "docs/backup.md": {"console": [(3, f"{EXAMPLES}test_kit_pages.py")]},
    "docs/clients.md": {"python": [(2, "tests/unit/client/test_page.py")]},
    "docs/command-line.md": {
        "console": [(9, f"{EXAMPLES}test_command_line.py")],
        "text": [(1, f"{EXAMPLES}test_command_line.py")],
    },
    "docs/configuration.md": {
        "": [(3, f"{EXAMPLES}test_configuration.py")],
        "toml": [(1, f"{EXAMPLES}test_configuration.py")],
    },
    "docs/flight.md": {"": [(1, f"{EXAMPLES}test_flight_page.py")]},
    "docs/groups.md": {"python": [(1, f"{EXAMPLES}test_groups_page.py")]},
    "docs/http.md": {
        "": [(1, "tests/interop/test_http.py")],
        "json": [(3, f"{EXAMPLES}test_http_page.py")],
    },
    "docs/install.md": {"console": [(2, f"{EXAMPLES}test_kit_pages.py")]},
    "docs/kafka.md": {"toml": [(1, "tests/unit/server/test_storage_config.py")]},
    "docs/log-format.md": {
        "python": [(4, f"{EXAMPLES}test_log_format.py")],
        "text": [(1, f"{EXAMPLES}test_log_format.py")],
        "": [(3, f"{EXAMPLES}test_log_format.py"), (4, DRAWING)],
    },
    "docs/console.md": {"sql": [(1, "tests/unit/console/test_parts.py")]},
    "docs/operating.md": {
        "toml": [(4, f"{EXAMPLES}test_operating.py")],
        "text": [(1, f"{EXAMPLES}test_operating.py")],
        "json": [(1, f"{EXAMPLES}test_operating.py")],
        "console": [(1, f"{EXAMPLES}test_operating.py")],
        "": [(1, f"{EXAMPLES}test_operating.py")],
    },
    "docs/pipeline.md": {
        "toml": [(7, f"{EXAMPLES}test_pipeline_page.py")],
        "json": [(4, f"{EXAMPLES}test_pipeline_page.py")],
        "python": [(2, f"{EXAMPLES}test_pipeline_page.py")],
        "": [(1, f"{EXAMPLES}test_pipeline_page.py"), (1, DRAWING)],
    },
    "docs/protocols/fleximq.md": {"hex": [(8, PROTOCOLS)]},
    "docs/protocols/herald.md": {"hex": [(15, PROTOCOLS)]},
    "docs/protocols/lamamq.md": {"hex": [(16, PROTOCOLS)]},
    "docs/protocols/rheos1.md": {"hex": [(7, PROTOCOLS)]},
    "docs/protocols/rheos2.md": {"hex": [(7, PROTOCOLS)]},
    "docs/services.md": {"python": [(1, f"{EXAMPLES}test_services_page.py")]},
    "docs/spark.md": {
        "python": [(13, f"{EXAMPLES}test_spark_page.py")],
        "toml": [(2, f"{EXAMPLES}test_spark_page.py")],
        "sh": [(1, "tests/spark/test_cluster.py")],
        "": [(2, f"{EXAMPLES}test_spark_page.py")],
    },
    "docs/start.md": {
        "console": [(4, f"{EXAMPLES}test_start_page.py")],
        "python": [(1, f"{EXAMPLES}test_start_page.py")],
        "text": [(1, f"{EXAMPLES}test_start_page.py")],
        "": [(1, f"{EXAMPLES}test_start_page.py")],
    },
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_claimed_by_a_test(page: Path) -> None:
    claims = CLAIMS.get(name(page), {})
    text = page.read_text()
    assert text.count("```") == 2 * len(FENCE.findall(text)), "a fence is not closed"
    claimed = {language: sum(count for count, _ in each) for language, each in claims.items()}
    assert collections.Counter(FENCE.findall(text)) == claimed


@pytest.mark.parametrize("page", CLAIMS)
def test_a_claim_is_made_by_a_test_that_reads_the_page(page: str) -> None:
    assert (ROOT / page).exists()
    folder, file = page.split("/")[-2:] if "/" in page else ("", page)
    for claims in CLAIMS[page].values():
        for _, test in claims:
            if test != DRAWING:
                text = (ROOT / test).read_text()
                assert file in text or f'"{folder}"' in text, test


def test_what_can_be_run_is_no_drawing() -> None:
    for page, claims in CLAIMS.items():
        for language, each in claims.items():
            if language:
                assert DRAWING not in {test for _, test in each}, page
