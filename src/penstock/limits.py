"""All limits in one place. Each is a default, which its user can override.

A name ends in its unit and in `_MAX`. Limits fixed by a specification say so.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- Topics -----------------------------------------------------------------------------------
TOPIC_NAME_BYTES_MAX: Final = 65_526
"""A topic name in UTF-8: the longest that fits all protocols, due to fleximq's header of 64 KiB."""
PATTERN_LEVELS_MAX: Final = 128
"""Levels of a subscription with wildcards."""
EXPRESSION_BYTES_MAX: Final = 4 * KIB
"""A regular expression that selects topics, in UTF-8."""
EXPRESSION_STATES_MAX: Final = 10_000
"""States of such an expression, about: `.{1000}` has 8,000. Each may cost a step for each byte."""
TOPICS_MAX: Final = 1_048_576
"""Topic names interned by one process."""

# --- First bytes of a connection --------------------------------------------------------------
DETECT_BYTES_MAX: Final = 132 * KIB
"""Bytes read to detect the protocol of a connection. The longest Rheos packet that is valid in both
versions, and so needs its checksum for detection, has 131,100."""

# --- Headers of a message ---------------------------------------------------------------------
MESSAGE_HEADERS_MAX: Final = 256
MESSAGE_HEADERS_BYTES_MAX: Final = 64 * KIB
"""All headers of one message together, lengths included."""

# --- Batches ----------------------------------------------------------------------------------
BATCH_ROWS_MAX: Final = 65_536
BATCH_SENDERS_MAX: Final = 64
"""Distinct Rheos client ids in one batch; the next one starts a new batch."""

# --- The log ----------------------------------------------------------------------------------
BLOCK_ROWS_MAX: Final = 65_536
"""Messages of one group: the range of a 16-bit index into its dictionary of topics."""
BLOCK_BYTES_MAX: Final = 4 * MIB
"""Value bytes of one group; the last message may exceed it."""
SEGMENT_BYTES_MAX: Final = 256 * MIB
"""A segment that is larger is sealed before the next commit."""
LOG_WAITING_BYTES_MAX: Final = 32 * MIB
"""Value bytes that wait for the disk; above it publishers are paused."""
LOG_CACHE_BYTES_MAX: Final = 128 * MIB
"""Synced bytes of the active segment that stay in the page cache."""
LOG_FREE_BYTES_MIN: Final = 16 * MIB
"""Free disk space that a full log waits for."""
LOG_RETRY_SECONDS: Final = 1.0
"""Interval of retries after the log failed."""
LOG_RETENTION_SECONDS: Final = 10.0
"""Interval of the search for expired segments."""
LOG_READERS: Final = 2
"""Threads that read the log for replay and catch-up."""
INDEX_TOPICS_MAX: Final = 1024
"""Topics of one group listed in the segment index; a group with more matches any topic."""
INDEX_CACHE_BYTES_MAX: Final = 64 * MIB
"""Indexes of closed segments kept in memory."""
WALK_BYTES: Final = 8 * MIB
"""Bytes of a segment per read when verifying it; a larger group is read whole."""
RECORDS_READ_BYTES: Final = 4 * MIB
"""Bytes of a segment per read of its records; a larger group is read whole."""
RECORDS_ROWS_MAX: Final = 65_536
RECORDS_BYTES_MAX: Final = 4 * MIB
"""Rows and bytes of small groups combined into one record batch."""
EXPORT_ROWS_MAX: Final = 1_048_576
EXPORT_BYTES_MAX: Final = 64 * MIB
"""Rows and bytes of a row group of an exported file; a row group is held in memory."""
PLAIN_COLUMN_BYTES_MAX: Final = 64 * MIB
"""A column of names, repeated for each row."""
PIECE_READ_BYTES: Final = 8 * MIB
"""Bytes of a segment per read of a Spark task; a larger group is read whole."""
PIECE_GAP_BYTES_MAX: Final = 256 * KIB
"""A gap between two requested groups that is smaller than this is read too."""
GROUP_NAME_CHARACTERS_MAX: Final = 128
"""Name of a consumer group."""
WATERMARK_TRIES_MAX: Final = 5
"""Attempts to read a watermark while it is written."""
LOG_OPEN_TRIES_MAX: Final = 5
"""Attempts to list a log whose segments are removed meanwhile."""

# --- Spark ------------------------------------------------------------------------------------
SPARK_BATCH_ROWS: Final = 50_000
"""Rows combined from small groups into one batch for Spark."""
SPARK_BATCH_BYTES: Final = 3840 * KIB
"""Bytes of a batch for Spark. Arrow for Java allocates memory for each batch as a whole and reuses
chunks of 4 MiB; larger ones are allocated from the system each time."""
SPARK_TASK_BYTES_MIN: Final = 4 * MIB
"""Bytes of the log per task at least, if the number of tasks is not set."""
SPARK_TASK_OFFSETS_MIN: Final = 20_000
"""Offsets per task at least, if the number of bytes is not known (over the network)."""
SPARK_TASKS_MAX: Final = 65_536
"""Tasks that a job may request."""
CAPTURE_READ_BYTES: Final = 8 * MIB
"""Bytes of a capture per read; a larger frame is read whole."""
CAPTURE_ERRORS_MAX: Final = 10_000
"""Errors of a capture combined into one batch for Spark."""

# --- Credentials ------------------------------------------------------------------------------
IDENTITY_NAME_BYTES_MAX: Final = 1024
"""The name of an identity, in a handshake and in the configuration. It is below 64 KiB, so that a
length read in the wrong byte order is never plausible."""

# --- The broker -------------------------------------------------------------------------------
SESSIONS_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions of one client."""
OUT_BUFFER_BYTES_MAX: Final = 32 * MIB
"""Unsent bytes of one client; the last batch may exceed it."""
HOLD_SECONDS_MAX: Final = 1.0
"""Time that publishers wait for a subscriber that does not read, before it loses messages. Applies
only without a log."""
ANSWERS_WAITING_BYTES_MAX: Final = 4 * MIB
"""Answers of one client that wait for the disk; above it the client is not read."""
CATCH_UP_PIECE_BYTES: Final = 1 * MIB
"""Messages from the log encoded for one client at a time."""
CATCH_UP_FETCHES_MAX: Final = 4
"""Concurrent reads of the log for catch-up; further ones are queued."""
JOIN_QUEUE_BYTES_MAX: Final = 8 * MIB
"""Live messages buffered for a client until it has caught up."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""The read buffer shared by all connections of an event loop."""
TURN_SECONDS_MAX: Final = 0.2
"""Time for the requests of one client before others are served; runs of publishes do not count."""
LINGER_SECONDS_MAX: Final = 10.0
"""Time without reads after which a closing peer loses its unsent data."""
RESUME_SECONDS_MAX: Final = 60.0
"""Time that the subscriptions of a disconnected herald client are kept."""
RESUMES_MAX: Final = 10_000
"""Disconnected clients whose subscriptions are kept."""
HANDSHAKE_SECONDS_MAX: Final = 10
"""From the connection to the end of the handshake."""

# --- fleximq sessions -------------------------------------------------------------------------
FLEXIMQ_KEEPALIVE_SECONDS: Final = 30
"""Section 3.7.3: idle time after which a client gets a PING."""
FLEXIMQ_KEEPALIVE_INTERVALS_MAX: Final = 3
"""Section 3.7.3: intervals without a byte after which the connection is closed."""
REQUEST_SECONDS_MAX: Final = 30
"""From a request to its answer."""
REQUESTS_PENDING_MAX: Final = 1024
"""Unanswered requests of one client."""
REQUESTS_LATE_MAX: Final = 4096
"""Expired requests remembered to recognise late answers."""
REQUEST_ID_BYTES_MAX: Final = 1024
"""The `reqrep.id` of a message; a ULID has 26."""
FLEXIMQ_LISTING_ENTRIES_MAX: Final = 10_000
FLEXIMQ_LISTING_BYTES_MAX: Final = 1 * MIB
"""Entries that the broker's own services read for one answer, and bytes of their names."""

# --- UDP --------------------------------------------------------------------------------------
UDP_SESSION_SECONDS_MAX: Final = 60
"""Idle time after which a session ends."""
UDP_SESSIONS_MAX: Final = 10_000
"""Addresses with a session on one listener; further ones are ignored."""
UDP_BATCH_BYTES_MAX: Final = 1_400
"""Bytes of frames combined in a datagram: below the usual MTU, to avoid fragmentation."""
UDP_DATAGRAM_BYTES_MAX: Final = 65_507
"""The largest datagram of IPv4; a frame that does not fit is not sent."""
UDP_WAITING_BYTES_MAX: Final = 64 * KIB
"""Datagrams queued while a session is paused; further ones are dropped."""
UDP_OUT_BUFFER_BYTES_MAX: Final = 4 * MIB
"""Unsent datagrams of a listener; further ones are dropped."""
UDP_SOCKET_BUFFER_BYTES: Final = 4 * MIB
"""Requested size of the system's receive buffer; the system may grant less."""

# --- IPC --------------------------------------------------------------------------------------
IPC_PATH_BYTES_MAX: Final = 107
"""Fixed by Linux: the size of `sun_path` less its zero."""
IPC_CLAIM_SECONDS_MAX: Final = 2.0
"""Time that a starting listener waits for another one in the same directory."""

# --- WebSocket --------------------------------------------------------------------------------
WEBSOCKET_MESSAGE_BYTES_MAX: Final = 32 * MIB
"""A message from a client; a larger frame needs several messages."""
WEBSOCKET_SENT_MESSAGE_BYTES_MAX: Final = 256 * KIB
"""A message from the broker; more data is sent in several."""
WEBSOCKET_PING_SECONDS: Final = 30
"""Interval of pings of a WebSocket, and timeout of their answers."""
WEBSOCKET_CLOSE_SECONDS_MAX: Final = 2.0
"""Timeout of the closing handshake."""

# --- HTTP -------------------------------------------------------------------------------------
HTTP_REQUEST_LINE_BYTES_MAX: Final = 8 * KIB
"""Bytes of a request read to detect a WebSocket handshake."""
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB
"""Request line and headers of a request."""
HTTP_BODY_BYTES_MAX: Final = 4 * MIB
"""Body of a request: a message in JSON."""
HTTP_CONNECTIONS_MAX: Final = 1024
"""HTTP connections of one listener; requests of further ones are answered with 503."""
HTTP_IDLE_SECONDS_MAX: Final = 30.0
"""Time that a connection stays open without a request."""
HTTP_REQUEST_SECONDS_MAX: Final = 30.0
"""From a request to its answer, including the time for its body."""
HTTP_PAGE_ENTRIES: Final = 100
HTTP_PAGE_ENTRIES_MAX: Final = 1000
"""Default and maximum number of entries on one page of a list."""
HTTP_SLICE_ENTRIES: Final = 500
"""Topics, clients or subscriptions processed before yielding to the event loop."""
HTTP_RATES_SECONDS_MAX: Final = 10.0
"""Longest measurement of rates for one answer."""
HTTP_RATES_MAX: Final = 8
"""Concurrent measurements of rates; each holds the counts of all topics."""
HTTP_RATES_TOPICS_MAX: Final = 100
HTTP_RATES_CLIENTS_MAX: Final = 100
"""Busiest topics and slow clients in an answer with rates."""
HTTP_SEGMENTS_MAX: Final = 1000
"""Segments of the log in an answer; the newest are shown."""
METRICS_GROUPS_MAX: Final = 100
"""Consumer groups with a metric of their own: those that reported last."""
METRICS_REASONS_MAX: Final = 50
"""Reasons of failed connections with a metric of their own; the rest is `other`."""

# --- STDIO ------------------------------------------------------------------------------------
STDIO_RESTART_SECONDS_MIN: Final = 0.5
STDIO_RESTART_SECONDS_MAX: Final = 30.0
"""Delay before a program is restarted: from the first to the second value, doubled each time. It is
reset after the program ran for longer than the second."""
STDIO_STOP_SECONDS_MAX: Final = 5.0
"""From closing a program's input to killing it."""
STDIO_ERROR_LINE_BYTES_MAX: Final = 4 * KIB
"""A line of a program's standard error in the log; longer lines are truncated."""

# --- Hooks ------------------------------------------------------------------------------------
HOOKS_MAX: Final = 1024
"""Hooks of all middleware together."""
HOOK_TIMEOUT_MS_MAX: Final = 60_000
"""Longest timeout that a hook may set."""
HOOK_CALLS_LATE_MAX: Final = 16_384
"""Expired calls of one middleware remembered to recognise late answers."""

# --- Arrow Flight -----------------------------------------------------------------------------
FLIGHT_READS_MAX: Final = 32
"""Ranges read at the same time; further ones are queued."""
FLIGHT_WAIT_SECONDS_MAX: Final = 60.0
"""Time that a range or a task of a sink waits in the queue: longer than a stalled client lasts."""
FLIGHT_REQUEST_BYTES_MAX: Final = 4 * MIB
"""A ticket, descriptor or action, and the header of a record batch."""
FLIGHT_FIRST_BYTES_MAX: Final = 256 * KIB
"""A message on a connection that has no authenticated call yet: a larger one waits."""
FLIGHT_FIRST_STREAMS_MAX: Final = 8
"""Calls at the same time on such a connection; further ones wait."""
FLIGHT_FIRST_SECONDS_MAX: Final = 10.0
"""From a connection to its first authenticated call, TLS included."""
FLIGHT_MESSAGE_BYTES_MAX: Final = 32 * MIB
"""A message of a client: a record batch with at least one row of the greatest size."""
FLIGHT_ARRIVING_BYTES_MAX: Final = 256 * MIB
"""Unfinished messages of all Flight clients together; above it they are not read."""
FLIGHT_HEADERS_BYTES_MAX: Final = 64 * KIB
"""Headers of a call, compressed."""
FLIGHT_STREAMS_MAX: Final = 128
"""Calls at the same time on one connection; further ones wait."""
FLIGHT_CONNECTIONS_MAX: Final = 1024
FLIGHT_CONNECTIONS_PER_ADDRESS_MAX: Final = 512
"""Connections of Flight clients, in all and of one address; further ones are closed."""
FLIGHT_STALL_SECONDS_MAX: Final = 30.0
"""Time that a Flight client may neither read what waits for it nor send what it has begun."""
FLIGHT_RELAY_BYTES: Final = 1 * MIB
"""Bytes of a connection that wait in the front for one side, before the other is not read."""
FLIGHT_READS_PER_PRINCIPAL_MAX: Final = 24
"""Ranges that one principal reads at the same time, so that others find a place."""
FLIGHT_WRITES_MAX: Final = 16
FLIGHT_WRITES_PER_PRINCIPAL_MAX: Final = 12
"""Tasks of sinks that send rows at the same time, in all and of one principal; others wait."""
FLIGHT_SPLITS_MAX: Final = 65_536
"""Parts that a range is split into."""
FLIGHT_CALL_SECONDS_MAX: Final = 30.0
"""Timeout of calls that do no work."""
FLIGHT_AWAY_SECONDS_MAX: Final = 60.0
"""Time that a Spark job waits for a broker that stopped answering."""
FLIGHT_RETRY_SECONDS: Final = 0.5
"""Interval of the calls meanwhile."""
FLIGHT_KEPT_BYTES: Final = 32 * MIB
"""Unconfirmed rows of a task kept in memory for a retry; others are in a temporary file."""
FLIGHT_PUBLISH_SECONDS_MAX: Final = 600.0
"""Timeout for the publication of an epoch, and for the next rows of a range."""
SINK_VALUE_BYTES_MAX: Final = 15 * MIB
"""A value published as a row: with its frame it fits all protocols except herald."""
SINK_KEY_BYTES_MAX: Final = 1 * MIB
"""A key published as a row."""
SINK_SCHEMA_BYTES_MAX: Final = 64 * KIB
"""The schema of rows, with its metadata."""
SINK_EXPANDED_BYTES_MAX: Final = 64 * MIB
"""A column of a record batch that is sent as a dictionary, when it is expanded."""
SINK_STAGED_BYTES_MAX: Final = 16 * GIB
"""Staged rows of one writer on disk."""
SINK_WINDOW_BYTES: Final = 8 * MIB
SINK_WINDOW_GROUPS: Final = 64
"""Rows of an epoch sent to the log at a time, in bytes and in groups."""
SINK_WRITERS_MAX: Final = 10_000
"""Writers whose state is kept."""
SINK_STALE_SECONDS_MAX: Final = 7 * 24 * 3600.0
"""Time that staged rows are kept on disk."""
SINK_FINAL_SECONDS_MAX: Final = 24 * 3600.0
"""Time that the state of a finished writer is kept."""

# --- The pipeline -----------------------------------------------------------------------------
PIPELINE_ROW_GROUP_ROWS_MAX: Final = 500_000
"""In a row group of a file of the bronze table."""
PIPELINE_SMALL_BATCH_ROWS_MAX: Final = 10_000
"""Offsets of a batch that is written without a Spark job."""
PIPELINE_BATCH_ROWS_MAX: Final = 1_000_000
"""Rows that a stage processes at a time."""
PIPELINE_COMPACT_FILES_MIN: Final = 16
"""Small files of one day that trigger compaction."""
PIPELINE_COMPACT_BYTES: Final = 128 * MIB
"""Size of compacted files; larger files are not compacted."""
PIPELINE_MAINTAIN_SECONDS: Final = 30.0
"""Interval of the search for files to compact."""
PIPELINE_VACUUM_HOURS: Final = 168
"""Time that obsolete files are kept for readers of an earlier version."""
PIPELINE_VACUUM_HOURS_MIN: Final = 1
"""Its minimum: the time that a step has to commit its files."""
PIPELINE_ERROR_CHARACTERS_MAX: Final = 200
"""Characters of a value in the error text of a dead letter."""
PIPELINE_STOP_SECONDS_MAX: Final = 60.0
"""Time that a stopping stage has to finish its work."""

# --- The command line -------------------------------------------------------------------------
PUB_VALUE_BYTES_MAX: Final = 16 * MIB
"""A value read from standard input, whole or as a line."""
PUB_BATCH_MESSAGES: Final = 10_000
PUB_BATCH_BYTES: Final = 4 * MIB
"""Messages, and their bytes, that `pub` sends before it checks for refusals."""
SUB_BATCHES_WAITING_MAX: Final = 16
"""Received messages of `sub` that are not printed yet; above it the clients pause."""
REPLY_COMMANDS_MAX: Final = 256
"""Commands that `reply` may run at the same time."""
REPLY_BYTES_MAX: Final = 15 * MIB
"""Answer of a command of `reply`: with its frame it fits a fleximq message."""
REPLY_ERROR_CHARACTERS_MAX: Final = 200
"""Standard error of a failed command in the answer."""
BENCH_CLIENTS_MAX: Final = 256
"""Publishers or subscribers of a load test, each a process."""
BENCH_VALUE_BYTES_MAX: Final = 65_535
"""A value of a load test: the longest that all five protocols carry."""
BENCH_LATENCIES_MAX: Final = 10_000_000
"""Latencies recorded by one subscriber of a load test."""
BENCH_LOG_BYTES_MAX: Final = 8 * GIB
"""Log size of a broker that is started for a load test."""
BENCH_QUIET_SECONDS_MAX: Final = 10.0
"""Time without messages after which missing ones count as lost."""
BENCH_HANDSHAKE_SECONDS_MAX: Final = 5.0
"""Time for the first client of a load test to connect."""

# --- Decoding captures and checking servers ---------------------------------------------------
DECODE_CAPTURE_BYTES_MAX: Final = 1 * GIB
"""A capture, which is held in memory."""
DECODE_SEARCH_BYTES_MAX: Final = 16 * MIB
"""Bytes searched for the next frame after framing is lost."""
DECODE_REORDER_BYTES_MAX: Final = 16 * MIB
"""Bytes of one side of a TCP connection buffered after a gap. With more, the missing bytes count as
lost."""
DECODE_VALUE_CHARACTERS_MAX: Final = 200
"""Characters shown of a payload's value."""
DECODE_VALUE_BYTES_MAX: Final = 16
"""Bytes of a field that are shown."""
CONFORM_SECONDS_MAX: Final = 5.0
"""Time that a conformance case waits for bytes that the server must send."""
CONFORM_SILENCE_SECONDS: Final = 0.2
"""Time that a conformance case waits for bytes that the server must not send."""
CONFORM_SILENT_CASES_MAX: Final = 3
"""Cases without any byte from the server after which it counts as not speaking the protocol."""
CONFORM_SHOWN_BYTES_MAX: Final = 96
"""Bytes of a failed expectation that are shown."""
