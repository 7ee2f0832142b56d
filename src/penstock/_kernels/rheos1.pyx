"""Rheos v1: PUBLISH requests to a Batch, rows of any Batch to responses, acknowledgments in bulk.

    request         0    1        5           21   22   24     24+N  26+N
                    ┌────┬────────┬───────────┬────┬────┬──────┬─────┬─────────┐
                    │ FA │ length │ client id │ 02 │ N  │ name │ M   │ payload │
                    └────┴────────┴───────────┴────┴────┴──────┴─────┴─────────┘
    response        0    1        5           21
                    ┌────┬────────┬───────────┬─────────┐
                    │ 15 │ length │ sender id │ payload │
                    └────┴────────┴───────────┴─────────┘
    acknowledgment  0    1            17
                    ┌────┬────────────┬──────┐
                    │ AC │ message id │ code │
                    └────┴────────────┴──────┘

Integers are little-endian; N and M are 16 bits wide.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from penstock._kernels.batch cimport (
    HAS_SENDERS,
    STORED,
    Batch,
    Columns,
    Sender,
    has_room,
    put_sender_uuid,
    sender_index,
)
from penstock._kernels.delivery cimport Delivery
from penstock._kernels.frame cimport (
    UUID_VARIANT,
    advance,
    has_message_id,
    load16,
    load32,
    message_id_head,
    same_bytes,
    store32,
    store64,
)
from penstock._kernels.names cimport NamesAhead, names_find_ahead, names_look_ahead
from penstock._kernels.scanning cimport Scan
from penstock._kernels.topics cimport TopicTable

from penstock.protocols.rheos1 import RHEOS1, RHEOS1_BODY_BYTES_MAX
from penstock.model import message_id

cdef enum:
    NUMBER = 1                     # of the protocol
    REQUEST_MAGIC = 0xFA
    REQUEST_HEADER = 22
    PUBLISH = 2
    BODY_LENGTHS = 4
    RESPONSE_HEADER = 21
    ACKNOWLEDGMENT_MAGIC = 0xAC
    ACKNOWLEDGMENT = 18

if RHEOS1.number != NUMBER:
    raise ImportError("the number of Rheos v1 is not the kernel's")


def scan(
    object data,
    Py_ssize_t start,
    Batch batch not None,
    TopicTable topics not None,
    Sender sender not None,
    *,
    bint learn_topics=True,
    object permits=None,
    uint32_t body_bytes_max=RHEOS1_BODY_BYTES_MAX,
):
    cdef Scan scan = Scan(batch, topics)
    scan.permit(permits)
    scan.learn_topics = learn_topics
    scan.binary_names = True
    scan.bytes_max = body_bytes_max
    return scan.walk(data, start, NUMBER, HAS_SENDERS, False, sender, run)


cdef size_t run(Scan scan, size_t start) noexcept nogil:
    cdef Columns *columns = &scan.batch.columns
    cdef const uint8_t *data = scan.batch.data
    cdef const uint8_t *frame
    cdef const uint8_t *last_name = NULL
    cdef size_t end = scan.batch.data_length
    cdef size_t expected = 0
    cdef NamesAhead ahead
    cdef uint32_t length, name_length, last_name_length = 0, value_length, topic = 0, row
    cdef int sender = 0
    memset(&ahead, 0, sizeof(ahead))
    while end - start >= REQUEST_HEADER + BODY_LENGTHS:
        frame = data + start
        length = load32(frame + 1, False)
        if (
            frame[0] != REQUEST_MAGIC
            or frame[21] != PUBLISH
            or length > scan.bytes_max
            or end - start - REQUEST_HEADER < length
        ):
            break
        name_length = load16(frame + 22, False)
        if name_length + BODY_LENGTHS > length:
            break
        value_length = load16(frame + 24 + name_length, False)
        if name_length + BODY_LENGTHS + value_length != length:
            break
        if name_length != last_name_length or not last_name or not same_bytes(
            frame + 24, last_name, name_length
        ):
            topic = names_find_ahead(&scan.topics.by_binary_name, frame + 24, name_length, &ahead)
            names_look_ahead(
                &scan.topics.by_binary_name,
                frame + 24,
                name_length,
                REQUEST_HEADER + length,
                data + end,
                &ahead,
            )
            if not topic:
                return scan.stop_at_unknown(start, start + 24, name_length)
            last_name = frame + 24
            last_name_length = name_length
        sender = sender_index(scan.batch, frame + 5, sender)
        if sender < 0 or not scan.permitted(topic - 1) or not has_room(columns, scan.batch.rows_max):
            break
        row = columns.count
        columns.topic[row] = topic - 1
        columns.sender[row] = <uint16_t>sender
        columns.value_start[row] = <uint32_t>start + 26 + name_length
        columns.value_length[row] = value_length
        columns.count = row + 1
        start = advance(start, REQUEST_HEADER + length, &expected)
    return start


def encode(Batch batch not None, TopicTable topics not None, *, object rows=None):
    return Delivery(batch, topics, rows).frames(measure, write)


cdef size_t measure(Delivery delivery) noexcept nogil:
    cdef size_t size = <size_t>RESPONSE_HEADER * delivery.count
    cdef uint32_t position
    for position in range(delivery.count):
        size += delivery.batch.columns.value_length[delivery.row(position)]
    return size


cdef void write(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    cdef const uint32_t *value_start = delivery.batch.columns.value_start
    cdef const uint32_t *value_length = delivery.batch.columns.value_length
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef bint stored = delivery.batch.source == STORED
    cdef uint32_t position, row
    for position in range(delivery.count):
        row = delivery.row(position)
        out[0] = RESPONSE_HEADER
        store32(out + 1, value_length[row], False)
        put_sender_uuid(delivery.batch, row, stored, out + 5)
        out = delivery.place(
            out + RESPONSE_HEADER, end, data + value_start[row], data_end, value_length[row]
        )


def acknowledge(uint32_t count, *, uint64_t log_id, uint32_t partition, uint64_t first_offset):
    if not has_message_id(log_id, partition, first_offset) or not has_message_id(
        log_id, partition, first_offset + count
    ):
        message_id(log_id, partition=partition, offset=first_offset)       # raises ValueError,
        message_id(log_id, partition=partition, offset=first_offset + count)   # or this one does
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count * ACKNOWLEDGMENT)
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(frames)
    cdef uint64_t head = message_id_head(log_id, partition)
    cdef uint32_t row
    for row in range(count):
        out[0] = ACKNOWLEDGMENT_MAGIC
        store64(out + 1, head, True)
        store64(out + 9, UUID_VARIANT | (first_offset + row), True)
        out[17] = 0            # SUCCESS
        out += ACKNOWLEDGMENT
    return frames
