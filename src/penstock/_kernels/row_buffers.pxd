"""The buffers of a row group's record batch, by their numbers.

Arrow's buffers, as the record schema orders them (v: validity, o: offsets):

     0 key v o data             16 headers v o            33 correlation v o data
     3 value v o data           18 headers' struct v      36 status v data
     6 topic v index            19 headers' key v o data  38 message_id v o data
     8 partition v data         22 headers' value v o data
    10 offset v data            25 protocol v index       41 client v data
    12 timestamp v data         27 kind v index           43 form v data
    14 timestampType v data     29 sender v index         45
                                31 created v data
"""

from libc.stdint cimport uint8_t

cdef enum:
    VALUE_OFFSETS = 4
    VALUE_DATA = 5
    TOPIC = 7
    TIMESTAMP = 13
    HEADERS = 17
    HEADER_KEYS = 20
    HEADER_KEY_DATA = 21
    HEADER_VALUES = 23
    HEADER_VALUE_DATA = 24
    PROTOCOL = 26
    KIND = 28
    SENDER = 30
    CREATED_VALIDITY = 31
    CREATED = 32
    STATUS_VALIDITY = 36
    STATUS = 37
    CLIENT = 42
    FORMS = 44
    BUFFER_COUNT = 45


cdef struct Region:
    const uint8_t *start
    size_t length
