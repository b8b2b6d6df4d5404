/* What the kernels share. build.py joins common.c, bytes.c, planes.c, tables.c, sliced.c, slicing.c
 * and network.c, in this order, and compiles them as one file; kernel.py and slices.py order the
 * weights.
 *
 * A kernel computes rows: a row is a sample of a dense layer, or a position of a convolution. Every
 * kernel has a plain form, which says what it computes, and forms for AVX2 and AVX-512. Sums of
 * integers are exact in any order.
 */
#include <immintrin.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* build.py defines ROWS, the most rows at a time; LANES, of whose units every layer has a multiple;
 * SPARE, of whose quads every row has a multiple; and LEAST_OF_TABLES, the rows that tables are
 * worth. */
#define INLINE static inline __attribute__((always_inline))
#define WITH_AVX2 __attribute__((target("avx2,popcnt")))
#define WITH_AVX512                                                                \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi," \
                          "avx512vbmi2,avx512vpopcntdq,gfni,popcnt")))

enum { PLAIN, AVX2, AVX512 };

/* The fastest form that this processor has. */
int best_level(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("popcnt"))
        return PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq") &&
        __builtin_cpu_supports("gfni"))
        return AVX512;
    return AVX2;
}

enum { OF_BYTES, OF_BITS }; /* what a layer takes */

/* A layer, as LAYER in kernel.py. Pixels are bytes of a plane, or words of bits, one a channel. */
struct layer {
    const void *weights;
    const int32_t *limits; /* added in the last layer */
    const int32_t *starts; /* of the limits at each position; or 0 if all have the same */
    int32_t takes, planes; /* planes of bits a weight: 1 or 2, or 0 for int8 */
    int32_t inputs;        /* of a row: bytes, or words of 32 bits */
    int32_t units;         /* a multiple of LANES */
    int32_t bits;          /* of all units: as many times the units as these have limits */
    int32_t tile;          /* the most units at a time */
    int32_t room;          /* quads whose products 16 bits hold */
    /* Of a convolution; kernel is 0 in a dense layer. An image has depth planes of pixels. */
    int32_t kernel, stride, padding, depth, height, width, pixel, rows, columns, window;
};

struct network { /* as NETWORK in kernel.py */
    const struct layer *layers;
    const uint64_t *taken;       /* a bit for each feature, 1 if it is in use; or 0 if all are */
    const struct slices *slices; /* of all layers, for many samples; or 0 */
    int32_t n_layers, level, features, inputs; /* inputs: the features in use */
    int32_t classes;
    int32_t most;         /* samples at a time, at most ROWS */
    int32_t least_sliced; /* samples that are worth slices */
    int32_t bits, shift;  /* of an input: the bits in use; those below, which are not */
};

/* Where a kernel writes: bits, LANES units to a half word, or sums if there are scores. */
struct results {
    uint16_t *bits;
    int32_t *scores;
    ptrdiff_t stride; /* from row to row, in half words or numbers */
};

/* The units of the next tile: as many as possible of most, most / 2, ..., LANES. */
INLINE int tile_of(int left, int most)
{
    while (most > left)
        most /= 2;
    return most;
}

/* Turn the sums of LANES units into bits (1 where they exceed limits) or scores. A unit's next bit
 * is ``units`` bits further on. */
INLINE void finish(const int32_t *sums, const struct layer *layer, struct results to, int row,
                   int unit)
{
    const int32_t *limits = layer->limits + unit;
    int j, k;
    if (to.scores) {
        int32_t *const scores = to.scores + row * to.stride + unit;
        for (j = 0; j < LANES; j++)
            scores[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)limits[j]);
        return;
    }
    for (k = unit; k < layer->bits; k += layer->units, limits += layer->units) {
        unsigned bits = 0;
        for (j = 0; j < LANES; j++)
            bits |= (unsigned)(sums[j] > limits[j]) << j;
        to.bits[row * to.stride + k / LANES] = (uint16_t)bits;
    }
}

INLINE WITH_AVX2 void finish_avx2(__m256i low, __m256i high, const struct layer *layer,
                                  struct results to, int row, int unit)
{
    const int32_t *const limits = layer->limits;
    const int units = layer->units, all = layer->bits;
    int k;
    if (to.scores) {
        __m256i *const scores = (__m256i *)(to.scores + row * to.stride + unit);
        const __m256i *const offsets = (const __m256i *)(limits + unit);
        _mm256_storeu_si256(scores, _mm256_add_epi32(low, _mm256_loadu_si256(offsets)));
        _mm256_storeu_si256(scores + 1, _mm256_add_epi32(high, _mm256_loadu_si256(offsets + 1)));
        return;
    }
    for (k = unit; k < all; k += units) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(limits + k));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(limits + k + 8));
        const int x = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(low, a)));
        const int y = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(high, b)));
        to.bits[row * to.stride + k / LANES] = (uint16_t)(x | y << 8);
    }
}

/* The same for a block of rows, and of vectors of LANES units; rows of sums are ``apart``. */
INLINE WITH_AVX512 void finish_avx512(const int rows, const int vectors, const int apart,
                                      const __m512i *sums, const struct layer *layer,
                                      struct results to, int row, int unit)
{
    const int32_t *const limits = layer->limits;
    const int units = layer->units, all = layer->bits;
    ptrdiff_t at = row * to.stride + unit / LANES;
    int k, r, v;
    for (k = unit; k < all; k += units, at += units / LANES)
#pragma GCC unroll 4
        for (v = 0; v < vectors; v++) {
            const __m512i limit = _mm512_loadu_si512(limits + k + LANES * v);
#pragma GCC unroll 4
            for (r = 0; r < rows; r++) {
                const __m512i sum = sums[r * apart + v];
                if (to.scores)
                    _mm512_storeu_si512(to.scores + (row + r) * to.stride + unit + LANES * v,
                                        _mm512_add_epi32(sum, limit));
                else
                    to.bits[at + r * to.stride + v] = _mm512_cmpgt_epi32_mask(sum, limit);
            }
        }
}
