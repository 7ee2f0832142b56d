/* CRC-32 as zlib computes it (polynomial 0x04C11DB7, reflected), fast for short frames.
 *
 * With PCLMULQDQ the message is folded 64 and then 16 bytes at a time by carry-less multiplication
 * with powers of x modulo the polynomial (V. Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ", Intel 2009) and reduced at the end; elsewhere eight tables take
 * eight bytes a step. Which one is used is settled once, by crc32_prepare().
 */
#ifndef PENSTOCK_CRC32_H
#define PENSTOCK_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "frame.h"

static uint32_t crc32_table[8][256];

static inline uint32_t crc32_tables(uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = load32(p, 0) ^ state, high = load32(p + 4, 0);
        state = crc32_table[7][low & 0xFF] ^ crc32_table[6][low >> 8 & 0xFF] ^
                crc32_table[5][low >> 16 & 0xFF] ^ crc32_table[4][low >> 24] ^
                crc32_table[3][high & 0xFF] ^ crc32_table[2][high >> 8 & 0xFF] ^
                crc32_table[1][high >> 16 & 0xFF] ^ crc32_table[0][high >> 24];
    }
    for (; n; p++, n--)
        state = crc32_table[0][(state ^ *p) & 0xFF] ^ state >> 8;
    return state;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_FOLDS __attribute__((target("pclmul,sse4.1")))

static int crc32_can_fold;

/* Multiplies both halves of `x` by the constants that move it past the distance of `k`. */
PENSTOCK_FOLDS static inline __m128i crc32_fold(__m128i x, __m128i k) {
    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

/* Needs n >= 16. */
PENSTOCK_FOLDS static uint32_t crc32_folded(uint32_t state, const uint8_t *p, size_t n) {
    const __m128i by64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x^(4*128-32), x^(4*128+32) */
    const __m128i by16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x^(128-32), x^(128+32) */
    const __m128i by8 = _mm_set_epi64x(0, 0x163CD6124);            /* x^64 */
    const __m128i barrett = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
    const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i x = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128((int)state));

    if (n >= 64) {
        __m128i y = _mm_loadu_si128((const __m128i *)(p + 16));
        __m128i z = _mm_loadu_si128((const __m128i *)(p + 32));
        __m128i w = _mm_loadu_si128((const __m128i *)(p + 48));
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
            const __m128i *next = (const __m128i *)p;
            x = _mm_xor_si128(crc32_fold(x, by64), _mm_loadu_si128(next));
            y = _mm_xor_si128(crc32_fold(y, by64), _mm_loadu_si128(next + 1));
            z = _mm_xor_si128(crc32_fold(z, by64), _mm_loadu_si128(next + 2));
            w = _mm_xor_si128(crc32_fold(w, by64), _mm_loadu_si128(next + 3));
        }
        x = _mm_xor_si128(crc32_fold(x, by16), y);
        x = _mm_xor_si128(crc32_fold(x, by16), z);
        x = _mm_xor_si128(crc32_fold(x, by16), w);
    } else {
        p += 16;
        n -= 16;
    }
    for (; n >= 16; p += 16, n -= 16)
        x = _mm_xor_si128(crc32_fold(x, by16), _mm_loadu_si128((const __m128i *)p));

    if (n) {
        /* n bytes are left: x and they are 16 + n bytes. The first n of x become the end of one
         * block, the rest of x and the tail the next; the tail is read as the end of the message's
         * last 16 bytes. Sliding a window over `shift` gives all three shuffles. */
        static const uint8_t shift[48] = {
            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
            0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,    6,    7,
            8,    9,    10,   11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80,
            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
        const __m128i left = _mm_loadu_si128((const __m128i *)(shift + n));       /* by 16 - n */
        const __m128i right = _mm_loadu_si128((const __m128i *)(shift + 16 + n)); /* by n */
        const __m128i last = _mm_loadu_si128((const __m128i *)(p + n - 16));
        /* `right` has its top bit set exactly in the n places where the tail goes. */
        __m128i block = _mm_blendv_epi8(_mm_shuffle_epi8(x, right), last, right);
        x = _mm_xor_si128(crc32_fold(_mm_shuffle_epi8(x, left), by16), block);
    }

    /* 128 bits to 64, 64 to 32, and Barrett's reduction of what is left. */
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by16, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, low32), by8, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(x, 1);
}
#endif

static void crc32_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = (state & 1 ? 0xEDB88320u : 0) ^ state >> 1;
        crc32_table[0][byte] = state;
    }
    for (int i = 1; i < 8; i++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = crc32_table[i - 1][byte];
            crc32_table[i][byte] = crc32_table[0][before & 0xFF] ^ before >> 8;
        }
#if defined(__x86_64__)
    __builtin_cpu_init();
    crc32_can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* Continues from a state, which begins and ends as the complement of a checksum. */
static inline uint32_t crc32_more(uint32_t state, const uint8_t *p, size_t n) {
#if defined(__x86_64__)
    if (crc32_can_fold && n >= 16)
        return crc32_folded(state, p, n);
#endif
    return crc32_tables(state, p, n);
}

static inline uint32_t crc32_of(const uint8_t *p, size_t n) {
    return ~crc32_more(~0u, p, n);
}

#endif
