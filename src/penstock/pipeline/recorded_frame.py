"""A chain of DataFrame operations, built once and applied to the records of every step.

Each expression of PySpark is a call to the JVM, and decoding a table takes hundreds of them. The
expressions depend on the schema alone, so they are built once. For a further step, one call to the
JVM applies each operation.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

__all__ = ["Recorded"]

_RECORDED: Final = ("where", "select", "withColumn", "drop")


class Recorded:
    """A function of DataFrames whose operations are recorded when it is first called."""

    def __init__(self, function: Callable[[DataFrame], DataFrame]) -> None:
        self._function = function
        self._operations: list[tuple[str, tuple[Any, ...]]] | None = None
        self._replayable = True

    def __call__(self, records: DataFrame) -> DataFrame:
        """Return the result for records, which always have the same columns."""
        if self._operations is None or not self._replayable:
            return self._record(records)
        frame: Any = records
        result: Any = frame._jdf  # noqa: SLF001
        for name, arguments in self._operations:
            result = getattr(result, name)(*arguments)
        return ClassicFrame(result, records.sparkSession)

    def _record(self, records: DataFrame) -> DataFrame:
        self._operations = []
        found: Any = self._function(cast("DataFrame", _Recorder(self, records)))
        return cast("DataFrame", found.frame)

    def add(self, name: str, frame: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
        """Record an operation, with its arguments as objects of the JVM."""
        assert self._operations is not None  # noqa: S101
        match name:
            case "where":
                given: tuple[Any, ...] = (arguments[0]._jc,)  # noqa: SLF001
            case "withColumn":
                given = (arguments[0], arguments[1]._jc)  # noqa: SLF001
            case "drop":
                given = (frame._jseq(arguments),)  # noqa: SLF001
            case _:
                given = (frame._jcols(*arguments),)  # noqa: SLF001
        self._operations.append((name, given))

    def cannot_replay(self) -> None:
        """Build the expressions anew for each step: the function looks at its DataFrame."""
        self._replayable = False


class _Recorder:
    """A DataFrame that records the operations that are applied to it."""

    def __init__(self, recorded: Recorded, frame: DataFrame) -> None:
        self.frame = frame
        self._recorded = recorded

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name not in _RECORDED:
            self._recorded.cannot_replay()
            value = getattr(self.frame, name)
            return self._wrapping(value) if callable(value) else value

        def operation(*arguments: Column | str) -> "_Recorder":
            self._recorded.add(name, self.frame, arguments)
            return _Recorder(self._recorded, getattr(self.frame, name)(*arguments))

        return operation

    def _wrapping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            found = method(*arguments, **named)
            return _Recorder(self._recorded, found) if isinstance(found, DataFrame) else found

        return call
