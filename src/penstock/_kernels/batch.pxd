"""The Batch: a run of publish frames as columns over the buffer they were received in."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from penstock._kernels.frame cimport UUID_VARIANT, load32, same16, store64

cdef enum Source:
    # The numbers of penstock.model.Protocol, and one for rows of a log, which may be of any.
    NO_SOURCE = 0
    RHEOS1 = 1
    RHEOS2 = 2
    FLEXIMQ = 3
    HERALD = 4
    LAMAMQ = 5
    STORED = 6
    FLIGHT = 6                     # in the log's column of protocols, which has no STORED

cdef enum:
    SENDERS_MAX = 64
    FRAME_OVERHEAD = 64            # more than any frame has beside value, topic and headers

cdef enum RowFlag:
    RESERVED_SET = 1               # fleximq: reserved bytes are not zero and must be on the way out
    PAYLOAD_TYPE_SHIFT = 1         # LamaMQ: two bits of payload type

cdef enum StoredFlag:
    FORM = 0x07                    # three bits of StoredForm
    UUID_NAME = 0x40               # the sender's name is the uuid of a Rheos client
    HIDDEN = 0x80                  # private, or not a publish: never delivered

cdef enum StoredForm:
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
    # Starts are positions in the buffer. A source fills only the columns that its encoders need:
    # all fill topic and value; Rheos sender; Rheos v2, fleximq and LamaMQ frame; the others are as
    # their comments say. Rows of a log have what comes after a semicolon.
    uint32_t count
    uint32_t capacity
    uint32_t *topic                # ; 0xFFFFFFFF in a hidden row whose topic is not known
    uint32_t *value_start
    uint32_t *value_length
    uint32_t *frame_start
    uint32_t *frame_length         # ; no less than a frame of any protocol will take
    uint32_t *headers_start        # LamaMQ: the header array, its u16 count included
    uint32_t *headers_length
    uint32_t *message_id           # LamaMQ
    uint32_t *created              # LamaMQ: seconds since the epoch, the sender's; or the broker's
    uint32_t *status               # fleximq: status plus one, 0 where there is none
    uint8_t *flags                 # RowFlag; StoredFlag
    uint16_t *sender               # index into senders; index of the sender's name

cdef struct StoredColumns:
    # What only rows of a log have: Arrow's own columns, little-endian, where they lie in the data.
    const uint8_t *timestamp       # int64, microseconds since the epoch
    const uint8_t *protocol        # uint8, Source less one; FLIGHT less one for a table's rows
    const uint8_t *client          # uint32, the sender's number
    const uint8_t *headers         # int32, where a row's entries begin: the next one's is their end
    const uint8_t *header_keys     # int32, likewise where an entry's key begins in the data
    const uint8_t *header_key_data
    const uint8_t *header_values
    const uint8_t *header_value_data
    uint8_t *sender_uuids          # 16 bytes for each sender's name, set if it is a uuid; owned
    size_t sender_uuids_capacity

cdef class Sender:
    cdef SenderId identity

cdef class Batch:
    cdef Columns columns
    cdef StoredColumns stored
    cdef SenderId senders[SENDERS_MAX]
    cdef uint32_t sender_count
    cdef uint32_t sender_number    # of the connection; Rheos frames bring their own uuid
    cdef Source source
    cdef bint big                  # byte order of the source, where it has two
    cdef public uint32_t rows_max
    cdef public int64_t timestamp_us
    cdef const uint8_t *data
    cdef size_t data_length
    cdef Py_buffer view
    cdef bint holds_view
    cdef int users                 # readers at work; -1 while a scanner fills the batch

    cdef int begin(self, object data, Py_ssize_t start, Source source, bint big, Sender sender) except -1
    cdef int hold(self, object data) except -1
    cdef void finish(self) noexcept
    cdef int read(self) except -1
    cdef void unread(self) noexcept
    cdef bytes stored_headers(self, uint32_t row)
    cdef uint32_t check_row(self, uint32_t row) except? 0xFFFFFFFF

cdef bint grow(Columns *columns, uint32_t rows_max) noexcept nogil
cdef bint reserve(Columns *columns, uint32_t capacity) noexcept nogil

cdef inline const SenderId *sender_of(Batch batch, uint32_t row) noexcept nogil:
    """Who sent a row that was scanned; rows of a log have no SenderId."""
    if batch.source == RHEOS1 or batch.source == RHEOS2:
        return &batch.senders[batch.columns.sender[row]]
    return &batch.senders[0]

cdef inline uint32_t sender_number(Batch batch, uint32_t row) noexcept nogil:
    """The number of a row's sender, whatever the source."""
    if batch.source == STORED:
        return load32(batch.stored.client + 4 * <size_t>row, False)
    return sender_of(batch, row).number

cdef inline void put_sender_uuid(
    Batch batch, uint32_t row, bint stored, uint8_t *out
) noexcept nogil:
    """Write the 16 bytes by which Rheos knows a row's sender; `stored` tells of the source."""
    if not stored:
        memcpy(out, sender_of(batch, row).uuid, 16)
    elif batch.columns.flags[row] & UUID_NAME:
        memcpy(out, batch.stored.sender_uuids + 16 * <size_t>batch.columns.sender[row], 16)
    else:                          # the UUIDv8 of penstock.core.sessions.sender_uuid
        store64(out, 0x8000, True)
        store64(out + 8, UUID_VARIANT | sender_number(batch, row), True)

cdef inline int sender_index(Batch batch, const uint8_t *uuid, int likely) noexcept nogil:
    """Return the index of a Rheos client id among the batch's senders, or -1 if they are full."""
    if batch.sender_count and same16(batch.senders[likely].uuid, uuid):
        return likely
    return find_sender(batch, uuid)

cdef int find_sender(Batch batch, const uint8_t *uuid) noexcept nogil

cdef inline bint has_room(Columns *columns, uint32_t rows_max) noexcept nogil:
    return columns.count < rows_max and (
        columns.count < columns.capacity or grow(columns, rows_max)
    )
