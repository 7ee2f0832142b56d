"""All limits in one place. Each is a default, which its user can override.

A name ends in its unit and in `_MAX`. Limits fixed by a specification say so.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- Topics -----------------------------------------------------------------------------------
TOPIC_NAME_BYTES_MAX: Final = 65_535
"""A topic name in UTF-8, due to the lengths of Rheos. A fleximq header holds 65,526 of them."""
PATTERN_LEVELS_MAX: Final = 128
PATTERN_BYTES_MAX: Final = 4 * KIB
"""Levels and UTF-8 bytes of a subscription with wildcards: each costs time for each topic."""
PATTERN_SHAPES_MAX: Final = 64
"""Different places of wildcards in the subscriptions of one client. At most one pattern of each
shape matches a topic, so this bounds the patterns of a client that match the same topic."""
EXPRESSION_BYTES_MAX: Final = 4 * KIB
"""A regular expression that selects topics, in UTF-8."""
EXPRESSION_STATES_MAX: Final = 10_000
"""States of such an expression, about: `.{1000}` has 8,000. Each may cost a step for each byte."""
TOPICS_MAX: Final = 1_048_576
"""Topics of one process."""
TOPIC_NAMES_BYTES_MAX: Final = 64 * MIB
"""Names of all topics together, in UTF-8: 64 bytes for each of TOPICS_MAX."""
TOPIC_BYTES: Final = 800
TOPIC_NAME_COPIES: Final = 5
"""Memory of a topic without its name, and for each byte of its name. The topic table has 4 copies
of it, the index of the active segment one; measured with names of 23, 2,000 and 30,000 bytes."""
TOPICS_MEMORY_SHARE: Final = 0.25
"""Part of the memory budget, without its fixed parts, that the names of topics may take, and again
the rest of topics."""
TOPICS_MEMORY_BYTES_MIN: Final = 1 * MIB
"""The same at least, so that a broker with the smallest budget has 1,310 topics."""
TOPICS_PER_PRINCIPAL_MAX: Final = 131_072
"""Topics that one principal created, or one address without credentials: an eighth of all."""
TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX: Final = 8 * MIB
"""Names of those topics together: an eighth of all bytes."""
TOPICS_REMOVED_MAX: Final = 1_048_576
"""Deleted topics that are remembered, so that their history is not delivered. At the limit the
oldest is forgotten."""

# --- First bytes of a connection --------------------------------------------------------------
DETECT_BYTES_MAX: Final = 132 * KIB
"""Bytes read to detect the protocol of a connection. The longest Rheos packet that is valid in both
versions, and so needs its checksum for detection, has 131,100."""
CHECKSUM_SECONDS_MAX: Final = 0.05
"""Wait for the checksum of a Rheos packet that is valid in both versions; without it, it is v1."""

# --- Connections and descriptors --------------------------------------------------------------
DESCRIPTORS_MAX: Final = 1_048_576
"""Open files that the broker asks the system for."""
DESCRIPTORS_RESERVED: Final = 128
"""Open files that connections do not use: segments that are written, read and rolled, indexes,
listeners, Flight, event loop."""
DESCRIPTORS_PER_PROGRAM: Final = 8
"""Pipes of a program that the broker runs, and those of its start."""
EVICTION_SEARCH_MAX: Final = 1024
"""Connections that are checked for one that may give way to a new one."""

# --- Headers of a message ---------------------------------------------------------------------
MESSAGE_HEADERS_MAX: Final = 65_535
"""The largest count in a LamaMQ message. MESSAGE_HEADERS_BYTES_MAX is reached first."""
MESSAGE_HEADERS_BYTES_MAX: Final = 1 * MIB
"""All headers of one message together, lengths included."""

# --- Batches ----------------------------------------------------------------------------------
SCAN_NEW_NAMES_MAX: Final = 256
"""New topics or headers that one scan adds, about 20 µs each; then the caller may yield."""
BATCH_ROWS_MAX: Final = 65_536
BATCH_SENDERS_MAX: Final = 64
"""Distinct Rheos client ids in one batch; the next one starts a new batch."""

# --- The log ----------------------------------------------------------------------------------
BLOCK_ROWS_MAX: Final = 65_536
"""Messages of one group: the range of a 16-bit index into its dictionary of topics."""
BLOCK_BYTES_MAX: Final = 4 * MIB
"""Bytes of values, headers, keys and names of one group; the last messages may exceed it."""
SPARE_BLOCK_BYTES_MAX: Final = 5 * MIB
SPARE_BLOCKS_MAX: Final = 8
"""Written groups whose memory is kept for the next ones, about as much as the log's backlog."""
SEGMENT_BYTES_MAX: Final = 256 * MIB
"""A segment that is larger is sealed before the next commit."""
LOG_WAITING_BYTES_MAX: Final = 32 * MIB
"""Bytes of messages that wait for the disk, with their headers and an overhead for each message;
above it publishers are paused."""
LOG_CACHE_BYTES_MAX: Final = 128 * MIB
"""Synced bytes of the active segment that stay in the page cache."""
LOG_FREE_BYTES_MIN: Final = 16 * MIB
"""Free disk space that a full log waits for."""
LOG_RETRY_SECONDS: Final = 1.0
"""Interval of retries after the log failed."""
LOG_RETENTION_SECONDS: Final = 10.0
LOG_RETENTION_SECONDS_MIN: Final = 0.25
"""Longest and shortest interval of the search for expired segments."""
RETENTION_SEGMENTS: Final = 8
"""Segments into which the bounds of retention divide a log, so that whole segments can be removed
in time."""
RETENTION_SEGMENT_BYTES_MIN: Final = 64 * KIB
"""Smallest segments that a bound of bytes asks for."""
REMOVED_TOPICS_MAX: Final = 65_536
REMOVED_TOPICS_CHARACTERS_MAX: Final = 4 * MIB
"""Topics, and characters of their names, that retention remembers having removed messages of."""
REMOVED_ROW_GROUPS_READ_MAX: Final = 64
"""Row groups of a removed segment that are read for their topics, since its index has none."""
QUOTA_EVENT_SECONDS: Final = 60.0
"""A principal that is at a quota is told in the log and the audit log once in so long."""
RETENTION_RULES_MAX: Final = 64
"""Tables of `[[retention]]`."""
RETENTION_SEARCH_SHARE: Final = 0.05
"""Share of the time that the search for last messages of topics may take."""
TOPIC_HORIZONS_NAMES_MAX: Final = 262_144
"""Topics whose rules of retention a reader remembers."""
LOG_READERS: Final = 2
"""Threads that read the log for replay and catch-up."""
INDEX_TOPICS_MAX: Final = 1024
"""Topics of one group listed in the segment index; a group with more matches any topic."""
INDEX_CACHE_BYTES_MAX: Final = 64 * MIB
"""Indexes of closed segments kept in memory, and entries of the active one."""
ROW_INDEX_GROUP_BYTES_MIN: Final = 16 * KIB
"""A group that is smaller than this is read whole: its metadata are a good part of it."""
ROW_INDEX_RARE: Final = 512
"""A topic is rare in a group if it has one message there, or at most one of so many. Its messages
are read one by one. The number is an estimate, not measured."""
ROW_INDEX_BUCKET_ENTRIES: Final = 64
"""Entries of a row index that are read to find a topic, about."""
ROW_INDEX_NAMES_MAX: Final = 64
"""Topics of one group that are looked up in a row index; for more the group is read."""
ROW_INDEX_FETCH_ROWS: Final = 64
"""Single messages that one read of the log takes."""
ROW_INDEX_ACTIVE_BYTES: Final = 16 * MIB
"""New row groups of the active segment are indexed in memory when they have so many bytes."""
ROW_INDEX_ACTIVE_SECONDS: Final = 1.0
"""Interval in which the size of the active segment is checked."""
ROW_INDEX_ACTIVE_SHARE: Final = 0.25
"""Part of INDEX_CACHE_BYTES_MAX for entries of the active segment: 10 bytes for each message of a
rare topic."""
ROW_INDEX_TABLES_MAX: Final = 16
"""Row indexes whose tables are kept in memory: some kilobytes each, 400 for the smallest groups."""
MERGE_GROUPS_MIN: Final = 256
"""Row groups of a closed segment from which it is rewritten to merge them."""
MERGE_GROUP_BYTES: Final = 2048
"""Least bytes of a row group's metadata, which merging saves."""
MERGE_SAVED_PART_MIN: Final = 0.25
"""Part of a segment's size that merging must save."""
MERGE_BYTES_MAX: Final = 512 * KIB
"""Bytes of the messages of a merged row group. It is small, so that a read of one topic reads few
other messages, and so that it fits into a record of Kafka."""
MERGE_READ_BYTES_MAX: Final = 8 * MIB
"""Bytes of row groups that are in memory to make a merged one."""
MERGE_SYNC_BYTES: Final = 4 * MIB
"""Bytes of a rewritten segment that are synced together: commits and a stop wait for no more."""
MERGE_SECONDS_MAX: Final = 60.0
"""Time between the first and the last message of a merged row group. Retention by age is exact to
this time."""
MERGE_SHARE: Final = 0.25
"""Share of its time that the merging thread works; it sleeps for the rest."""
ROW_INDEX_SHARE: Final = 0.25
"""Share of the time that writing row indexes may take of one thread."""
OBJECT_STORE_PIECE_BYTES: Final = 1 * MIB
"""Bytes of a file per write to or read from an object store."""
OBJECT_STORE_CONNECT_SECONDS_MAX: Final = 5.0
"""Time to connect to an object store."""
OBJECT_STORE_REQUEST_SECONDS_MAX: Final = 30.0
"""Silence of an object store after which a request fails."""
OBJECT_STORE_TRIES_MAX: Final = 3
"""Attempts of one request to an object store before it fails."""
TIER_SECONDS: Final = 1.0
"""Interval of the search for segments to upload, and to delete."""
TIER_RETRY_SECONDS: Final = 1.0
"""Wait after an object store has failed, before segments are read from it again."""
TIER_RETRY_SECONDS_MAX: Final = 60.0
"""Longest wait before a failed upload is tried again; it doubles from TIER_SECONDS."""
TIER_CACHE_BYTES_MAX: Final = 4 * GIB
"""Segments from an object store that are kept on the local disk; the newest always is."""
TIER_READERS: Final = 2
"""Threads that read segments in an object store for replay; LOG_READERS read the local disk."""
TIER_OPEN_TRIES_MAX: Final = 3
"""Attempts to open a segment of the cache, which another process may delete meanwhile."""
TIER_MEMORY_BYTES: Final = 16 * MIB
"""Memory for copies to and from the object store: a part of an upload, which pyarrow buffers, and
the pieces of the upload and of TIER_READERS downloads."""
TIER_STOP_SECONDS_MAX: Final = 5.0
"""Time for an upload to end when the broker stops; it is started anew after the start."""
NODES_MAX: Final = 4096
"""Nodes of a log on Kafka: a message id has 12 bits for the partition."""
KAFKA_COMMIT_SECONDS_MAX: Final = 10.0
"""How long a commit waits for Kafka, while publishers are paused; then its messages fail."""
KAFKA_TRANSACTION_SECONDS_MORE: Final = 5.0
"""If a node ends or is suspended in a transaction, Kafka aborts it this time after the commit would
have failed. Until then, other nodes do not see later records of the state topic."""
KAFKA_OPEN_SECONDS_MAX: Final = 30.0
"""How long a broker that starts waits for Kafka."""
KAFKA_REFUSED_SECONDS_MAX: Final = 5.0
"""How long a broker that starts tries again after Kafka has refused TLS or SASL."""
KAFKA_READ_SECONDS_MAX: Final = 10.0
"""How long a read waits for Kafka."""
KAFKA_DELETIONS_MAX: Final = 10_000
"""Deletions in the state topic whose places a node remembers, so that a reader that lags does not
restore deleted keys."""
KAFKA_SESSIONS_MAX: Final = 100_000
"""Records in the state topic of clients that may resume; above it the oldest are removed."""
KAFKA_SESSIONS_REMOVED_MAX: Final = 10_000
"""Records of clients that a node removes from the state topic each LOG_RETENTION_SECONDS."""
KAFKA_TOPICS_FORGOTTEN_MAX: Final = 10_000
"""Deleted topics that a node removes from the state topic each LOG_RETENTION_SECONDS, as long as
there are more than TOPICS_REMOVED_MAX."""
KAFKA_STATE_SECONDS_MAX: Final = 20.0
"""How long a thread waits for one that reads the state topic; then its reader is replaced."""
KAFKA_AGAIN_SECONDS_MAX: Final = 2.0
"""Time limit of a repeated request about a partition for which Kafka did not answer."""
KAFKA_PAUSE_SECONDS_MIN: Final = 5.0
KAFKA_PAUSE_SECONDS_MAX: Final = 60.0
"""Shortest and longest pause before such a request. Each pause is twice as long as the last one."""
KAFKA_CLOSE_SECONDS_MAX: Final = 2.0
"""How long a broker that stops waits for Kafka: what waits longer has failed."""
KAFKA_READERS_KEPT_MAX: Final = 4
"""Idle connections for reading that are kept."""
KAFKA_RECORD_BYTES_MIN: Final = 4 * MIB
"""Least `max.message.bytes` of the topic: a message with all its headers must fit."""
KAFKA_RECORD_BYTES_MAX: Final = 64 * MIB
"""`max.message.bytes` of a topic that Penstock creates; Kafka takes requests of 100 MiB."""
KAFKA_STATE_RECORD_BYTES_MAX: Final = 4 * MIB
"""`max.message.bytes` of a state topic that Penstock creates: the state of a consumer group with
GROUP_UNACKED_MAX messages that are not contiguous fits."""
KAFKA_BLOCK_ROWS_MAX: Final = 8192
"""Messages of one record of Kafka."""
KAFKA_BLOCK_BYTES_MAX: Final = 512 * KIB
"""Bytes of values, headers, keys and names of one record of Kafka; the last messages may exceed it.

It was faster than 4 MiB in one pair of runs; see docs/performance.md.
"""
KAFKA_CACHE_BYTES_MAX: Final = 64 * MIB
"""Groups of all partitions kept in memory, for subscribers that are a little behind; at most
INDEX_CACHE_SHARE of the budget."""
KAFKA_AHEAD_BYTES_MAX: Final = 16 * MIB
"""Records that one consumer of librdkafka fetches ahead."""
KAFKA_FOLLOW_BYTES_MAX: Final = 16 * MIB
"""Row groups of other nodes that wait for the event loop; one more may have any size."""
KAFKA_FOLLOW_RETRY_SECONDS: Final = 1.0
"""Delay before the partitions of other nodes are read again, after Kafka refused it."""
KAFKA_PARTITIONS_SECONDS: Final = 1.0
"""How often a node looks for partitions of new nodes."""
KAFKA_STILL_SECONDS: Final = 5.0
"""A consumer that gets nothing for so long, though there is something to read, is replaced."""
KAFKA_CHECK_SECONDS_MAX: Final = 5.0
"""Time for which the thread that reads other partitions asks for their ends before it reads on."""
KAFKA_WATCH_SECONDS: Final = 1.0
"""How often the event loop looks whether the partitions of other nodes are read."""
KAFKA_HANG_SECONDS_MAX: Final = 30.0
"""A thread that reads other partitions and stays in one call of librdkafka for so long is replaced.

Calls have limits of KAFKA_READ_SECONDS_MAX; one that takes longer ignores its limit.
"""
KAFKA_HANGING_MAX: Final = 8
"""Threads that were replaced and have not ended: with so many, no other is replaced."""
KAFKA_CLOSING_MAX: Final = 16
"""Clients of Kafka that do not close: with so many, the node is not ready."""
KAFKA_UNFOLLOWED_SECONDS_MAX: Final = 30.0
"""A node that has not read the partitions of other nodes for so long is not ready."""
KAFKA_TAKE_ATTEMPTS_MAX: Final = 3
"""Attempts to process a record of another node, or to read a row group for a session, that fail
by a bug; then the record or row group is skipped."""
KAFKA_TOPIC_SECONDS_MAX: Final = 1.0
"""How long messages of a new topic wait for the record of the topic, of the same transaction."""
KAFKA_ROW_BYTES: Final = 256
"""Part of a record for each message beside its value, about twice what is needed."""
KAFKA_NAMES_BYTES: Final = 256 * KIB
"""Part of a record for the topic and the sender of one large message, and for metadata."""
KAFKA_NAMESPACES_MAX: Final = 64
"""Patterns of `[storage.kafka] namespaces`."""
KAFKA_NAMESPACE_BYTES_MIN: Final = 4 * KIB
"""Bytes of consecutive messages of one namespace from which they go to its Kafka topic."""
KAFKA_NAMESPACE_NAMES_MAX: Final = 100_000
"""Topics whose namespace the writer thread caches."""
INTEREST_PATTERNS_MAX: Final = 1024
"""Patterns of namespaces, of all nodes, that a node compares with its subscriptions; row groups of
further patterns are always read."""
KAFKA_REFERENCES_PASSED_MAX: Final = 4096
"""References that one fetch for a session passes over; then other fetches have their turn."""
KAFKA_REFERENCE_SECONDS_MAX: Final = 5.0
"""How long the follower waits for the record that a reference names; then sessions read it from the
log."""
KAFKA_REFERENCE_AGAIN_SECONDS_MAX: Final = 1.0
"""The same while Kafka does not return records of a namespace: other partitions wait meanwhile."""
KAFKA_REFERENCE_PAUSE_SECONDS_MAX: Final = 60.0
"""Longest pause before the follower waits for the same namespace and partition again. Each pause is
twice as long as the one before it."""
KAFKA_PASSED_SECONDS: Final = 0.25
"""Interval in which passed references are reported to the event loop."""
KAFKA_NAMESPACE_AHEAD: Final = 64
"""Distance in Kafka offsets up to which the consumer reads on to the next record of a namespace,
instead of seeking to it."""
KAFKA_NAMESPACE_AHEAD_BYTES_MAX: Final = 1 * MIB
"""Bytes of the records of a namespace and partition that are read before their references; then
reading pauses."""
KAFKA_ANCHORS_MAX: Final = 65_536
"""Records of a partition whose place in Kafka is remembered."""
KAFKA_BAD_RECORDS_MAX: Final = 10_000
"""Records of other producers, or damaged ones, that are logged and remembered."""
KAFKA_OFFSETS_RESERVED: Final = 1 << 24
"""Offsets that a node reserves ahead, in case retention removes all messages before a restart."""
KAFKA_STEPS_BACK_MIN: Final = 16
"""Kafka offsets that are searched backwards at first for the last message of a partition."""
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
PLAIN_COLUMN_BYTES_MAX: Final = 4 * MIB
"""A column of names, repeated for each row. A name of 64 KiB makes a column of a few messages as
large as that; a batch with more is sent in parts."""
PIECE_READ_BYTES: Final = 8 * MIB
"""Bytes of a segment per read of a Spark task; a larger group is read whole."""
PIECE_GAP_BYTES_MAX: Final = 256 * KIB
"""A gap between two requested groups that is smaller than this is read too."""
COLUMN_GROUP_BYTES_MIN: Final = 64 * KIB
"""A group that is smaller than this is read with all its columns: that takes one call for many."""
COLUMN_GROUPS_READ_BYTES: Final = 1 * MIB
"""Bytes of such groups per read."""
COLUMN_GAP_BYTES_MAX: Final = 8 * KIB
"""A gap between two requested columns that is smaller than this is read too."""
ROW_GROUP_HEAD_BYTES: Final = 8 * KIB
"""Bytes that are read first for the dictionaries and the metadata of a group: those of few topics
fit."""
GROUP_NAME_CHARACTERS_MAX: Final = 128
"""Name of a consumer group."""
GROUPS_MAX: Final = 10_000
"""Consumer groups of a broker. Each is a file."""
GROUPS_PER_PRINCIPAL_MAX: Final = 1000
"""Consumer groups that one principal created, or one address without credentials."""
GROUP_PARTITIONS_MAX: Final = 4096
"""Partitions of one group: a message id has 12 bits for them."""
GROUP_SUBSCRIPTION_BYTES_MAX: Final = 8 * KIB
"""Topics and patterns that a group has reported. Longer ones are not stored, and the group's lag
counts all topics."""
GROUP_ACK_WAIT_SECONDS: Final = 30.0
"""Time without an acknowledgment of a member, after which others get its messages."""
GROUP_DELIVERIES_MAX: Final = 5
"""Failed deliveries of a message after which it goes to the dead letters."""
GROUP_UNACKED_DEFAULT: Final = 16_384
GROUP_UNACKED_MAX: Final = 65_536
"""Messages of a group that are given out and not acknowledged: they stand in its stored state."""
GROUP_DEAD_MAX: Final = 10_000
"""Offsets of dead letters that a group keeps to deliver them again."""
GROUP_DEAD_PER_SECOND_MAX: Final = 100
GROUP_DEAD_BYTES_PER_SECOND_MAX: Final = 1 * MIB
"""Dead letters of all groups of one owner, and their bytes; further ones wait. After a pause, those
of one second are written together."""
GROUP_PIECE_ROWS_MAX: Final = 2048
"""Messages that one member of a group gets at a time."""
GROUP_ORDERED_ROWS_MAX: Final = 65_536
"""Rows that one step of an ordered group searches; they are searched once for each member."""
GROUP_LEASE_BYTES: Final = 400
GROUP_MESSAGE_BYTES: Final = 6
"""Memory of a run of messages that a member has, and of each message in it."""
GROUP_UNACKED_BYTES: Final = 160
GROUP_MEMORY_STEP_BYTES: Final = 4 * KIB
"""Memory drawn for each unacknowledged message of a group, in the owner's share; and the unit in
which it is drawn. A message that waits for delivery takes 70 to 101 bytes, one that waits for its
dead letter 100 to 150 (measured with 2,000 to 65,536 messages)."""
GROUP_REASON_BYTES: Final = 136
"""Memory of the reason that a member gives for a failure, in addition to its characters."""
GROUP_FETCHES_MAX: Final = 4
"""Reads of row groups that run at a time for all consumer groups."""
GROUP_DELIVERY_SECONDS_MAX: Final = 0.001
"""Time of delivery to consumer groups before the event loop does other work."""
GROUP_ASKED_MAX: Final = 16
"""Members whose links are asked for acknowledged bytes at once, without waiting for a poll, if no
member of their group has room."""
GROUPS_SETTLED_AT_ONCE_MAX: Final = 64
GROUP_SETTLED_SECONDS: Final = 0.0001
"""If more groups than this wait for the log, a commit wakes all of them, and further commits wake
none for GROUP_SETTLED_SECONDS times their number."""
GROUP_ROW_GROUPS_MAX: Final = 8
"""Consumer groups that keep row groups in memory until members have room for the rest of them, and
those that were read ahead: two reads of each."""
GROUPS_OPENED_MAX: Final = 16
"""States of groups that were loaded and are used at once; later ones replace the oldest."""
GROUP_SWEEP_SECONDS: Final = 0.2
"""How often states of groups are stored, and messages taken from members that are late."""
GROUPS_STORE_SECONDS_MIN: Final = 0.5
"""Time to store the states of all groups when the broker stops, at least."""
GROUPS_LOCK_SECONDS_MAX: Final = 10.0
"""Time for which a process waits while another process changes a group of the same folder."""
GROUP_OWNER_SECONDS: Final = 5.0
GROUP_OWNER_SILENT_SECONDS: Final = 15.0
"""How often a node of several says that it has the members of a group, and the time without it
after which another node may have them."""
GROUP_POLL_SECONDS: Final = 0.01
GROUP_POLL_FULL_SECONDS: Final = 0.001
"""How often links are asked for the bytes that their peers have acknowledged; the second while a
member has as many messages as it may have."""
GROUP_POLL_MEMBER_SECONDS: Final = 0.00005
"""Shortest time between two polls of a link, for each group of its client."""
GROUP_POLL_SECONDS_MAX: Final = 0.1
"""Longest pause between two polls of a link whose peer acknowledges nothing."""
GROUP_READ_RETRY_SECONDS: Final = 1.0
"""Delay before a failed read or a failed dead letter is tried again."""
GROUP_LOG_SECONDS: Final = 60.0
"""Time between two log events of one kind of a group; those between them are counted."""
GROUP_REASON_CHARACTERS_MAX: Final = 500
"""Text of a member that says why a message failed."""
GROUP_LAG_OFFSETS_MAX: Final = 10_000_000
"""Offsets in which the messages of a group are counted before the time is checked."""
GROUP_LAG_SECONDS_MAX: Final = 1.0
"""Time to count the lag of all groups for one answer; a later one continues."""
GROUP_LAG_TOPICS_MAX: Final = 1000
"""Topics of a group whose lag is counted for each: those with the most messages. The rest is in the
group's lag."""
GROUP_LAG_NAMES_CHARACTERS_MAX: Final = 256 * KIB
"""Names of these topics, in characters: a name may have 64 KiB."""
GROUP_LAG_GROUPS_MAX: Final = 100
"""Groups whose lag is counted by topic: those that reported last. Counts are kept in memory."""
STORED_TOPICS_BYTES_MAX: Final = 64 * MIB
"""Names of topics by closed segment that are kept in memory, for lists of stored topics."""
EXPRESSION_CACHED_CHARACTERS_MAX: Final = 1024
"""A longer regular expression for a pattern is not kept in the cache of Python, which has 512 of
any size."""
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
SPARK_TASK_BYTES: Final = 32 * MIB
"""Bytes of the log per task, if neither the number of tasks nor that of cores is known."""
SPARK_TASK_OFFSETS: Final = 200_000
"""Offsets per task in that case, if the number of bytes is not known either."""
SPARK_EMPTY_OFFSETS_MAX: Final = 1_000_000
"""Offsets without a record of the subscribed topics, after which a stream runs an empty batch: its
checkpoint must not fall far behind the log, which it would search after a restart."""
SPARK_TOPIC_OFFSETS_MAX: Final = 1000
"""Topics with an offset or a time of their own in one read: its range is divided where they start
and end, and each part lists its topics."""
SPARK_TASKS_BY_SIZE_MAX: Final = 256
"""Tasks of a read in that case."""
SPARK_TASKS_MAX: Final = 65_536
"""Tasks that a job may request."""
CAPTURE_READ_BYTES: Final = 8 * MIB
"""Bytes of a capture per read; a larger frame is read whole."""
CAPTURE_ERRORS_MAX: Final = 10_000
"""Errors of a capture combined into one batch for Spark."""

# --- Credentials ------------------------------------------------------------------------------
ARGON2_MEMORY_KIB_MIN: Final = 19 * 1024
ARGON2_TIME_MIN: Final = 2
"""Least cost of a password hash: the smallest parameters of argon2id that OWASP recommends."""
ARGON2_MEMORY_KIB_MAX: Final = 1024 * 1024
"""Memory of one verification: clients without credentials can cause it."""
ARGON2_SALT_BYTES_MIN: Final = 8
ARGON2_HASH_BYTES_MIN: Final = 16
"""RFC 9106, section 3.1: salt. Section 4: a tag of 128 bits or more."""
PASSWORD_CHARACTERS_MIN: Final = 8
"""A new password of `penstock user`."""
PASSWORD_BYTES_MAX: Final = 1024
"""A password from a client; a longer one is wrong."""
VERIFICATION_NICENESS: Final = 15
"""How much lower the priority of processes is that verify passwords, as for nice(1)."""
VERIFICATION_SECONDS_MAX: Final = 60.0
"""Time for one; then its process is ended, and the client is to try again."""
VERIFICATION_RETRY_SECONDS: Final = 1.0
"""After a process could not be started, or ended before its first result, until the next one."""
VERIFICATIONS_AT_ONCE_MAX: Final = 2
"""Passwords verified at the same time. Each needs a core and, by default, 64 MiB."""
VERIFICATIONS_MEMORY_SHARE: Final = 0.25
"""Part of the memory budget that is kept for them, at most."""
REFUSALS_PER_TURN_MAX: Final = 8
"""Waiting passwords that are refused in one turn of the event loop, such as those of a name that
must wait: an address may have 256 of them."""
VERIFICATIONS_WAITING_MAX: Final = 1024
VERIFICATIONS_WAITING_PER_HOST_MAX: Final = 256
"""Passwords that wait for verification, of all clients and of one address. Addresses take turns, so
the queue of one does not delay another."""
LOGIN_FAILURES_FREE: Final = 5
"""Wrong passwords for one user name from one address before the first delay."""
LOGIN_DELAY_SECONDS: Final = 1.0
LOGIN_DELAY_SECONDS_MAX: Final = 30.0
"""Delay after the next wrong password, doubled with each further one up to the second value."""
LOGIN_MEMORY_SECONDS: Final = 300.0
"""Time without a failure after which the failures of an address are forgotten."""
LOGIN_RECORDS_MAX: Final = 10_000
"""Addresses with user names, and addresses, whose failures are remembered. At the limit the oldest
is forgotten."""
GUESSES_MAX: Final = 64
"""Different wrong tokens or keys from one address in LOGIN_MEMORY_SECONDS. One that is repeated
counts once, so that a client with an outdated token does not shut out others at its address."""
JWT_BYTES_MAX: Final = 8 * KIB
"""A JSON Web Token."""
JWT_KEYS_MAX: Final = 8
"""Keys of one issuer: each is tried for a token."""
JWT_SECRET_BYTES_MIN: Final = 32
"""RFC 7518, section 3.2: a secret has at least the size of the hash."""
JWT_RSA_BITS_MIN: Final = 2048
"""RFC 7518, section 3.3."""
JWT_LEEWAY_SECONDS: Final = 30.0
"""Difference between the clocks of issuer and broker."""
USERS_FILE_BYTES_MAX: Final = 64 * MIB
"""The file of `penstock user`."""
USERS_LOCK_SECONDS_MAX: Final = 10.0
"""Time that `penstock user` waits for another one that changes the file."""
PRINCIPAL_NAME_CHARACTERS_MAX: Final = 200
"""The name of a principal."""
IDENTITY_NAME_BYTES_MAX: Final = 1024
"""The name of an identity, in a handshake and in the configuration. It is below 64 KiB, so that a
length read in the wrong byte order is never plausible."""

# --- The broker -------------------------------------------------------------------------------
SESSIONS_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions of one client."""
AUDIT_BYTES_MAX: Final = 16 * MIB
"""The file of the audit log; then it is renamed, and a new one begins."""
AUDIT_FILES_MAX: Final = 5
"""Files of the audit log, the current one among them; the oldest is removed."""
AUDIT_TEXT_CHARACTERS_MAX: Final = 256
"""Text of one field in the audit log; the rest is cut."""
AUDIT_LIST_ENTRIES_MAX: Final = 256
"""Entries of a list in the audit log."""
LOGGED_NAMES_MAX: Final = 16
"""Names in one log event; the audit log has all of them."""
AUDIT_WAITING_EVENTS_MAX: Final = 4096
"""Events that wait for the disk; further ones are counted, not written."""
AUDIT_WINDOW_SECONDS: Final = 60.0
AUDIT_REPEATS_MAX: Final = 5
"""Like events, from one address and principal, that are written in each AUDIT_WINDOW_SECONDS. Their
number is written when the time is over."""
AUDIT_KINDS_MAX: Final = 256
"""Kinds of like events that are told apart in that time, for each event; all others count as one
kind. So clients cause at most about 90 lines a second."""
ACCESS_DECISIONS_MAX: Final = 4096
"""Cached decisions of the rules of one principal; then the cache starts again."""
ACCESS_NAME_CHARACTERS_MAX: Final = 256
"""A name in that cache, so that it takes at most about 2 MiB; longer ones are decided each time."""
RIGHTS_STEP: Final = 16
"""Subscriptions that are checked in one step after the rules have changed."""
SUBSCRIPTION_BYTES_MAX: Final = 4 * MIB
"""Patterns of one client together, in UTF-8: 400 bytes for each of SUBSCRIPTIONS_MAX."""
EARLY_OFFSETS_MAX: Final = 16_384
"""Offsets of one client in partitions that are not found yet: more than SUBSCRIPTIONS_MAX."""
EARLY_OFFSET_BYTES: Final = 128
"""Memory of each of these offsets, as measured."""
EARLY_PATTERN_BYTES: Final = 512
"""Memory of each pattern with such offsets."""
OUT_BUFFER_BYTES_MAX: Final = 32 * MIB
"""Unsent bytes of one client; the last batch may exceed it."""
HOLD_SECONDS_MAX: Final = 1.0
"""Time that publishers wait for a subscriber that does not read, before it loses messages. Applies
only without a log."""
ANSWERS_WAITING_BYTES_MAX: Final = 4 * MIB
"""Answers of one client that wait for the disk; above it the client is not read."""
LAST_TOPICS_MAX: Final = TOPICS_MAX
"""Topics whose last messages one subscription gets. Each takes 8 bytes until it is sent."""
LAST_RECORD_TOPICS_MAX: Final = 2 * TOPICS_MAX
"""Topics in the record of last messages, deleted ones included."""
LAST_RECORD_NAMES_BYTES_MAX: Final = 2 * TOPIC_NAMES_BYTES_MAX
"""Names of those topics together."""
LAST_RECORD_GROWTH: Final = 8
"""The record is written anew when the closed segments after it have so many times its bytes."""
LAST_RECORD_SHARE: Final = 0.25
"""Share of the time for which the thread that writes the record works."""
DEDUPE_SECONDS: Final = 120.0
"""How long the key of a message is known: a second message with it is not stored."""
DEDUPE_KEYS_MAX: Final = 65_536
"""Keys of messages that are kept. Above it, the principal with the most keys loses its oldest one;
clients without credentials are counted by address."""
DEDUPE_STEP_KEYS: Final = 64
DEDUPE_SWEEP_SECONDS: Final = 1.0
"""Keys that are read or forgotten in one step, and least time between two searches for old keys."""
DEDUPE_KEYS_CEILING: Final = 4_194_304
"""The highest value of that limit."""
DEDUPE_KEY_BYTES_MAX: Final = 255
"""Bytes of a key."""
DEDUPE_ENTRY_BYTES: Final = 400
"""Memory of a key that is known, at most."""
LAST_RUN_TOPICS: Final = 512
"""Topics looked up in one step, for subscriptions to the last messages."""
LAST_COMPARED_TOPICS: Final = 16
"""The same, if other subscriptions of the session may send these messages."""
LAST_MEANING_TEXTS: Final = 16
"""Subscriptions of one meaning that are checked for each topic; for more, the result is cached."""
CATCH_UP_PIECE_BYTES: Final = 1 * MIB
"""Messages from the log encoded for one client at a time."""
CATCH_UP_READ_BYTES: Final = 256 * KIB
CATCH_UP_GROUPS_MAX: Final = 16
"""Small row groups that one read of the log takes together. Each of them takes some 0.0001 s of the
event loop."""
TOPIC_FILTER_PATTERNS_MAX: Final = 64
"""Patterns of a client that catches up; with more of them, no topic is skipped."""
CATCH_UP_FETCHES_MAX: Final = 4
"""Concurrent reads of the log for catch-up; further ones are queued."""
CATCH_UP_SHARED_BYTES_MIN: Final = 64 * KIB
CATCH_UP_SHARED_ROWS_MAX: Final = 64
"""Frames from the log of at least so many bytes, and of at most so many messages, that clients
share if they catch up at the same time."""
JOIN_QUEUE_BYTES_MAX: Final = 8 * MIB
"""Live messages buffered for a client until it has caught up."""
SHARED_PAYLOAD_BYTES_MIN: Final = 16 * KIB
"""A payload for several clients, each with its own header, that is written by itself, so that all
of them share it; a smaller one is copied behind each header."""
GATHERED_VALUE_BYTES_MIN: Final = 4 * KIB
"""Values of this size are sent from the buffer in which they were received, without a copy, if they
are at least half of what is sent. Below it, the parts of a system call cost more than the copy."""
HANDOVER_BYTES_MAX: Final = 512 * KIB
"""Unsent bytes of one client that its transport may hold: more than the frames of one full read.
The rest waits in a queue of references, because transports copy, and TLS encrypts, all of it."""
TLS_HANDOVER_BYTES_MAX: Final = 64 * KIB
"""The same with TLS, whose transports hold text and ciphertext of each client."""
LATE_WRITE_BYTES_MAX: Final = 64 * KIB
"""Bytes of a client that wait for the end of a turn of the event loop, to be sent together."""
LATE_WRITE_SECONDS_MAX: Final = 0.001
"""The time that they wait in a long turn."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""Bytes that a connection reads at once. All connections of an event loop share a read buffer."""
LARGE_READ_BYTES: Final = 1024 * KIB
"""The same for a connection that reads alone and whose input is quick to process, as large messages
are: a quarter of the reads, each with the cost of Python."""
LARGE_READ_SECONDS_MAX: Final = 0.0004
"""Time for RECEIVE_BUFFER_BYTES of input up to which it is quick to process."""
LARGE_READS_PER_TURN_MAX: Final = 8
"""Connections that read a part of a large frame in one turn of the event loop: a part has
RECEIVE_BUFFER_BYTES at most, so that all take about a millisecond."""
TURN_SECONDS_MAX: Final = 0.004
"""Time for the frames of one client before others are served."""
BUSY_READ_SECONDS_MIN: Final = 0.0005
"""A client one of whose reads took longer is busy, until one takes less, at most BUSY_SECONDS."""
BUSY_SECONDS: Final = 0.02
"""Time for which a client stays busy after such a read. While threads compete for the interpreter
lock, a read of one message may take that long: the next one of its client must not wait for it."""
BUSY_TURN_SECONDS_MAX: Final = 0.002
"""Time for the frames of all clients in one turn of the event loop; then busy clients wait."""
PRINCIPAL_TURN_SECONDS_MAX: Final = 0.001
"""Time for the frames of the clients of one principal in one turn of the event loop, while other
principals use it; then the others of them wait."""
SOURCE_SECONDS: Final = 0.5
"""Time over which the use of the event loop by the clients of one address is summed up: what lies
further back counts half as much for each such time."""
SOURCE_SECONDS_MIN: Final = 0.001
"""An address that used less of it lately does not share the loop with the others."""
LOOP_BEHIND_SECONDS: Final = 0.05
"""Time in which the event loop counts as behind after a read was deferred while others waited."""
BEHIND_TURN_DIVISOR: Final = 4
"""The times above are this much shorter while the event loop is behind."""
LOOP_TURN_SECONDS_MAX: Final = 0.1
"""Time for the frames of all clients in one turn of the event loop; then all further ones wait."""
DEFERRED_BYTES_MAX: Final = 32 * MIB
"""Received bytes that wait for a later turn; above it nothing is put off."""
LINGER_SECONDS_MAX: Final = 10.0
"""Time without reads after which a closing peer loses its unsent data."""
RESUME_SECONDS_MAX: Final = 60.0
"""Time that the subscriptions of a disconnected herald client are kept."""
SILENT_INTERVALS_MAX: Final = 3
"""Intervals of `herald.ping_seconds` without a byte after which a connection ends: a client that is
busy for one interval, or two, loses nothing."""
HALF_CLOSED_PROBE_SECONDS: Final = (0.05, 0.5, 5.0, 30.0)
"""Times between PINGs to a subscriber that has half-closed, the last for all further ones. Only a
write shows whether its system still has the connection."""
SENT_POSITIONS_MAX: Final = 32
"""Positions of a session whose bytes are not acknowledged. Above it every second one is dropped: a
client that reconnects gets more messages twice."""
SENT_POSITIONS_SECONDS: Final = (1.0, 8.0)
"""Times between two notes of a session's position: while it gets messages, and at most. A client
whose connection was reset may get the messages of that time twice."""
REQUESTS_REMOTE_MAX: Final = 100_000
"""Requests of clients of other nodes that wait for the answers of clients of this one."""
ROAMING_SECONDS_MAX: Final = 3.0
"""How long a client that was connected to another node waits for that node to give it up."""
ROAMING_COMMIT_SECONDS_MAX: Final = 1.0
"""How long a node waits for the commit of a client's last messages before it hands the client's
positions over to another node."""
ROAMING_RENEWAL_SECONDS: Final = 15.0
"""Age at which the state of a connected client is written again, so that it does not expire."""
ROAMING_RENEWALS_MAX: Final = 1000
"""States of connected clients that a node writes again in one second."""
ROAMING_ARRIVALS_MAX: Final = 10_000
"""Clients that wait for other nodes at the same time."""
RESUMES_MAX: Final = 10_000
"""Disconnected clients whose subscriptions are kept."""
HANDSHAKE_SECONDS_MAX: Final = 10
"""From the connection to the end of the handshake."""

# --- Stalls of the event loop -----------------------------------------------------------------
STALL_SECONDS_MIN: Final = 0.05
"""Delay of the event loop that counts as a stall."""
WATCHDOG_INTERVAL_SECONDS: Final = 0.03
"""Interval at which the watchdog measures the delay: about 30 wake-ups a second."""
STALL_LOG_SECONDS: Final = 10.0
"""At most one stall is logged in this time; the next log event says how many were not."""
LOG_EVENTS_PER_SECOND_MAX: Final = 100
"""Log events of one name in a second; the next one says how many were left out."""
LOG_LINES_WAITING_MAX: Final = 10_000
"""Lines of the broker's log that wait for the reader of standard error."""
TIMERS_SECONDS_MAX: Final = 0.02
"""Time for timers that are due together; the others wait for the next turn of the loop."""
SLICE_SECONDS_MAX: Final = 0.001
"""Background work of the event loop before others are served."""
SLICE_FIRST_STEPS: Final = 16
"""Steps of such work that are done at once, within that time; the rest waits for later turns."""
ROUTING_STEPS: Final = 64
"""Topics that a subscription is applied to in one step, which takes less than a millisecond."""
ROUTES_SWEPT_MAX: Final = 5_000
"""Unused patterns that are removed from the routes together."""
PLANS_MAX: Final = 4_096
PLANS_BYTES_MAX: Final = 32 * MIB
"""Combinations of kinds of routes whose audiences are cached, and their approximate bytes."""
ROUTED_ROWS_MAX: Final = 20_000
ROUTED_ROWS_MIN: Final = 256
"""Messages of one batch: the first, divided by the number of patterns that may match each, but not
less than the second. Each message may have a route of its own, which takes some microseconds."""
ROUTE_PATTERNS_MAX: Final = 500_000
"""Patterns of routes that are cached."""
# --- Memory -----------------------------------------------------------------------------------
MEMORY_BYTES_MIN: Final = 64 * MIB
"""The smallest budget that can be set: some room for clients beside the fixed parts."""
MEMORY_DEFAULT_BYTES_MIN: Final = 128 * MIB
MEMORY_DEFAULT_BYTES_MAX: Final = 64 * GIB
"""Bounds of the default of the budget, which is half of the memory that the process may use."""
MEMORY_FIXED_SHARE: Final = 0.75
"""Part of the budget that caches, the log's backlog and arriving messages of Flight may take: the
rest is for clients."""
MEMORY_ADDRESS_SHARE: Final = 0.25
MEMORY_PRINCIPAL_SHARE: Final = 0.25
"""Part of the budget that the clients at one address, or of one principal, may hold."""
MEMORY_UNAUTHENTICATED_SHARE: Final = 0.25
"""Part of the budget that all clients before the end of their handshake may hold."""
MEMORY_BLOCK_BYTES: Final = 64 * KIB
"""A connection draws from the budget in blocks, so that most changes touch no shared counter."""
MEMORY_CONNECTION_BYTES: Final = 8 * KIB
"""Drawn for each connection: 4 KiB for its objects, the rest for small buffers."""
MEMORY_TLS_BYTES: Final = 128 * KIB
"""Drawn for a TLS connection in addition: buffers of the TLS library and of the event loop."""
MEMORY_STALL_SECONDS_MAX: Final = 10.0
"""Time in which a connection must move a block; else it is cut if others wait for its memory."""
MEMORY_UNFAIR_SECONDS_MAX: Final = 2.0
"""The same, if its address or principal holds twice as much as that of a client that waits."""
MEMORY_WAIT_SECONDS_MAX: Final = 30.0
"""Time that a connection with an unfinished frame waits for memory; then it is refused."""
MEMORY_SWEEP_SECONDS: Final = 0.25
"""Interval of the search for connections without progress."""
MEMORY_EVICTIONS_PER_SWEEP: Final = 20
"""Connections that a search ends: each takes some of the event loop's time."""
MEMORY_SERVED_PER_TURN: Final = 50
"""Connections that get the memory they wait for in one turn of the event loop."""
MEMORY_ACCOUNTS_PER_TICK: Final = 200
"""Connections that are measured at a time, 20 times a second: less than a millisecond."""
MEMORY_SHORT_READ_BYTES: Final = 16 * KIB
"""Bytes per read while the budget is nearly used up."""
MEMORY_OVERHEAD_SHARE_MAX: Final = 0.5
"""Part of the budget that is drawn for memory of the process that no account holds: the rest stays
for clients, so that the broker answers even if an allocator keeps what was freed."""
MEMORY_RELEASE_BYTES_MIN: Final = 32 * MIB
MEMORY_RELEASE_SECONDS: Final = 1.0
"""Growth of the process after which freed memory is returned to the system, and the interval."""
MALLOC_ARENAS_MAX: Final = 4
"""Arenas of the C allocator: each keeps freed memory of its own."""
MALLOC_MMAP_BYTES_MIN: Final = 12 * MIB
"""Buffers of at least this size get pages of their own, which are returned at once. It is above the
size of the log's blocks: at 4 MiB, publishing took a tenth more processor time."""
MALLOC_TRIM_BYTES: Final = 16 * MIB
"""Freed memory at the end of each arena that is kept: malloc_trim returns that of one of them."""
INPUT_GROWTH_BYTES_MAX: Final = 4 * MIB
"""Growth of the buffer of an unfinished frame: doubled up to this, then by this much."""
REPLAY_FIXED_BYTES: Final = 16 * MIB
"""Row groups of CATCH_UP_FETCHES_MAX concurrent reads of the log."""
INDEX_CACHE_SHARE: Final = 1 / 16
"""Part of the budget for indexes of segments, at most INDEX_CACHE_BYTES_MAX. With the log on Kafka,
for row groups, at most KAFKA_CACHE_BYTES_MAX."""

# --- Session numbers --------------------------------------------------------------------------
SESSION_NUMBERS_BLOCK: Final = 10_000
"""Session numbers that are reserved on disk at a time, and skipped after a crash."""

# --- Clients that vanish ----------------------------------------------------------------------
TCP_IDLE_SECONDS: Final = 60
"""A TCP connection over which nothing comes for so long is probed by the system."""
TCP_PROBE_SECONDS: Final = 10
"""Time between two probes."""
TCP_PROBES_MAX: Final = 3
"""Probes without an answer after which the connection ends."""

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
REQUEST_ID_BYTES_CEILING: Final = 8 * KIB
"""The setting of REQUEST_ID_BYTES_MAX: REQUESTS_LATE_MAX ids are remembered."""
SERVICES_PER_CLIENT_MAX: Final = 64
"""Paths that one client serves by name."""
SERVICE_SERVERS_MAX: Final = 256
"""Clients that serve one path: the least busy one is searched for each request."""
SERVICE_PATH_BYTES_MAX: Final = 1024
"""Path of a service, and reply topic of a request. A longer path cannot be registered."""
SERVICE_LINE_BYTES_MAX: Final = 68 * KIB
"""The first line of a request or an answer on a topic: an id and the name of a topic."""
SERVICE_QUEUE_BYTES_MAX: Final = 1 * MIB
"""Requests on topics that the broker has not processed yet; then it reads them from the log."""
STORED_SPAN_BYTES: Final = 64 * KIB
STORED_SPANS_MAX: Final = 64
"""Ranges of offsets by which the bytes of a principal in the log are counted: the least of each,
and their number."""
STORED_SAVE_SECONDS: Final = 5.0
"""How often these counts are kept beside the log."""
SERVICE_SHARE_SECONDS: Final = 0.05
"""Time in which changes of the services of a node are collected before other nodes are told."""
SERVICE_NODE_SILENT_SECONDS: Final = 30.0
"""Time without a report, of one each LOG_RETENTION_SECONDS, after which a node has no services."""
FLEXIMQ_LISTING_ENTRIES_MAX: Final = 10_000
FLEXIMQ_LISTING_BYTES_MAX: Final = 1 * MIB
"""Entries that the broker's own services read for one answer, and bytes of their names."""
FLEXIMQ_LISTING_STEP: Final = 200
"""Entries that are read before others are served."""
FLEXIMQ_LISTING_SECONDS: Final = 1.0
"""Time for which an unchanged list is given again to clients of the same principal."""
FLEXIMQ_LISTINGS_MAX: Final = 16
"""Answers that are kept for that time."""

# --- UDP --------------------------------------------------------------------------------------
UDP_SESSION_SECONDS_MAX: Final = 60
"""Idle time after which a session ends."""
UDP_SESSIONS_MAX: Final = 10_000
"""Addresses with a session on one listener; further ones are ignored."""
UDP_SESSIONS_PER_ADDRESS_MAX: Final = 256
"""Sessions of one IP address on one listener, so that one machine cannot take all of them; many
machines may share an address."""
UDP_UNPROVEN_SECONDS: Final = 10.0
"""Silence after which a session without a proof of its address gives way, if all are in use."""
UDP_PROOF_BITS: Final = 20
"""Bits that an address shows before it is sent more than it sent: a guess in a million."""
UDP_PROOF_PINGS_MAX: Final = 16
"""PINGs of one round of the proof."""
UDP_PROOF_WINDOW_MS: Final = 100
"""From the first PONG of a round to its last."""
UDP_PROOF_SECONDS_MAX: Final = 2.0
"""From the PINGs of a round to the first PONG; then another round begins."""
UDP_UNPROVEN_BYTES_MAX: Final = 1 * KIB
"""Answers that wait until more may be sent to an address; further ones are dropped."""
UDP_UNPROVEN_REQUESTS_MAX: Final = 512
"""Requests that wait for the proof of an address; further ones are dropped. A client may subscribe
to all 256 channels."""
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

# --- Traces -----------------------------------------------------------------------------------
TRACES_PER_SECOND_MAX: Final = 100
"""Messages of a process that are traced; further ones are not."""
TRACES_WAITING_MAX: Final = 4096
"""Traced messages that wait for the disk; above it the oldest have no span for that."""
TRACE_HEADERS_LOOKED_MAX: Final = 64
"""Rows of a batch that are looked at for a context whose publisher has sampled it."""
TRACE_SPANS_WAITING_MAX: Final = 2048
"""Spans that wait for the collector; above it they are dropped."""
TRACE_EXPORT_SECONDS: Final = 1.0
TRACE_EXPORT_SECONDS_MAX: Final = 5.0
"""How often spans are sent to the collector, and how long that may take."""
TRACED_PER_TASK_MAX: Final = 32
"""Messages of a Spark task that have a span."""

# --- HTTP -------------------------------------------------------------------------------------
HTTP_REQUEST_LINE_BYTES_MAX: Final = 8 * KIB
"""Bytes of a request read to detect a WebSocket handshake."""
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB
"""Request line and headers of a request."""
HTTP_INPUT_BYTES_MAX: Final = 4 * HTTP_HEAD_BYTES_MAX
"""Memory of an HTTP connection before its client is authenticated: a head, and a part of the body
that is read with it."""
HTTP_BODY_BYTES_MAX: Final = 4 * MIB
"""Body of a request: a message in JSON."""
HTTP_CONNECTIONS_MAX: Final = 1024
"""HTTP connections of one listener; requests of further ones are answered with 503."""
HTTP_ANONYMOUS_REQUESTS_PER_SECOND_MAX: Final = 500
"""Requests without credentials of one address; further ones are answered with 429."""
HTTP_CALLERS_MAX: Final = 10_000
"""Callers whose rates are counted; above it the one that was idle for longest is forgotten."""
HTTP_HEALTH_CONNECTIONS: Final = 16
"""Connections of one listener beyond the limit of connections, for health checks."""
HTTP_HEALTH_SECONDS_MAX: Final = 2.0
"""From such a connection to the end of its first line."""
HTTP_IDLE_SECONDS_MAX: Final = 30.0
"""Time that a connection stays open without a request."""
HTTP_RETRY_SECONDS: Final = 1
"""Time after which a client shall repeat a request that found no memory."""
HTTP_REQUEST_SECONDS_MAX: Final = 30.0
"""From a request to its answer, including the time for its body."""
HTTP_PAGE_ENTRIES: Final = 100
HTTP_PAGE_ENTRIES_MAX: Final = 1000
"""Default and maximum number of entries on one page of a list."""
HTTP_TOPICS_COUNTED_MAX: Final = 10_000
"""Above this number of topics, a list does not count those that a caller with limited rights may
read."""
HTTP_SLICE_SECONDS: Final = 0.002
"""Time for the entries of a list before yielding to the event loop."""
HTTP_REQUESTS_PER_TURN_MAX: Final = 4
"""Requests that begin in one turn of the event loop, health checks apart."""
HTTP_LISTS_MAX: Final = 8
"""Requests that read lists at the same time; further ones wait."""
HTTP_DELETED_TOPICS_MAX: Final = 1000
"""Topics that one request deletes."""
HTTP_RATES_SECONDS_MAX: Final = 10.0
"""Longest measurement of rates for one answer."""
HTTP_RATES_MAX: Final = 8
"""Concurrent measurements of rates; each holds the counts of all topics."""
HTTP_RATES_TOPICS_MAX: Final = 100
HTTP_RATES_CLIENTS_MAX: Final = 100
"""Busiest topics and slow clients in an answer with rates."""
HTTP_SEGMENTS_MAX: Final = 1000
"""Segments of the log in an answer; the newest are shown."""
HTTP_MESSAGES: Final = 50
HTTP_MESSAGES_MAX: Final = 500
"""Messages in an answer, by default and at most."""
HTTP_MESSAGE_VALUE_BYTES: Final = 4 * KIB
HTTP_MESSAGE_VALUE_BYTES_MAX: Final = 4 * MIB
"""Bytes of a value in an answer, by default and at most; the rest is cut."""
HTTP_MESSAGES_BYTES_MAX: Final = 4 * MIB
"""Bytes of all values in an answer; it has fewer messages instead of more bytes."""
HTTP_READS_MAX: Final = 4
"""Requests that read the log at the same time; others wait."""
HTTP_READ_SECONDS_MAX: Final = 0.5
"""How long one request searches the log; the answer says where to go on."""
HTTP_READ_OFFSETS_MAX: Final = 65_536
"""Offsets that are searched between two looks at the clock."""
HTTP_LAST_VALUE_BYTES_MAX: Final = 1024
"""Bytes of the last value of each topic in a list of topics."""
HTTP_WAITS_MAX: Final = 64
"""Requests that wait for new messages at the same time."""
HTTP_WAIT_SECONDS_MAX: Final = 20.0
HTTP_WAIT_LOOK_SECONDS: Final = 0.2
"""How long a request waits for messages, and how often it looks for them."""
HTTP_VERIFY_BYTES_MAX: Final = 64 * MIB
"""Bytes that one request verifies."""
HTTP_DRAIN_SECONDS_MAX: Final = 3600.0
"""How long a drain over HTTP may let clients read."""
HTTP_REFUSALS_MAX: Final = 500
"""Refusals that are kept for `/api/refusals`; like ones are counted."""
METRICS_GROUPS_MAX: Final = 100
"""Consumer groups with a metric of their own: those that reported last."""
METRICS_GROUP_TOPICS_MAX: Final = 500
"""Pairs of a consumer group and a topic with a metric of their own: those with the highest lag."""
METRICS_REASONS_MAX: Final = 50
"""Reasons of failed connections with a metric of their own; the rest is `other`."""

PASSWORD_VERIFIED_SECONDS: Final = 60.0
PASSWORDS_VERIFIED_MAX: Final = 1000
"""How long a verified password is not hashed again, and how many are remembered."""

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
HOOKS_BYTES_MAX: Final = 4 * MIB
"""Names and conditions of all hooks together: one hook may have 64 conditions of 128 KiB."""
HOOK_TIMEOUT_MS_MAX: Final = 60_000
"""Longest timeout that a hook may set."""
HOOK_TIMEOUT_MS_DEFAULT: Final = 1000
"""Timeout of a hook that sets 0."""
HOOK_CALLS_OPEN_MAX: Final = 16_384
"""Calls of one middleware whose answers are awaited; further events wait for one of them."""
HOOK_CALLS_LATE_MAX: Final = 16_384
"""Expired calls of one middleware remembered to recognise late answers."""
HOOK_GRACE_SECONDS: Final = 60.0
"""Time for which a hook that must consent outlives its connection."""
FORWARDS_RECALLED_MAX: Final = 1 << 20
"""Forwards of a broker that are remembered, so that answers to them are recognised and ignored."""

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
FLIGHT_ARRIVING_SHARE: Final = 1 / 16
FLIGHT_ARRIVING_BYTES_MAX: Final = 256 * MIB
"""Unfinished messages of all Flight clients together; above it they are not read."""
FLIGHT_HEADERS_BYTES_MAX: Final = 64 * KIB
"""Headers of a call, compressed."""
FLIGHT_STREAMS_MAX: Final = 128
"""Calls at the same time on one connection; further ones wait."""
FLIGHT_CALLS_PER_SECOND_MAX: Final = 400
FLIGHT_CALLS_PER_SECOND_PER_ADDRESS_MAX: Final = 100
"""Calls that begin, in all and from one address; after a pause twice as many in the first second.
Further ones wait."""
FLIGHT_CONNECTIONS_MAX: Final = 1024
FLIGHT_CONNECTIONS_PER_ADDRESS_MAX: Final = 512
"""Connections of Flight clients, in all and of one address; further ones are closed."""
FLIGHT_STALL_SECONDS_MAX: Final = 30.0
"""Time that a Flight client may neither read what waits for it nor send what it has begun."""
FLIGHT_RELAY_BYTES: Final = 1 * MIB
"""Bytes of a connection that wait in the front for one side, before the other is not read."""
FLIGHT_LISTINGS_MAX: Final = 8
FLIGHT_LISTINGS_PER_PRINCIPAL_MAX: Final = 6
"""Lists of topics, parts, matches or groups that are made and sent at a time, in all and to one
principal; others wait."""
FLIGHT_READ_COPIES: Final = 2
"""Drawn for each byte that a read takes from a file: the buffer, and the one before it, or selected
rows and plain columns."""
FLIGHT_MEMORY_SECONDS_MAX: Final = 10.0
"""Time that a read waits for memory; then it fails, and the client may retry."""
FLIGHT_READS_PER_PRINCIPAL_MAX: Final = 24
"""Ranges that one principal reads at the same time, so that others find a place."""
FLIGHT_PAUSE_FACTOR: Final = 4.0
FLIGHT_PAUSE_SECONDS_MAX: Final = 0.1
"""Pause of a thread of a Flight call while the event loop is behind, in multiples of the processor
time that it used before: such calls take at most a fifth of a processor then."""
FLIGHT_WORKERS_PER_PROCESSOR: Final = 0.5
"""Threads of Flight calls that work at the same time, at least one: the event loop competes with
them."""
FLIGHT_WRITES_MAX: Final = 16
FLIGHT_WRITES_PER_PRINCIPAL_MAX: Final = 12
"""Tasks of sinks that send rows at the same time, in all and of one principal; others wait."""
FLIGHT_SPLITS_MAX: Final = 65_536
"""Parts that a range is split into."""
FLIGHT_CALL_SECONDS_MAX: Final = 30.0
"""Timeout of calls that do no work."""
SPARK_KAFKA_SECONDS_MAX: Final = 60.0
"""Time that a Spark job waits for a Kafka that does not answer."""
SPARK_KAFKA_CACHE_BYTES: Final = 8 * MIB
"""Row groups that the planning of a Spark job keeps."""
SPARK_KAFKA_RETRY_SECONDS: Final = 0.5
SPARK_TIER_SECONDS_MAX: Final = 60.0
"""Time that a Spark task waits for an object store that does not answer."""
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
"""The columns of a record batch together, when those that are sent as dictionaries are expanded."""
SINK_STAGED_BYTES_MAX: Final = 16 * GIB
"""Staged rows of one writer on disk."""
SINK_WINDOW_BYTES: Final = 8 * MIB
SINK_WINDOW_GROUPS: Final = 64
"""Rows of an epoch sent to the log at a time, in bytes and in groups."""
SINK_WRITERS_MAX: Final = 10_000
"""Writers whose state is kept."""
SINK_WRITERS_PER_PRINCIPAL_MAX: Final = 7_500
"""Writers of one principal, so that others can create some."""
SINK_FORGET_SECONDS_MIN: Final = 60.0
"""Time between looks at all writers for those that may be forgotten, while there are too many."""
SINK_NAMES_CHECKED_BYTES_MAX: Final = 4 * MIB
"""Names of topics of one stream of rows that are known to be allowed."""
SINK_STALE_SECONDS_MAX: Final = 7 * 24 * 3600.0
"""Time that staged rows are kept on disk."""
SINK_FINAL_SECONDS_MAX: Final = 24 * 3600.0
"""Time that the state of a finished writer is kept."""
SINK_RETRY_SECONDS: Final = 5.0
"""Interval in which a node tries to finish failed publications."""
SINK_ELSEWHERE_SECONDS: Final = 2.0
"""Time for which an epoch waits while another node publishes for its writer. Kafka shows the state
of that node a moment after the commit."""
SINK_COMPARED_ROWS_MAX: Final = 1_000_000
"""Rows in the log that staged rows are compared with, when a node takes an epoch over."""
SINK_COMPARED_ROW_BYTES: Final = 160
"""Memory of each of these rows, about."""

# --- The pipeline -----------------------------------------------------------------------------
PIPELINE_ROW_GROUP_ROWS_MAX: Final = 500_000
"""In a row group of a file of the bronze table."""
PIPELINE_READ_ROWS_MAX: Final = 10_000
"""Rows of a file in a bucket that a task passes to Spark at a time."""
PIPELINE_SMALL_BATCH_ROWS_MAX: Final = 10_000
"""Offsets of a batch that is written without a Spark job."""
PIPELINE_SMALL_STEP_ROWS_MAX: Final = 50_000
"""Rows of a step that Spark processes without generated code, whose compilation takes longer."""
PIPELINE_RECENT_ROWS_MAX: Final = 400_000
"""Records of bronze that the driver keeps in memory for the small steps of all tables."""
PIPELINE_RECENT_BYTES_MAX: Final = 64 * MIB
"""Their size."""
PIPELINE_BATCH_ROWS_MAX: Final = 1_000_000
"""Rows that a stage processes at a time."""
PIPELINE_COMMIT_ROWS: Final = 100_000
"""Rows that are committed before their interval has passed, or that were read without a result."""
PIPELINE_COMPACT_FILES_MIN: Final = 8
"""Small files of one day that trigger compaction."""
PIPELINE_COMPACT_BYTES: Final = 128 * MIB
"""Size of compacted files; larger files are not compacted."""
PIPELINE_COMPACT_FACTOR: Final = 8
"""Ratio of the sizes to which files are compacted, one after the other."""
PIPELINE_COMPACT_STEPS: Final = 3
"""Number of these sizes. So a row is rewritten a few times, not at every compaction of its day."""
PIPELINE_Z_ORDER_GROWTH: Final = 2.0
"""Growth of a partition after which it is sorted again: so a row is sorted only a few times."""
PIPELINE_PARTITION_BYTES_MAX: Final = 60
"""Size of a text by which a table is partitioned. It is part of a folder's name, with up to three
characters for a byte, and the column's name; file systems allow 255."""
PIPELINE_MAINTAIN_SECONDS: Final = 15.0
"""Interval of the search for files to compact and to delete."""
PIPELINE_HISTORY_SECONDS: Final = 3600.0
"""Time that replaced files are kept for readers of an earlier version: longer than most queries."""
PIPELINE_HISTORY_PASSES: Final = 60
"""Searches for replaced files and old commits in that time: each reads the names of all commits."""
PIPELINE_COMMITS_FACTOR: Final = 10
"""How much longer commits are kept: a writer needs all commits after its snapshot."""
PIPELINE_CHECKPOINT_COMMITS: Final = 20
"""Commits to delete for which a checkpoint of a table's log is written."""
PIPELINE_VACUUM_HOURS: Final = 168
"""Time after which a file that no commit names is deleted."""
PIPELINE_VACUUM_HOURS_MIN: Final = 1
"""Its minimum: the time that a step has to commit its files."""
PIPELINE_ERROR_CHARACTERS_MAX: Final = 200
"""Characters of a value in the error text of a dead letter."""
PIPELINE_SCHEMA_FILE_BYTES_MAX: Final = 4 * MIB
"""Size of a schema file, which is sent to every worker of Spark."""
PIPELINE_SCHEMA_DEPTH_MAX: Final = 32
"""Structs in structs of a schema file; the plan of a step grows with each."""
PIPELINE_REGISTRY_SECONDS: Final = 10.0
"""Time for one answer of a schema registry."""
PIPELINE_REGISTRY_BYTES_MAX: Final = 4 * MIB
"""Size of such an answer."""
PIPELINE_REGISTRY_REFERENCES_MAX: Final = 64
"""Schemas that one schema refers to: each needs a request."""
PIPELINE_REGISTRY_SCHEMAS_MAX: Final = 1000
"""Schemas that a worker of Spark remembers."""
PIPELINE_REGISTRY_UNKNOWN_MAX: Final = 100
"""Unknown ids that a task asks for. A publisher may send any id, and each needs a request."""
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
