"""Spark reads and writes a broker's topics: `spark.read.format("penstock")`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.scan import scan
    from penstock.spark.session import session
    from penstock.spark.source import PenstockDataSource, register

__all__ = ["PenstockDataSource", "register", "scan", "session"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load what is asked for: a process that forks workers must not have Arrow's threads."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from penstock.spark.scan import scan  # noqa: PLC0415
        from penstock.spark.session import session  # noqa: PLC0415
        from penstock.spark.source import PenstockDataSource, register  # noqa: PLC0415

        # The modules `scan` and `session` have taken the functions' names.
        globals().update(
            PenstockDataSource=PenstockDataSource, register=register, scan=scan, session=session
        )
        return globals()[name]
