/* Where a MessagePack value ends: the compiled twin of penstock.wire.messagepack.measure, whose
 * docstring has the table of formats and the rules.
 */
#ifndef PENSTOCK_MESSAGEPACK_H
#define PENSTOCK_MESSAGEPACK_H

#include "frame.h"

enum { MESSAGEPACK_DEPTH_MAX = 512 };

/* Reads the length or count of `width` bytes (0, 1, 2 or 4) behind a first byte. */
static inline uint64_t messagepack_count(const uint8_t *p, size_t width) {
    return width == 0 ? 0 : width == 1 ? p[0] : width == 2 ? load16(p, 1) : load32(p, 1);
}

/* Returns the length of the one value at p, of which n bytes are there, or 0 if it is malformed,
 * or deeper than depth_max (at most MESSAGEPACK_DEPTH_MAX). Elements need no limit: each takes a
 * byte of n, and nothing is built. */
static inline size_t messagepack_length(const uint8_t *p, size_t n, uint32_t depth_max) {
    uint64_t waiting[MESSAGEPACK_DEPTH_MAX + 1]; /* values to come in each open array or map */
    uint32_t depth = 0;
    uint64_t missing = 1;
    size_t at = 0;
    for (;;) {
        while (missing == 0) {
            if (depth == 0)
                return at;
            missing = waiting[--depth];
        }
        missing--;
        if (at >= n)
            return 0;
        uint8_t first = p[at++];
        size_t width = 0;  /* bytes of the length or count */
        uint64_t size = 0; /* bytes of the body */
        int text = 0, nested = 0;
        uint64_t count = 0;
        if (first < 0x80 || first >= 0xE0) { /* fixint */
        } else if (first < 0x90) {
            nested = 2, count = first & 0x0F;
        } else if (first < 0xA0) {
            nested = 1, count = first & 0x0F;
        } else if (first < 0xC0) {
            text = 1, size = first & 0x1F;
        } else {
            switch (first) {
            case 0xC1:
                return 0;
            case 0xC4: case 0xC5: case 0xC6: /* bin */
                width = (size_t)1 << (first - 0xC4);
                break;
            case 0xC7: case 0xC8: case 0xC9: /* ext: one byte of type beside its length */
                width = (size_t)1 << (first - 0xC7);
                size = 1;
                break;
            case 0xCA: size = 4; break;
            case 0xCB: size = 8; break;
            case 0xCC: case 0xCD: case 0xCE: case 0xCF: /* uint */
                size = (uint64_t)1 << (first - 0xCC);
                break;
            case 0xD0: case 0xD1: case 0xD2: case 0xD3: /* int */
                size = (uint64_t)1 << (first - 0xD0);
                break;
            case 0xD4: case 0xD5: case 0xD6: case 0xD7: case 0xD8: /* fixext */
                size = 1 + ((uint64_t)1 << (first - 0xD4));
                break;
            case 0xD9: case 0xDA: case 0xDB: /* str */
                width = (size_t)1 << (first - 0xD9);
                text = 1;
                break;
            case 0xDC: case 0xDD: /* array */
                width = (size_t)2 << (first - 0xDC);
                nested = 1;
                break;
            case 0xDE: case 0xDF: /* map */
                width = (size_t)2 << (first - 0xDE);
                nested = 2;
                break;
            default: /* nil, false, true */
                break;
            }
            if (width > n - at)
                return 0;
            if (nested)
                count = messagepack_count(p + at, width);
            else
                size += messagepack_count(p + at, width);
            at += width;
        }
        if (nested) {
            if (depth == depth_max)
                return 0;
            waiting[depth++] = missing;
            missing = count * (uint64_t)nested;
        } else {
            if (size > n - at || (text && !utf8_valid(p + at, size)))
                return 0;
            at += size;
        }
    }
}

/* Finds the raw value of a payload of n bytes: the bytes inside it if it is one bin or str, else
 * all of it. Returns 0 if the payload is neither empty nor exactly one value of that depth. */
static inline int messagepack_raw_value(const uint8_t *p, size_t n, uint32_t depth_max,
                                        uint32_t *start, uint32_t *length) {
    size_t head;
    *start = 0;
    *length = (uint32_t)n;
    if (n == 0)
        return 1;
    uint8_t first = p[0];
    int text = (first & 0xE0) == 0xA0 || (first >= 0xD9 && first <= 0xDB);
    if (!text && !(first >= 0xC4 && first <= 0xC6))
        return messagepack_length(p, n, depth_max) == n;
    uint64_t inside;
    if ((first & 0xE0) == 0xA0) {
        head = 1;
        inside = first & 0x1F;
    } else {
        size_t width = (size_t)1 << (first - (text ? 0xD9 : 0xC4));
        head = 1 + width;
        if (n < head)
            return 0;
        inside = messagepack_count(p + 1, width);
    }
    if (head + inside != n || (text && !utf8_valid(p + head, inside)))
        return 0;
    *start = (uint32_t)head;
    *length = (uint32_t)inside;
    return 1;
}

#endif
