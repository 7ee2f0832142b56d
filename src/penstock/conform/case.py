"""A conformance case: what it is called, the rule it checks, and the steps that check it."""

import dataclasses
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec

from penstock.conform.stage import Stage

__all__ = ["Book", "Case"]

Rest = ParamSpec("Rest")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A rule and its steps, which raise what `peer` says where the server does not keep it.

    `section` is the place of the rule in the specification. With `profile` the specification
    leaves it open, and it is Penstock's.
    """

    name: str
    section: str
    rule: str
    steps: Callable[[Stage], None]
    profile: bool = False


class Book(Generic[Rest]):
    """Collects cases as they are written; each is named after its function."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, bool, Callable[Concatenate[Stage, Rest], None]]] = []

    def case(
        self, section: str, rule: str, *, profile: bool = False
    ) -> Callable[
        [Callable[Concatenate[Stage, Rest], None]], Callable[Concatenate[Stage, Rest], None]
    ]:
        """Make a function a case."""

        def add(
            steps: Callable[Concatenate[Stage, Rest], None],
        ) -> Callable[Concatenate[Stage, Rest], None]:
            self._rows.append((section, rule, profile, steps))
            return steps

        return add

    def cases(self, *rest: Rest.args, **named: Rest.kwargs) -> tuple[Case, ...]:
        """Return the cases; what is given goes to each of them."""

        def bound(steps: Callable[Concatenate[Stage, Rest], None]) -> Callable[[Stage], None]:
            return lambda stage: steps(stage, *rest, **named)

        return tuple(
            Case(steps.__name__.strip("_").replace("_", "-"), section, rule, bound(steps), profile)
            for section, rule, profile, steps in self._rows
        )
