"""The columns of a table that a query needs, found in Spark's own plan of the query.

A Python source gets no projection from Spark. So a query is planned over stand-ins first: tables
without rows, with the columns of the real ones. The optimised plan says which columns are used.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

__all__ = ["needed_columns", "stand_in"]

_KEY: Final = "penstock.stand_in"
_LEAF: Final = "LogicalRDD"
_BY_REFERENCE: Final = frozenset(
    {
        "Aggregate", "Expand", "Filter", "Generate", "GlobalLimit", "Join", "LocalLimit",
        "Project", "Sort", "Window",
    }
)  # fmt: skip
"""Plans that pass columns on under their ids, and use those that their expressions refer to. All
other plans, such as a union, count as using every column below them."""


def stand_in(spark: SparkSession, schema: StructType, number: int) -> DataFrame:
    """Return a table without rows; `number` identifies it in plans."""
    marked = StructType(
        [StructField(each.name, each.dataType, each.nullable, {_KEY: number}) for each in schema]
    )
    # A local table without rows would be removed from the plan.
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), marked)


def needed_columns(query: DataFrame) -> dict[int, frozenset[str]]:
    """Return the columns that a query needs of each stand-in, by its number.

    A stand-in that the optimised plan does not have is left out.
    """
    plans = list(_plans(query._jdf.queryExecution().optimizedPlan()))  # noqa: SLF001
    used = {each.exprId().id() for plan in plans for each in _used(plan)}
    found: dict[int, frozenset[str]] = {}
    for leaf in (plan.node for plan in plans if _name(plan.node) == _LEAF):
        for column in _items(leaf.output()):
            if not column.metadata().contains(_KEY):
                break
            number = int(column.metadata().getLong(_KEY))
            names = found.setdefault(number, frozenset())
            if column.exprId().id() in used:
                found[number] = names | {str(column.name())}
    return found


class _Plan(NamedTuple):
    """A node of a plan, a Java object; a root is that of the query or of a subquery."""

    node: Any
    is_root: bool


def _plans(node: Any, *, is_root: bool = True) -> Iterator[_Plan]:  # noqa: ANN401
    yield _Plan(node, is_root)
    for child in _items(node.children()):
        yield from _plans(child, is_root=False)
    for subquery in _items(node.subqueries()):
        yield from _plans(subquery)


def _used(plan: _Plan) -> Iterator[Any]:
    """Yield the columns that a node uses, and those of a result."""
    if plan.is_root:
        yield from _items(plan.node.output())
    if _name(plan.node) in _BY_REFERENCE:
        yield from _items(plan.node.references().toSeq())
    else:
        for child in _items(plan.node.children()):
            yield from _items(child.output())


def _items(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the elements of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)


def _name(node: Any) -> str:  # noqa: ANN401
    return str(node.getClass().getSimpleName())
