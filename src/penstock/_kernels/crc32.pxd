"""The C helpers of crc32.h, as Cython sees them. Call crc32_prepare() once in each module."""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32.h" nogil:
    void crc32_prepare()
    uint32_t crc32_more(uint32_t state, const uint8_t *p, size_t n)
    uint32_t crc32_of(const uint8_t *p, size_t n)
    uint32_t crc32_tables(uint32_t state, const uint8_t *p, size_t n)
