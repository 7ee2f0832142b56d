"""The Batch: a run of publish frames as columns over the buffer they were received in."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from penstock._kernels.frame cimport same16

cdef enum Source:
    # The numbers of penstock.model.Protocol.
    NO_SOURCE = 0
    RHEOS1 = 1
    RHEOS2 = 2
    FLEXIMQ = 3
    HERALD = 4
    LAMAMQ = 5

cdef enum:
    SENDERS_MAX = 64

cdef enum RowFlag:
    RESERVED_SET = 1               # fleximq: reserved bytes are not zero and must be on the way out
    PAYLOAD_TYPE_SHIFT = 1         # LamaMQ: two bits of payload type

cdef struct SenderId:
    uint8_t uuid[16]
    uint32_t number

cdef struct Columns:
    # Starts are positions in the buffer. A source fills only the columns that its encoders need:
    # all fill topic and value; Rheos sender; Rheos v2, fleximq and LamaMQ frame; the last five
    # are as their comments say.
    uint32_t count
    uint32_t capacity
    uint32_t *topic
    uint32_t *value_start
    uint32_t *value_length
    uint32_t *frame_start
    uint32_t *frame_length
    uint32_t *headers_start        # LamaMQ: the header array, its u16 count included
    uint32_t *headers_length
    uint32_t *message_id           # LamaMQ
    uint32_t *created              # LamaMQ: seconds since the epoch, the sender's
    uint32_t *status               # fleximq: status plus one, 0 where there is none
    uint8_t *flags                 # RowFlag
    uint8_t *sender                # index into senders

cdef class Sender:
    cdef SenderId identity

cdef class Batch:
    cdef Columns columns
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
    cdef void finish(self) noexcept
    cdef int read(self) except -1
    cdef void unread(self) noexcept
    cdef uint32_t check_row(self, uint32_t row) except? 0xFFFFFFFF

cdef bint grow(Columns *columns, uint32_t rows_max) noexcept nogil

cdef inline const SenderId *sender_of(Batch batch, uint32_t row) noexcept nogil:
    if batch.source == RHEOS1 or batch.source == RHEOS2:
        return &batch.senders[batch.columns.sender[row]]
    return &batch.senders[0]

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
