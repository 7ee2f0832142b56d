"""Limits of the console's process."""

from typing import Final

__all__ = [
    "ADDRESS_CHARACTERS_MAX",
    "ANONYMOUS_REFUSED_SECONDS",
    "ANSWER_BYTES_MAX",
    "ANSWER_SECONDS_MAX",
    "CURRENT_SECONDS",
    "FRAME_BYTES_MAX",
    "GROUPS_CHARTED_MAX",
    "HISTORY_SECONDS",
    "LOGIN_BYTES_MAX",
    "MEASURE_SECONDS",
    "PAGE_ROWS",
    "REFUSED_SECONDS",
    "SESSIONS_MAX",
    "SESSION_SECONDS_MAX",
    "SORTED_TOPICS_MAX",
    "SQL_CHARACTERS_MAX",
    "SQL_DESCRIPTORS_MAX",
    "SQL_MEMORY_BYTES_MAX",
    "SQL_MESSAGES_MAX",
    "SQL_MESSAGES_PAGE",
    "SQL_NICENESS",
    "SQL_QUERIES_MAX",
    "SQL_REQUEST_BYTES_MAX",
    "SQL_RESULT_BYTES_MAX",
    "SQL_ROWS_MAX",
    "SQL_SECONDS_MAX",
    "SQL_STOP_SECONDS",
    "SQL_TOPICS_MAX",
    "SQL_TOPIC_BYTES_MAX",
    "SQL_TOPIC_SECONDS_MAX",
    "SQL_VALUE_BYTES",
    "STATE_SECONDS",
    "TAIL_MESSAGES_MAX",
    "TOPIC_ROWS",
]

ANSWER_SECONDS_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 16 << 20
"""How long an answer of the broker may take, and its size."""
HISTORY_SECONDS: Final = 15 * 60
MEASURE_SECONDS: Final = 2.0
"""How far charts reach back, and the time between two of their points."""
CURRENT_SECONDS: Final = 5 * MEASURE_SECONDS
"""How long a point counts as current; longer times without a point are gaps in charts."""
STATE_SECONDS: Final = 10.0
"""How often the state of log, limits and refusals is read."""
REFUSED_SECONDS: Final = 10 * 60.0
"""How long the console does not use credentials of its own that the broker refused."""
ANONYMOUS_REFUSED_SECONDS: Final = 60.0
"""How long visitors without credentials are sent to the log-in without asking the broker again."""
GROUPS_CHARTED_MAX: Final = 50
"""Consumer groups whose lag is kept over time."""
PAGE_ROWS: Final = 50
"""Rows of a table; further ones are on the next page."""
TOPIC_ROWS: Final = 25
"""Topics on a page, each with its last value."""
SORTED_TOPICS_MAX: Final = 5000
"""Topics of a broker up to which a list is sorted by name: the broker looks at all of them."""
TAIL_MESSAGES_MAX: Final = 100
"""Messages that a live tail shows."""
FRAME_BYTES_MAX: Final = 64 << 10
"""Values up to this size are shown as frames."""
SESSIONS_MAX: Final = 1000
SESSION_SECONDS_MAX: Final = 12 * 60 * 60
"""Log-ins that are kept, and for how long; above the number, the oldest ends."""
LOGIN_BYTES_MAX: Final = 16 << 10
"""Body of a log-in."""
ADDRESS_CHARACTERS_MAX: Final = 2000
"""Address of a page that a log-in leads back to; a longer one leads to the first page."""
SQL_CHARACTERS_MAX: Final = 20_000
SQL_ROWS_MAX: Final = 1000
SQL_SECONDS_MAX: Final = 20.0
"""Length of a query, rows of its result, and how long it may run."""
SQL_STOP_SECONDS: Final = 2.0
"""Time for a query that took too long to stop; after it, its process is killed."""
SQL_QUERIES_MAX: Final = 2
"""Queries that run at a time, each in a process of its own; one principal runs one of them."""
SQL_MEMORY_BYTES_MAX: Final = 1 << 30
"""Memory of a query process, in addition to its modules; DuckDB's own limit is half of it."""
SQL_DESCRIPTORS_MAX: Final = 256
"""Open files of a query over tables of a pipeline; a query over topics only can open none."""
SQL_REQUEST_BYTES_MAX: Final = 1 << 20
SQL_RESULT_BYTES_MAX: Final = 8 << 20
"""Size of a request to a query process, without the messages of topics, and of its answer."""
SQL_NICENESS: Final = 10
"""Niceness of a query process: its priority is lower than that of broker and console."""
SQL_TOPICS_MAX: Final = 4
"""Topics and patterns in a query."""
SQL_MESSAGES_MAX: Final = 5000
SQL_MESSAGES_PAGE: Final = 500
SQL_TOPIC_BYTES_MAX: Final = 16 << 20
SQL_TOPIC_SECONDS_MAX: Final = 10.0
"""The newest messages of a topic that a query sees, those of one request, their size in base64, and
how long they are looked for."""
SQL_VALUE_BYTES: Final = 64 << 10
"""Longer values are cut."""
