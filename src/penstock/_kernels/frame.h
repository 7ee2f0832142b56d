/* Reading and writing the fields of frames: unaligned integers of either byte order, short copies.
 *
 * Everything here is inline. Only copy_loose() reads and writes beyond the bytes it is given.
 */
#ifndef PENSTOCK_FRAME_H
#define PENSTOCK_FRAME_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LOOSE = 32 }; /* how far beyond its end copy_loose() may read and write */

#define UUID_VERSION (UINT64_C(8) << 12) /* RFC 9562, in the first half of an id */
#define UUID_VARIANT (UINT64_C(2) << 62) /* and in the second one */

/* Whether `message_id` of penstock.model takes these numbers. */
static inline int has_message_id(uint64_t log_id, uint32_t partition, uint64_t offset) {
    return !(log_id >> 48 || partition >> 12 || offset >> 62);
}

/* The first 8 bytes of all message ids of a partition, as a big-endian number. */
static inline uint64_t message_id_head(uint64_t log_id, uint32_t partition) {
    return log_id << 16 | UUID_VERSION | partition;
}

static inline uint16_t load16(const uint8_t *p, int big) {
    uint16_t v;
    memcpy(&v, p, 2);
    return big ? be16toh(v) : le16toh(v);
}

static inline uint32_t load32(const uint8_t *p, int big) {
    uint32_t v;
    memcpy(&v, p, 4);
    return big ? be32toh(v) : le32toh(v);
}

static inline uint64_t load64(const uint8_t *p, int big) {
    uint64_t v;
    memcpy(&v, p, 8);
    return big ? be64toh(v) : le64toh(v);
}

static inline void store16(uint8_t *p, uint16_t v, int big) {
    v = big ? htobe16(v) : htole16(v);
    memcpy(p, &v, 2);
}

static inline void store32(uint8_t *p, uint32_t v, int big) {
    v = big ? htobe32(v) : htole32(v);
    memcpy(p, &v, 4);
}

static inline void store64(uint8_t *p, uint64_t v, int big) {
    v = big ? htobe64(v) : htole64(v);
    memcpy(p, &v, 8);
}

/* Returns at + step, where `step` was just read from memory. Frames of one sender are mostly of one
 * size: if the step is the one before it, the sum is made from that, so the processor need not wait
 * for the length of a frame before it looks at the next. The empty asm keeps the compiler from
 * seeing that both sums are the same. */
static inline size_t advance(size_t at, size_t step, size_t *expected) {
    if (__builtin_expect(step == *expected, 1)) {
        size_t same = *expected;
        __asm__("" : "+r"(same));
        return at + same;
    }
    *expected = step;
    return at + step;
}

/* Copies n bytes, then up to LOOSE more: the loop has no tail to branch on. */
static inline void copy_loose(uint8_t *to, const uint8_t *from, size_t n) {
    size_t done = 0;
    do {
        memcpy(to + done, from + done, LOOSE);
        done += LOOSE;
    } while (done < n);
}

/* Copies n bytes from a buffer that ends at from_end to one that ends at to_end. Values of frames
 * are mostly short, and short copies are mostly call and tail: where both ends leave room, the
 * loose copy is used, and the excess bytes are overwritten by the next frame. */
static inline uint8_t *put(uint8_t *to, const uint8_t *to_end, const uint8_t *from,
                           const uint8_t *from_end, size_t n) {
    if (n <= 256 && (size_t)(to_end - to) >= n + LOOSE && (size_t)(from_end - from) >= n + LOOSE)
        copy_loose(to, from, n);
    else
        memcpy(to, from, n);
    return to + n;
}

static inline int same16(const uint8_t *a, const uint8_t *b) {
    uint64_t a0, a1, b0, b1;
    memcpy(&a0, a, 8);
    memcpy(&a1, a + 8, 8);
    memcpy(&b0, b, 8);
    memcpy(&b1, b + 8, 8);
    return ((a0 ^ b0) | (a1 ^ b1)) == 0;
}

/* Equality of two short byte strings, without a call for those of up to 32 bytes. */
static inline int same_bytes(const uint8_t *a, const uint8_t *b, size_t n) {
    uint64_t a0, a1, b0, b1;
    if (n > 32)
        return memcmp(a, b, n) == 0;
    if (n > 16) {
        memcpy(&a0, a + 8, 8);
        memcpy(&b0, b + 8, 8);
        memcpy(&a1, a + n - 16, 8);
        memcpy(&b1, b + n - 16, 8);
        if (((a0 ^ b0) | (a1 ^ b1)) != 0)
            return 0;
    }
    if (n >= 8) {
        memcpy(&a0, a, 8);
        memcpy(&b0, b, 8);
        memcpy(&a1, a + n - 8, 8);
        memcpy(&b1, b + n - 8, 8);
        return ((a0 ^ b0) | (a1 ^ b1)) == 0;
    }
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

/* A seeded hash of a byte string: eight bytes a step, folded by a 64x64 multiplication. */
static inline uint64_t fold(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_bytes(const uint8_t *p, size_t n, uint64_t seed) {
    uint64_t h = seed ^ n, v;
    if (n >= 8) {
        const uint8_t *last = p + n - 8; /* overlaps: copies of 1 to 7 bytes are slow */
        for (; p < last; p += 8) {
            memcpy(&v, p, 8);
            h = fold(h ^ v, 0x9E3779B97F4A7C15u ^ seed);
        }
        memcpy(&v, last, 8);
    } else {
        v = 0;
        for (size_t i = 0; i < n; i++)
            v = v << 8 | p[i];
    }
    return fold(h ^ v, 0xD6E8FEB86659FD93u ^ seed);
}

/* Whether n bytes are UTF-8 as Unicode defines it: no overlong forms, no surrogates. */
static inline int utf8_valid(const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    while (p < end) {
        uint64_t v;
        if (end - p >= 8) {
            memcpy(&v, p, 8);
            if ((v & 0x8080808080808080u) == 0) {
                p += 8;
                continue;
            }
        }
        uint8_t first = *p++;
        if (first < 0x80)
            continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || end - p < more)
            return 0;
        uint8_t low = 0x80, high = 0xBF; /* what the second byte may be */
        if (first == 0xE0)
            low = 0xA0;
        else if (first == 0xED)
            high = 0x9F;
        else if (first == 0xF0)
            low = 0x90;
        else if (first == 0xF4)
            high = 0x8F;
        if (*p < low || *p > high)
            return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xC0) != 0x80)
                return 0;
        p += more;
    }
    return 1;
}

#endif
