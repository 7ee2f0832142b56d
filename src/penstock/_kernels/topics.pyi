class TopicTable:
    """Topic names interned for the life of the process; only publishable names are accepted.

    Any thread may look names up, also while another adds one.
    """

    def __init__(self, *, capacity: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def intern(self, name: str) -> int:
        """Return the id of a canonical name, adding it if it is new.

        Raise InvalidTopicName if it is not publishable, TopicTableFull at capacity.
        """

    def intern_binary(self, name: bytes) -> int:
        """Return the id of a Rheos name, adding it if it is new; raise as `intern` does."""

    def find(self, name: str) -> int | None:
        """Return the id of a canonical name, or None."""

    def find_binary(self, name: bytes) -> int | None:
        """Return the id of a Rheos name, or None."""

    def name(self, identifier: int) -> str:
        """Return the canonical name of an id; raise IndexError for an unknown id."""

    def bind_channel(self, channel: int, name: str) -> int:
        """Bind a herald channel (0 to 255) to a topic; return the topic's id.

        Raise ValueError if either is bound already, else as `intern` does.
        """

    def channel_topic(self, channel: int) -> int | None:
        """Return the topic id of a herald channel, or None for an unbound channel."""
