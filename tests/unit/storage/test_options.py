"""Durability by topic: the first rule that matches decides, a name only for itself."""

from penstock._kernels.topics import TopicTable
from penstock.model import Durability
from penstock.storage.options import DurabilityRules

RULES = DurabilityRules(
    Durability.FSYNC,
    [("exact", Durability.OS), ("fast/#", Durability.MEMORY), ("fast/not", Durability.OS)],
)
EXPECTED = {
    "exact": Durability.OS,
    "other": Durability.FSYNC,
    "exact/x": Durability.FSYNC,
    "fast/x": Durability.MEMORY,
    "fast/not": Durability.MEMORY,
}


def test_the_first_rule_that_matches_decides() -> None:
    assert {name: RULES.of(name) for name in EXPECTED} == EXPECTED


def test_the_table_has_the_durability_of_every_topic_also_of_later_ones() -> None:
    topics = TopicTable()
    assert DurabilityRules().table(topics) is None
    for name, expected in EXPECTED.items():
        number = topics.intern(name)
        table = RULES.table(topics)
        assert table is not None
        assert len(table) == len(topics)
        assert Durability(table[number]) is expected
