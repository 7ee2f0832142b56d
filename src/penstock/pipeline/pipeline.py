"""The pipeline as a process: bronze as a stream, silver and gold as jobs that follow it."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import OperatorError, PenstockError
from penstock.limits import PIPELINE_HISTORY_PASSES, PIPELINE_STOP_SECONDS_MAX
from penstock.pipeline.bronze import BronzeWriter
from penstock.pipeline.bronze_ingest import (
    INGEST_FORMAT,
    INTERVAL_OPTION,
    TABLE_OPTION,
    BatchIngest,
    LogLag,
    register_ingest,
)
from penstock.pipeline.config import BUILT_IN_GOLD, PipelineConfig
from penstock.pipeline.errors import CannotRebuild, JobFailed, NoSuchTable, reason_of
from penstock.pipeline.gold_jobs import ExchangesJob, SessionsJob, TrafficJob
from penstock.pipeline.latency_job import LatencyJob
from penstock.pipeline.maintenance import Maintenance
from penstock.pipeline.offsets import Stream, lag
from penstock.pipeline.progress import Progress
from penstock.pipeline.publication import AfterPublishing, Job, PublishJob, TableJob
from penstock.pipeline.rebuild import RebuildWarehouse, Rebuilt, rebuild_gold, rebuild_silver
from penstock.pipeline.silver_job import SilverJob
from penstock.pipeline.sql_job import sql_jobs
from penstock.pipeline.tables import Table, prepare
from penstock.pipeline.warehouse import Warehouse

__all__ = ["Pipeline", "rebuild"]

BRONZE: Final = "bronze"
_POLL_SECONDS: Final = 0.2
_STOP_POLL_SECONDS: Final = 0.002
_LOG_LAG_SECONDS: Final = 1.0

_log = structlog.get_logger("penstock.pipeline")


class Pipeline:
    """Runs all jobs of a configuration. The caller holds the lock of the warehouse.

    When a step fails, its table stays unchanged and the step is retried; other jobs continue.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, config: PipelineConfig) -> None:
        prepare(spark)
        register_ingest(spark)
        self.progress = Progress()
        self._spark = spark
        self._warehouse = warehouse
        self._config = config
        self._maintenance = Maintenance(warehouse, config.silver)
        self._maintained: dict[str, Table] = {}
        self._history_deleted = -math.inf
        self._stop = threading.Event()
        self._new_rows = {name: threading.Event() for name in ("silver", "gold")}
        """Set by a commit of bronze, and of silver for gold, for the thread of each name."""
        self._steps: dict[str, float] = {}
        """The time at which each running step began, by the name of its stage."""
        self._bronze = BronzeWriter(warehouse.bronze())
        self._silver: list[Job] = [
            SilverJob(
                spark,
                warehouse,
                schema,
                rows_max=config.silver_rows_max,
                registry=config.registry,
            )
            for schema in config.silver
        ]
        self._gold: list[Job] = _gold_jobs(spark, warehouse, config)
        self._offsets: dict[str, dict[Stream, int]] = {}
        """The next offset of each stream that a table does not reflect, by the job's name."""

    # --- Running

    def run_once(self, shown: Callable[[Progress], None] = lambda _: None) -> None:
        """Update every table to the current end of the log; raise JobFailed if a table failed."""
        query = self.start_bronze(once=True)
        while query.isActive and not self._stop.is_set():
            self._stop.wait(_STOP_POLL_SECONDS)
            shown(self.progress)
        _end(query)
        error = query.exception()
        if error is not None:
            raise JobFailed(BRONZE, self._bronze_reason(error)) from error
        self._measure_log_lag()
        for job in (*self._silver, *self._gold):
            self._catch_up(job)
            self._show_lag()
            shown(self.progress)
        self.maintain(vacuum=True)
        self._measure_log_lag()
        self._show_lag()
        self._warehouse.write_status(self.progress.status())
        for name, stage in self.progress.values().items():
            if stage.error:
                raise JobFailed(name, stage.error)

    def run(self, shown: Callable[[Progress], None]) -> None:
        """Run until `stop` is called; raise JobFailed if the stream into bronze fails."""
        query = self.start_bronze(once=False)
        threads = [
            threading.Thread(target=self._loop, args=(name, jobs, seconds), name=name, daemon=True)
            for name, jobs, seconds in (
                ("silver", self._silver, self._config.silver_seconds),
                ("gold", self._gold, self._config.gold.seconds),
            )
        ]
        threads.append(threading.Thread(target=self._maintain_loop, name="maintain", daemon=True))
        for thread in threads:
            thread.start()
        # Not joined: while the broker does not answer, it waits for an answer.
        threading.Thread(target=self._log_lag_loop, name="lag", daemon=True).start()
        try:
            while not self._stop.wait(_POLL_SECONDS) and query.isActive:
                self._show_lag()
                shown(self.progress)
                self._warehouse.write_status(self.progress.status())
        finally:
            self.stop()
            _end(query)
            for thread in threads:
                thread.join(PIPELINE_STOP_SECONDS_MAX)
            self._warehouse.write_status(self.progress.status())
        error = query.exception()
        if error is not None:
            raise JobFailed(BRONZE, self._bronze_reason(error)) from error

    def stop(self) -> None:
        """End `run`; any thread may call this."""
        self._stop.set()
        for event in self._new_rows.values():
            event.set()

    # --- Bronze

    def start_bronze(self, *, once: bool) -> StreamingQuery:
        """Start the stream into bronze; show all tables as they are now."""
        source = self._config.source
        store = self._warehouse.bronze().store
        checkpoint = self._warehouse.checkpoint(BRONZE)
        options = {
            **source.options,
            "subscribe": source.subscribe,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self._config.bronze.rows_max),
            "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        }
        if source.traces:
            options["traces"] = source.traces
        ingest = BatchIngest(options, store, Path(checkpoint))
        self._log_lag = LogLag(options, Path(checkpoint))
        self._start_progress()
        if source.group:
            options["group"] = source.group

        def ingest_batch(batch: DataFrame, number: int) -> None:
            with self._running(BRONZE), self.progress.step(BRONZE) as stage:
                stage.batch_rows = self._bronze.add_files(ingest.write(batch, number))
            for event in self._new_rows.values():
                event.set()

        stream = self._spark.readStream.format(INGEST_FORMAT).options(
            **options,
            **{
                TABLE_OPTION: store.url,
                INTERVAL_OPTION: "0" if once else str(self._config.bronze_seconds),
            },
        )
        writer = (
            stream.load()
            .writeStream.foreachBatch(ingest_batch)
            .queryName("penstock-bronze")
            .option("checkpointLocation", checkpoint)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.start()

    def _bronze_reason(self, error: Exception) -> str:
        """Return the reason of a failed stream; the options of Spark by the pipeline's names."""
        reason = reason_of(error)
        if "failOnDataLoss" not in reason:
            return reason
        checkpoint = self._warehouse.checkpoint(BRONZE)
        return (
            f"{reason}; the checkpoint is the folder {checkpoint}, which you may delete, "
            f"and failOnDataLoss is source.fail_on_data_loss"
        )

    # --- Silver and gold

    def _step(self, job: Job) -> bool:
        with self._running(job.name), self.progress.step(job.name) as stage:
            try:
                more = job.step(stage)
                self._offsets[job.name] = job.offsets(tuple(self._bronze.offsets))
            except Exception as error:  # noqa: BLE001  (other tables continue)
                if self._stop.is_set():
                    return False
                stage.error = reason_of(error)
                trace = None if isinstance(error, PenstockError) else error
                _log.error("step failed", table=job.name, error=stage.error, exc_info=trace)
                return False
            stage.error = ""
            if stage.batch_rows and job in self._silver:
                self._new_rows["gold"].set()  # for queries of silver tables
            return more

    @contextmanager
    def _running(self, name: str) -> Iterator[None]:
        """Keep all files that are part of a table now until the step has ended."""
        self._steps[name] = time.time()
        try:
            yield
        finally:
            del self._steps[name]

    def _catch_up(self, job: Job) -> None:
        while self._step(job) and not self._stop.is_set():
            pass

    def _loop(self, name: str, jobs: Sequence[Job], seconds: float) -> None:
        """Let the jobs take turns, one step each; every job has a turn once in `seconds`.

        In between, jobs that have more to do take further turns. A job that failed waits. After
        `seconds` the jobs wait for new rows in the tables that they read, at most as long again.
        """
        new_rows = self._new_rows[name]
        while not self._stop.is_set():
            new_rows.clear()
            due = time.monotonic() + seconds
            waiting = list(jobs)
            while waiting and not self._stop.is_set():
                waiting = [job for job in waiting if not self._stop.is_set() and self._step(job)]
                if time.monotonic() >= due:
                    break
            self._stop.wait(max(0.0, due - time.monotonic()))
            if not self._stop.is_set():
                new_rows.wait(seconds)

    # --- Lag

    def _start_progress(self) -> None:
        """Show all stages with their lag before their first step."""
        self.progress.stage(BRONZE)
        for job in (*self._silver, *self._gold):
            self.progress.stage(job.name)
            self._offsets[job.name] = job.offsets(tuple(self._bronze.offsets))
        self._measure_log_lag()
        self._show_lag()

    def _measure_log_lag(self) -> None:
        """Count the messages of the log that bronze lacks; keep the last count if that fails."""
        try:
            self.progress.stage(BRONZE).lag = self._log_lag.messages()
        except (OSError, PenstockError, msgspec.DecodeError, IndexError) as error:
            _log.debug("lag not known", error=str(error))

    def _log_lag_loop(self) -> None:
        while not self._stop.wait(_LOG_LAG_SECONDS):
            self._measure_log_lag()

    def _show_lag(self) -> None:
        """Set the lag of each table: messages of the log that it does not reflect yet.

        A table that does not exist yet lacks all of them.
        """
        not_in_bronze = self.progress.stage(BRONZE).lag
        until, rows = dict(self._bronze.offsets), self._bronze.rows
        for name, offsets in dict(self._offsets).items():
            behind = min(lag(offsets, until), rows)  # retention leaves offsets without a message
            self.progress.stage(name).lag = not_in_bronze + behind

    # --- Maintenance

    def maintain(self, *, vacuum: bool = False) -> None:
        """Compact the tables and delete their history.

        With `vacuum`, delete files that no commit names too.
        """
        # Each pass reads the names of all commits.
        seconds = self._config.warehouse.history_seconds / PIPELINE_HISTORY_PASSES
        deletes = vacuum or time.monotonic() - self._history_deleted >= seconds
        if deletes:
            self._history_deleted = time.monotonic()
        self._maintained = self._warehouse.tables(opened=self._maintained)
        for name, table in list(self._maintained.items()):
            try:
                self._maintenance.compact(table)
                now = min([time.time(), *self._steps.copy().values()])
                if deletes:
                    self._maintenance.delete_history(table, now=now)
                if vacuum:
                    self._maintenance.vacuum(table)
            except OperatorError:
                raise
            except Exception:  # noqa: BLE001  (retried at the next interval)
                del self._maintained[name]
                _log.warning("maintenance failed", table=name, exc_info=True)

    def _maintain_loop(self) -> None:
        hour = 3600.0
        last = time.monotonic()
        while not self._stop.wait(self._config.warehouse.maintain_seconds):
            due = time.monotonic() - last >= hour
            if due:
                last = time.monotonic()
            self.maintain(vacuum=due)


def _gold_jobs(spark: SparkSession, warehouse: Warehouse, config: PipelineConfig) -> list[Job]:
    """Return the gold jobs and publications, in the order in which they run.

    A table with a publication is updated after its earlier rows are published; see
    AfterPublishing.
    """
    if not config.gold.enabled:
        return []
    jobs = table_jobs(spark, warehouse, config)
    publications = [
        PublishJob(
            spark,
            warehouse.gold(each.table),
            each.topic,
            config.source,
            bronze=warehouse.bronze(),
        )
        for each in config.publish
    ]
    updates = [
        AfterPublishing(job, [each for each in publications if each.table_name == job.table.name])
        for job in jobs
    ]
    return [*publications, *updates, *publications]


def table_jobs(spark: SparkSession, warehouse: Warehouse, config: PipelineConfig) -> list[TableJob]:
    """Return the jobs that update the gold tables."""
    topics = [each.topic for each in config.publish]
    tables: list[TrafficJob | ExchangesJob | SessionsJob] = [
        kind(spark, warehouse, config.gold, rows_max=config.silver_rows_max, excluded=topics)
        for kind in (TrafficJob, ExchangesJob, SessionsJob)
    ]
    planned = frozenset({BRONZE, *BUILT_IN_GOLD, *(each.name for each in config.silver)})
    return [
        *tables,
        LatencyJob(spark, warehouse, config.gold),
        *sql_jobs(spark, warehouse, config.gold.sql, planned=planned, tables=config.gold.table),
    ]


def rebuild(
    spark: SparkSession, warehouse: Warehouse, config: PipelineConfig, name: str
) -> Rebuilt:
    """Compute a silver or gold table from bronze again; raise CannotRebuild or NoSuchTable.

    The caller holds the lock of the warehouse.
    """
    prepare(spark)
    for schema in config.silver:
        if schema.name == name:
            return rebuild_silver(
                spark,
                warehouse,
                schema,
                rows_max=config.silver_rows_max,
                registry=config.registry,
            )
    if name in {BRONZE, "dead_letters"}:
        raise CannotRebuild(name, "its rows are in no other table; rebuild a silver or gold table")
    beside = RebuildWarehouse(warehouse, f"gold/{name}")
    jobs = {job.table.name: job for job in table_jobs(spark, beside, config)}
    if name not in jobs:
        names = sorted({*(each.name for each in config.silver), *jobs})
        raise NoSuchTable(name, ", ".join(names))
    published = any(each.table == name for each in config.publish)
    return rebuild_gold(warehouse, beside, jobs[name], spark, published=published)


def _end(query: StreamingQuery) -> None:
    """Stop a query after its current batch, or at the latest after PIPELINE_STOP_SECONDS_MAX."""
    deadline = time.monotonic() + PIPELINE_STOP_SECONDS_MAX
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_STOP_POLL_SECONDS)
    query.stop()
