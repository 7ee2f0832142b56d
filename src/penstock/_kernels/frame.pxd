"""The C helpers of frame.h and crc32.h, as Cython sees them."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "frame.h" nogil:
    enum:
        LOOSE
    uint64_t UUID_VARIANT
    bint has_message_id(uint64_t log_id, uint32_t partition, uint64_t offset)
    uint64_t message_id_head(uint64_t log_id, uint32_t partition)
    uint16_t load16(const uint8_t *p, bint big)
    uint32_t load32(const uint8_t *p, bint big)
    uint64_t load64(const uint8_t *p, bint big)
    void store16(uint8_t *p, uint16_t v, bint big)
    void store32(uint8_t *p, uint32_t v, bint big)
    void store64(uint8_t *p, uint64_t v, bint big)
    size_t advance(size_t at, size_t step, size_t *expected)
    uint8_t *put(
        uint8_t *to, const uint8_t *to_end, const uint8_t *source, const uint8_t *source_end, size_t n
    )
    bint same16(const uint8_t *a, const uint8_t *b)
    bint same_bytes(const uint8_t *a, const uint8_t *b, size_t n)
    uint64_t hash_bytes(const uint8_t *p, size_t n, uint64_t seed)
    bint utf8_valid(const uint8_t *p, size_t n)
