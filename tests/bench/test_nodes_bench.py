"""The benchmarks of nodes on Kafka run one short pass, and fit costs to what they measure."""

import pytest

from bench.figures import messages_each
from bench.macro import kafka_intake, namespace_costs, node_costs
from bench.macro.kafka_nodes import nodes_on
from bench.macro.node_costs import Run
from tools.kafka import KafkaBroker


def test_messages_and_costs_of_nodes_are_measured(kafka: KafkaBroker) -> None:
    with nodes_on([kafka], 2) as cluster:
        rates = kafka_intake.measure(cluster, rounds=1, count=2_000, warms=False)
        assert {row["sender"] for row in rates} == {*kafka_intake.PROTOCOLS, *kafka_intake.WAYS}
        assert all(row["acknowledged"] > 0 for row in rates)
        costs = node_costs.measure(cluster, seconds=0.2)
    assert [row.get("work") for row in costs][:4] == ["append", "follow", "deliver", "kafka"]
    assert costs[-1]["milliseconds"] > 0


def test_the_costs_of_namespaces_are_measured(kafka: KafkaBroker) -> None:
    found = namespace_costs.measure([kafka], seconds=0.2)
    assert [row["way"] for row in found] == ["read", "read", "passed", "passed"]
    assert all(row["groups"] for row in found)


def test_costs_are_those_that_explain_the_time() -> None:
    runs = [
        Run(burst, burst * groups, groups, 1.0, {"node": (burst * 2 + 300) * groups / 1e6})
        for burst, groups in ((1, 500), (100, 400), (2_000, 200))
    ]
    message, group, off = node_costs.fit(runs, "node")
    assert (message, group) == (pytest.approx(2.0), pytest.approx(300.0))
    assert off < 1e-6


@pytest.mark.parametrize(("nodes", "interval"), [(10, 0.01), (100, 0.1), (100, 0.01), (1_000, 1.0)])
def test_what_nodes_carry_takes_one_core_of_each(nodes: int, interval: float) -> None:
    costs = {
        "append": {"message_us": 0.5, "group_us": 1_000.0},
        "follow": {"message_us": 0.2, "group_us": 300.0},
    }
    messages = messages_each(costs, nodes, interval)
    groups = min(messages, 1 / interval)
    used = messages * 0.5 + groups * 1_000 + (nodes - 1) * (messages * 0.2 + groups * 300)
    assert used == pytest.approx(1e6)
