"""The Batch: a run of publish frames as columns over the buffer they were received in."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock._kernels.frame cimport UUID_VARIANT, load32, same16, store64

# The source of a batch is the number of a `penstock.protocols.Protocol`, or one of these.
cdef enum:
    NO_SOURCE = 0
    STORED = 0x100                 # rows of a log; each has a protocol of its own

# Work on no more than this keeps the GIL: it takes less time than taking the GIL back may take.
cdef enum:
    SHORT_BYTES = 65536
    SHORT_ROWS = 1024

cdef enum Feature:
    # The columns that a source fills in addition to topic and value.
    HAS_SENDERS = 0x01             # each row has a 16-byte sender id
    HAS_FRAMES = 0x02              # frames are delivered unchanged
    HAS_HEADERS = 0x04             # header array: u16 count, then u32 length and bytes of each
    HAS_CREATED = 0x08             # the sender's timestamp
    HAS_MESSAGE_IDS = 0x10         # the message id that the acknowledgment repeats
    HAS_STATUS = 0x20
    HAS_FORMS = 0x40               # `flags` has the form of the value

cdef enum:
    SENDERS_MAX = 64
    FRAME_OVERHEAD = 64            # upper bound of a frame without value, topic and headers

cdef enum RowFlag:
    FORM = 0x07                    # three bits of ValueForm
    RESERVED_SET = 0x08            # fleximq: reserved bytes are not zero and are zeroed on delivery
    UUID_NAME = 0x40               # stored rows: the sender's name is a uuid
    HIDDEN = 0x80                  # stored rows: private, or not a publish: never delivered

cdef enum ValueForm:
    # The numbers of penstock.model.Form.
    FORM_PLAIN = 0
    FORM_EMPTY = 1
    FORM_TEXT = 2
    FORM_BINARY = 3
    FORM_MESSAGEPACK = 4

cdef struct SenderId:
    uint8_t uuid[16]
    uint32_t number

cdef struct Columns:
    # `*_start` are positions in the buffer. All sources fill topic and value, and the columns of
    # their features. Where a comment has a semicolon, the part after it holds for rows of a log.
    uint32_t count
    uint32_t capacity
    uint32_t *topic                # topic id; 0xFFFFFFFF in a hidden row with an unknown topic
    uint32_t *value_start
    uint32_t *value_length
    uint32_t *frame_start
    uint32_t *frame_length         # length; upper bound of the frame in any protocol
    uint32_t *headers_start        # the header array, its u16 count included
    uint32_t *headers_length
    uint32_t *message_id
    uint32_t *created              # seconds since the epoch, by the sender; or by the broker
    uint32_t *status               # status plus one, 0 where there is none
    uint8_t *flags                 # RowFlag
    uint16_t *sender               # index into senders; index of the sender's name

cdef struct StoredColumns:
    # Columns that only rows of a log have: Arrow columns, little-endian, read in place.
    const uint8_t *timestamp       # int64, microseconds since the epoch
    const uint8_t *protocol        # uint8, position in the segment's dictionary of protocols
    uint8_t numbers[256]           # the protocol number for each position; 0 if unknown
    const uint8_t *client          # uint32, the sender's number
    const uint8_t *headers         # int32, start of a row's entries; the next start is their end
    const uint8_t *header_keys     # int32, start of an entry's key in header_key_data, likewise
    const uint8_t *header_key_data
    const uint8_t *header_values
    const uint8_t *header_value_data
    uint8_t *sender_uuids          # 16 bytes for each sender's name, set if it is a uuid; owned
    size_t sender_uuids_capacity

cdef struct Piece:
    # Some bytes of a buffer; data is NULL for none.
    const uint8_t *data
    size_t length

cdef class Sender:
    cdef SenderId identity

cdef class Batch:
    cdef Columns columns
    cdef StoredColumns stored
    cdef SenderId senders[SENDERS_MAX]
    cdef uint32_t sender_count
    cdef uint32_t sender_number    # of the connection; with HAS_SENDERS each row has its own uuid
    cdef uint32_t source
    cdef uint32_t features         # of the scanned rows
    cdef bint big                  # byte order of the source, where it has two
    cdef public uint32_t rows_max
    cdef public int64_t timestamp_us
    cdef public bint lends         # whether deliveries may refer to the buffer
    cdef uint64_t loads            # how often a buffer was taken or released
    cdef const uint8_t *data
    cdef size_t data_length
    cdef Py_buffer view
    cdef bint holds_view
    cdef int users                 # active readers; -1 while a scanner fills the batch

    cdef int begin(
        self,
        object data,
        Py_ssize_t start,
        uint32_t source,
        uint32_t features,
        bint big,
        Sender sender,
    ) except -1
    cdef int hold(self, object data) except -1
    cdef void finish(self) noexcept
    cdef int read(self) except -1
    cdef void unread(self) noexcept
    cdef uint32_t row_features(self, uint32_t row) except? 0xFFFFFFFF
    cdef bytes stored_headers(self, uint32_t row)
    cdef uint32_t check_row(self, uint32_t row) except? 0xFFFFFFFF

cdef uint32_t features_of(object carries)
cdef bint grow(Columns *columns, uint32_t rows_max) noexcept nogil
cdef bint reserve(Columns *columns, uint32_t capacity) noexcept nogil

cdef inline const SenderId *sender_of(Batch batch, uint32_t row) noexcept nogil:
    """Return the sender of a scanned row; rows of a log have no SenderId."""
    if batch.features & HAS_SENDERS:
        return &batch.senders[batch.columns.sender[row]]
    return &batch.senders[0]

cdef inline uint32_t source_of(Batch batch, uint32_t row) noexcept nogil:
    """Return the protocol number of a row of a log; 0 if unknown."""
    return batch.stored.numbers[batch.stored.protocol[row]]

cdef inline uint32_t sender_number(Batch batch, uint32_t row) noexcept nogil:
    """Return the number of a row's sender, for scanned and stored rows."""
    if batch.source == STORED:
        return load32(batch.stored.client + 4 * <size_t>row, False)
    return sender_of(batch, row).number

cdef inline void put_sender_uuid(
    Batch batch, uint32_t row, bint stored, uint8_t *out
) noexcept nogil:
    """Write the 16-byte id of a row's sender; `stored` is true for rows of a log."""
    if not stored:
        memcpy(out, sender_of(batch, row).uuid, 16)
    elif batch.columns.flags[row] & UUID_NAME:
        memcpy(out, batch.stored.sender_uuids + 16 * <size_t>batch.columns.sender[row], 16)
    else:                          # the UUIDv8 of penstock.core.sessions.sender_uuid
        store64(out, 0x8000, True)
        store64(out + 8, UUID_VARIANT | sender_number(batch, row), True)

cdef inline int sender_index(Batch batch, const uint8_t *uuid, int likely) noexcept nogil:
    """Return the index of a uuid among the batch's senders, or -1 if there is no room for it."""
    if batch.sender_count and same16(batch.senders[likely].uuid, uuid):
        return likely
    return find_sender(batch, uuid)

cdef int find_sender(Batch batch, const uint8_t *uuid) noexcept nogil

cdef inline bint has_room(Columns *columns, uint32_t rows_max) noexcept nogil:
    return columns.count < rows_max and (
        columns.count < columns.capacity or grow(columns, rows_max)
    )
