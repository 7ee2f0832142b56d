"""Every bound in one place. Each is a default; what takes it also takes another.

A name ends in its unit and in `_MAX`. Bounds that a specification fixes say so.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- Topics -----------------------------------------------------------------------------------
TOPIC_NAME_BYTES_MAX: Final = 65_526
"""A topic name in UTF-8: the longest that fits all five, set by fleximq's header of 64 KiB."""
PATTERN_LEVELS_MAX: Final = 128
"""Levels of a subscription with wildcards."""
TOPICS_MAX: Final = 1_048_576
"""Topic names one process interns."""

# --- First bytes of a connection --------------------------------------------------------------
DETECT_BYTES_MAX: Final = 132 * KIB
"""Bytes read to learn which protocol a connection speaks: the longest Rheos packet that fits both
versions, and so needs its checksum to be told apart, has 131,100."""

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
"""Messages of one group: what a 16-bit index into its dictionary of topics can tell apart."""
BLOCK_BYTES_MAX: Final = 4 * MIB
"""Values of one group; one message may come on top."""
SEGMENT_BYTES_MAX: Final = 256 * MIB
"""A segment that is larger is sealed before the next commit."""
LOG_WAITING_BYTES_MAX: Final = 32 * MIB
"""Values that wait for the disk; beyond it publishers wait too."""
LOG_CACHE_BYTES_MAX: Final = 128 * MIB
"""What of the segment that is being filled stays in the system's page cache once it is on disk."""
LOG_FREE_BYTES_MIN: Final = 16 * MIB
"""Room on the disk that a log which ran out of it waits for."""
LOG_RETRY_SECONDS: Final = 1.0
"""How often a log that failed tries to work again."""
LOG_RETENTION_SECONDS: Final = 10.0
"""How often it is looked for segments that are not to be kept any longer."""
LOG_READERS: Final = 2
"""Threads that read the log for clients that replay or catch up."""
INDEX_TOPICS_MAX: Final = 1024
"""Topics of one group that its segment's index names; a group with more may hold any."""
INDEX_CACHE_BYTES_MAX: Final = 64 * MIB
"""Indexes of closed segments that are kept in memory."""
WALK_BYTES: Final = 8 * MIB
"""What is read of a segment at a time to check it; a group that is larger is read whole."""
RECORDS_READ_BYTES: Final = 4 * MIB
"""What is read of a segment at a time for its records; a group that is larger is read whole."""
RECORDS_ROWS_MAX: Final = 65_536
RECORDS_BYTES_MAX: Final = 4 * MIB
"""Rows and bytes of small groups that are given as one record batch."""
EXPORT_ROWS_MAX: Final = 1_048_576
EXPORT_BYTES_MAX: Final = 64 * MIB
"""Rows and bytes of a row group of an exported file, all of which are in memory at once."""
PLAIN_COLUMN_BYTES_MAX: Final = 64 * MIB
"""A column of names, each as often as there are rows that have it."""
PIECE_READ_BYTES: Final = 8 * MIB
"""What is read of a segment at a time for a Spark task; a group that is larger is read whole."""
PIECE_GAP_BYTES_MAX: Final = 256 * KIB
"""Groups that nobody asked for are read where they take less than this between two that are."""
GROUP_NAME_CHARACTERS_MAX: Final = 128
"""The name of a group of readers."""
WATERMARK_TRIES_MAX: Final = 5
"""How often a reader looks at a watermark that is being written."""
LOG_OPEN_TRIES_MAX: Final = 5
"""How often a log is looked at again whose segments were removed meanwhile."""

# --- Spark ------------------------------------------------------------------------------------
SPARK_BATCH_ROWS: Final = 50_000
"""Rows that are gathered from small groups before Spark gets them."""
SPARK_BATCH_BYTES: Final = 3840 * KIB
"""Bytes of a batch that Spark gets: Java's Arrow takes memory for each batch as a whole, and keeps
what was let go in pieces of 4 MiB; for more it asks the system anew each time."""
SPARK_TASK_BYTES_MIN: Final = 4 * MIB
"""Bytes of the log that are worth a task of their own, where nobody asks for a number of tasks."""
SPARK_TASK_OFFSETS_MIN: Final = 20_000
"""Likewise offsets, where bytes are not known: over the network."""
SPARK_TASKS_MAX: Final = 65_536
"""Tasks that a job may ask for."""
CAPTURE_READ_BYTES: Final = 8 * MIB
"""What is read of a capture at a time; a frame that is larger is read whole."""
CAPTURE_ERRORS_MAX: Final = 10_000
"""Errors of a capture that are gathered before Spark gets them."""

# --- The broker -------------------------------------------------------------------------------
SESSIONS_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions of one client."""
OUT_BUFFER_BYTES_MAX: Final = 32 * MIB
"""Bytes that wait for one client to read them; one batch may come on top."""
HOLD_SECONDS_MAX: Final = 1.0
"""How long publishers wait for a subscriber that does not read, before it loses messages; only
where no log keeps them for it."""
ANSWERS_WAITING_BYTES_MAX: Final = 4 * MIB
"""Answers of one client that wait for the disk; beyond it the client is not read."""
CATCH_UP_PIECE_BYTES: Final = 1 * MIB
"""Messages from the log that are encoded for one client at a time."""
CATCH_UP_FETCHES_MAX: Final = 4
"""Reads of the log under way for clients that catch up; the others have their turn behind them."""
JOIN_QUEUE_BYTES_MAX: Final = 8 * MIB
"""Live messages that wait for a client until the log has brought it those before them."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""The buffer that all connections of an event loop read into, one after the other."""
TURN_SECONDS_MAX: Final = 0.2
"""How long one client's requests may keep the others waiting; publishes in a run do not count."""
LINGER_SECONDS_MAX: Final = 10.0
"""A peer that is to be closed and reads nothing for so long loses what it has not read."""
RESUME_SECONDS_MAX: Final = 60.0
"""How long the subscriptions of a herald client that was cut off wait for it to come back."""
RESUMES_MAX: Final = 10_000
"""Clients whose subscriptions wait at the same time."""
HANDSHAKE_SECONDS_MAX: Final = 10
"""From the connection to the end of the handshake."""

# --- fleximq sessions -------------------------------------------------------------------------
FLEXIMQ_KEEPALIVE_SECONDS: Final = 30
"""Section 3.7.3: a client that is silent for so long gets a PING."""
FLEXIMQ_KEEPALIVE_INTERVALS_MAX: Final = 3
"""Section 3.7.3: intervals without a byte after which the connection counts as dead."""
REQUEST_SECONDS_MAX: Final = 30
"""From a request to its answer."""
REQUESTS_PENDING_MAX: Final = 1024
"""Requests of one client that wait for their answers."""
REQUESTS_LATE_MAX: Final = 4096
"""Requests that nobody waits for any more and whose answers are still known to be late."""
REQUEST_ID_BYTES_MAX: Final = 1024
"""The `reqrep.id` of a message; a ULID has 26."""
FLEXIMQ_LISTING_ENTRIES_MAX: Final = 10_000
FLEXIMQ_LISTING_BYTES_MAX: Final = 1 * MIB
"""Entries that the broker's own services look at for one answer, and bytes of their names."""

# --- UDP --------------------------------------------------------------------------------------
UDP_SESSION_SECONDS_MAX: Final = 60
"""A session ends when its address has sent nothing for so long."""
UDP_SESSIONS_MAX: Final = 10_000
"""Addresses with a session on one listener; further ones are not heard."""
UDP_BATCH_BYTES_MAX: Final = 1_400
"""Frames that share a datagram: below the usual MTU, so that nothing is fragmented on the way."""
UDP_DATAGRAM_BYTES_MAX: Final = 65_507
"""The largest datagram of IPv4; a frame that does not fit is not sent."""
UDP_WAITING_BYTES_MAX: Final = 64 * KIB
"""Datagrams that wait while a session is paused; further ones are dropped."""
UDP_OUT_BUFFER_BYTES_MAX: Final = 4 * MIB
"""Datagrams of a listener that wait for the system to take them; further ones are dropped."""
UDP_SOCKET_BUFFER_BYTES: Final = 4 * MIB
"""Asked of the system for what arrives while the broker is busy; it may give less."""

# --- IPC --------------------------------------------------------------------------------------
IPC_PATH_BYTES_MAX: Final = 107
"""Fixed by Linux: the size of `sun_path` less its zero."""
IPC_CLAIM_SECONDS_MAX: Final = 2.0
"""How long a starting listener waits for another that is starting in the same directory."""

# --- WebSocket --------------------------------------------------------------------------------
WEBSOCKET_MESSAGE_BYTES_MAX: Final = 32 * MIB
"""A message that a client sends; a larger frame comes in several messages."""
WEBSOCKET_SENT_MESSAGE_BYTES_MAX: Final = 256 * KIB
"""A message that the broker sends; more goes out in several."""
WEBSOCKET_PING_SECONDS: Final = 30
"""How often a WebSocket is pinged, and how long it may take to answer."""
WEBSOCKET_CLOSE_SECONDS_MAX: Final = 2.0
"""How long a client may take to answer the closing handshake."""

# --- HTTP -------------------------------------------------------------------------------------
HTTP_REQUEST_LINE_BYTES_MAX: Final = 8 * KIB
"""Read of a request to learn whether it is for the WebSocket; the rest is judged by its head."""
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB
"""Request line and headers of a request."""
HTTP_BODY_BYTES_MAX: Final = 4 * MIB
"""Body of a request: a message in JSON."""
HTTP_CONNECTIONS_MAX: Final = 1024
"""Connections of one listener that ask for HTTP; requests of further ones are answered with 503."""
HTTP_IDLE_SECONDS_MAX: Final = 30.0
"""How long a connection stays open without a request."""
HTTP_REQUEST_SECONDS_MAX: Final = 30.0
"""From a request to its answer, the time that its body takes included."""
HTTP_PAGE_ENTRIES: Final = 100
HTTP_PAGE_ENTRIES_MAX: Final = 1000
"""Entries of one page of a list, and the most that may be asked for."""
HTTP_SLICE_ENTRIES: Final = 500
"""Topics, clients or subscriptions that are looked at before others have their turn."""
HTTP_RATES_SECONDS_MAX: Final = 10.0
"""The longest that rates are measured for one answer."""
HTTP_RATES_MAX: Final = 8
"""Answers with rates that are measured at the same time: each holds the counts of all topics."""
HTTP_RATES_TOPICS_MAX: Final = 100
HTTP_RATES_CLIENTS_MAX: Final = 100
"""Busiest topics and slow clients in an answer with rates."""
HTTP_SEGMENTS_MAX: Final = 1000
"""Segments of the log in an answer; the newest are shown."""
METRICS_GROUPS_MAX: Final = 100
"""Groups of readers with a metric of their own: those that reported last."""
METRICS_REASONS_MAX: Final = 50
"""Reasons for which connections failed that have a metric of their own; the rest is `other`."""

# --- STDIO ------------------------------------------------------------------------------------
STDIO_RESTART_SECONDS_MIN: Final = 0.5
STDIO_RESTART_SECONDS_MAX: Final = 30.0
"""How long a program that ended stays down: from the one to the other, doubled each time. One that
ran for longer than the latter starts over."""
STDIO_STOP_SECONDS_MAX: Final = 5.0
"""From closing a program's input to killing it."""
STDIO_ERROR_LINE_BYTES_MAX: Final = 4 * KIB
"""A line of a program's standard error in the log; what is longer is cut."""

# --- Hooks ------------------------------------------------------------------------------------
HOOKS_MAX: Final = 1024
"""Hooks of all middleware together."""
HOOK_TIMEOUT_MS_MAX: Final = 60_000
"""The longest that a hook may ask the broker to wait for its answer."""
HOOK_CALLS_LATE_MAX: Final = 16_384
"""Calls of one middleware that nobody waits for any more and whose answers are still known."""

# --- Arrow Flight -----------------------------------------------------------------------------
FLIGHT_READS_MAX: Final = 32
"""Ranges that are read at the same time; further ones have their turn behind them."""
FLIGHT_WAIT_SECONDS_MAX: Final = 60.0
"""How long a range waits for its turn."""
FLIGHT_REQUEST_BYTES_MAX: Final = 4 * MIB
"""A ticket, descriptor or action."""
FLIGHT_SPLITS_MAX: Final = 65_536
"""Ranges that one is split into."""
FLIGHT_CALL_SECONDS_MAX: Final = 30.0
"""How long a client waits for an answer that takes no work."""
FLIGHT_AWAY_SECONDS_MAX: Final = 60.0
"""How long a Spark job waits for a broker that was there and does not answer any more."""
FLIGHT_RETRY_SECONDS: Final = 0.5
"""How often it is called meanwhile."""
FLIGHT_KEPT_BYTES: Final = 32 * MIB
"""Rows of a task on their way to a broker that are kept in memory to be sent again; others are in
a temporary file."""
FLIGHT_PUBLISH_SECONDS_MAX: Final = 600.0
"""How long a client waits for an epoch to be published, or for the next rows of a range."""
SINK_VALUE_BYTES_MAX: Final = 15 * MIB
"""A value that is published as a row: with its frame it fits all protocols but herald."""
SINK_STAGED_BYTES_MAX: Final = 16 * GIB
"""Rows of one writer that wait on disk to be published."""
SINK_WINDOW_BYTES: Final = 8 * MIB
SINK_WINDOW_GROUPS: Final = 64
"""Rows of an epoch, in bytes and in groups, that are on their way to the log at a time."""
SINK_WRITERS_MAX: Final = 10_000
"""Writers that are remembered."""
SINK_STALE_SECONDS_MAX: Final = 7 * 24 * 3600.0
"""How long rows wait on disk to be published."""
SINK_FINAL_SECONDS_MAX: Final = 24 * 3600.0
"""How long a writer is remembered that said it would not come again."""

# --- The pipeline -----------------------------------------------------------------------------
PIPELINE_ROW_GROUP_ROWS_MAX: Final = 500_000
"""In a row group of a file of the bronze table."""
PIPELINE_SMALL_BATCH_ROWS_MAX: Final = 10_000
"""Offsets of a batch that is written without a job of Spark."""
PIPELINE_BATCH_ROWS_MAX: Final = 1_000_000
"""Rows that a stage takes at a time."""
PIPELINE_COMPACT_FILES_MIN: Final = 16
"""Small files of one day that are worth being made into one."""
PIPELINE_COMPACT_BYTES: Final = 128 * MIB
"""What a table's files are compacted to; those that are larger are left alone."""
PIPELINE_MAINTAIN_SECONDS: Final = 30.0
"""How often tables are looked at for files to compact."""
PIPELINE_VACUUM_HOURS: Final = 168
"""How long files that a table no longer needs stay for readers of an earlier version."""
PIPELINE_VACUUM_HOURS_MIN: Final = 1
"""The least of it: a step that has written files has so long to commit them."""
PIPELINE_ERROR_CHARACTERS_MAX: Final = 200
"""What the text of a dead letter's error shows of a value."""
PIPELINE_STOP_SECONDS_MAX: Final = 60.0
"""How long a stage that is told to stop may take to end what it is at."""

# --- The command line -------------------------------------------------------------------------
PUB_VALUE_BYTES_MAX: Final = 16 * MIB
"""A value that is read from standard input, whole or as a line."""
PUB_BATCH_MESSAGES: Final = 10_000
PUB_BATCH_BYTES: Final = 4 * MIB
"""Messages that `pub` sends before it looks for refusals, and their bytes."""
SUB_BATCHES_WAITING_MAX: Final = 16
"""What the clients of `sub` took and nobody has printed; beyond it they take no more."""
REPLY_COMMANDS_MAX: Final = 256
"""Commands that `reply` may be told to run at a time."""
REPLY_BYTES_MAX: Final = 15 * MIB
"""What a command of `reply` may answer: with its frame it fits a fleximq message."""
REPLY_ERROR_CHARACTERS_MAX: Final = 200
"""What an asker is told of a failed command's standard error."""
BENCH_CLIENTS_MAX: Final = 256
"""Publishers or subscribers of a load, each a process."""
BENCH_VALUE_BYTES_MAX: Final = 65_535
"""A value of a load: the longest that all five protocols carry."""
BENCH_LATENCIES_MAX: Final = 10_000_000
"""Latencies that one subscriber of a load notes."""
BENCH_LOG_BYTES_MAX: Final = 8 * GIB
"""What a broker that is started for a load keeps of it."""
BENCH_QUIET_SECONDS_MAX: Final = 10.0
"""How long nothing may arrive before what is missing counts as lost."""
BENCH_HANDSHAKE_SECONDS_MAX: Final = 5.0
"""How long a broker may take to let the first client of a load in."""

# --- Decoding captures and checking servers ---------------------------------------------------
DECODE_CAPTURE_BYTES_MAX: Final = 1 * GIB
"""A capture, all of which is in memory at once."""
DECODE_SEARCH_BYTES_MAX: Final = 16 * MIB
"""How far the next frame is searched for where its place is lost."""
DECODE_REORDER_BYTES_MAX: Final = 16 * MIB
"""What one side of a TCP connection sent ahead of bytes that a capture still lacks; with more, they
count as missing."""
DECODE_VALUE_CHARACTERS_MAX: Final = 200
"""What is shown of a payload's value."""
DECODE_VALUE_BYTES_MAX: Final = 16
"""Bytes of a field that are shown to people."""
CONFORM_SECONDS_MAX: Final = 5.0
"""How long a conformance case waits for bytes that a server owes it."""
CONFORM_SILENCE_SECONDS: Final = 0.2
"""How long a conformance case listens for bytes that must not come."""
CONFORM_SILENT_CASES_MAX: Final = 3
"""Cases a server may leave without one byte, before it is taken to be no server of the protocol."""
CONFORM_SHOWN_BYTES_MAX: Final = 96
"""Bytes of a failed expectation that are shown."""
