/* A whole dense integer network on one sample, on processors with AVX2.
 *
 * kernel_single.py orders weights by input, so the weights of an input that is 0 are never read.
 * Sums of integers are exact in any order.
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* build.py defines ROWS, the rows of weights that are added together, and UNITS_OF_ROWS, 32: the
 * number of units is a multiple of it. */
#define MOST_ROWS (32767 / (128 * ROWS) * ROWS) /* the most that sums of 16 bits hold */

struct layer {
    const int8_t *weights; /* inputs + 1 rows of units; the last row is zero */
    const int32_t *limits;
    int32_t inputs, units;
};

static inline __m256i at(const void *place)
{
    return _mm256_loadu_si256((const __m256i *)place);
}

static inline void put(void *place, __m256i value)
{
    _mm256_storeu_si256((__m256i *)place, value);
}

/* Find the inputs that are not 0; fill up with the row of zeros to a multiple. */
static int find_rows(const uint8_t *in, int inputs, int multiple, int32_t *rows)
{
    int j, count = 0;
    for (j = 0; j < inputs; j++) {
        rows[count] = j;
        count += in[j] != 0;
    }
    while (count % multiple)
        rows[count++] = inputs;
    return count;
}

/* sums += bytes times weights, for four rows.
 *
 * Unpacking puts two rows side by side, and vpmaddubsw adds two products in 16 bits, which is
 * enough for weights up to 64. It works on halves of a vector, so sums come out of order; see
 * ``in_order``.
 */
static void add_four_of_bytes(const int8_t *const w[4], const int x[4], int units, int32_t *sums)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i x01 = _mm256_set1_epi16((short)(x[0] | x[1] << 8));
    const __m256i x23 = _mm256_set1_epi16((short)(x[2] | x[3] << 8));
    int j, v;
    for (j = 0; j < units; j += UNITS_OF_ROWS) {
        const __m256i w0 = at(w[0] + j), w1 = at(w[1] + j), w2 = at(w[2] + j), w3 = at(w[3] + j);
        const __m256i a = _mm256_maddubs_epi16(x01, _mm256_unpacklo_epi8(w0, w1));
        const __m256i b = _mm256_maddubs_epi16(x23, _mm256_unpacklo_epi8(w2, w3));
        const __m256i c = _mm256_maddubs_epi16(x01, _mm256_unpackhi_epi8(w0, w1));
        const __m256i d = _mm256_maddubs_epi16(x23, _mm256_unpackhi_epi8(w2, w3));
        const __m256i pairs[4] = {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b),
                                  _mm256_unpacklo_epi16(c, d), _mm256_unpackhi_epi16(c, d)};
        for (v = 0; v < 4; v++) {
            int32_t *const s = sums + j + 8 * v;
            put(s, _mm256_add_epi32(at(s), _mm256_madd_epi16(pairs[v], ones)));
        }
    }
}

static void in_order(int32_t *sums, int units)
{
    int j;
    for (j = 0; j < units; j += UNITS_OF_ROWS) {
        int32_t *const s = sums + j;
        const __m256i a = at(s), b = at(s + 8), c = at(s + 16), d = at(s + 24);
        put(s, _mm256_permute2x128_si256(a, b, 0x20));
        put(s + 8, _mm256_permute2x128_si256(c, d, 0x20));
        put(s + 16, _mm256_permute2x128_si256(a, b, 0x31));
        put(s + 24, _mm256_permute2x128_si256(c, d, 0x31));
    }
}

static void sums_of_a_sample_of_bytes(const struct layer *layer, const uint8_t *in, int32_t *rows,
                                      int32_t *sums)
{
    const int count = find_rows(in, layer->inputs, 4, rows);
    int k, r;
    memset(sums, 0, sizeof *sums * layer->units);
    for (k = 0; k < count; k += 4) {
        const int8_t *w[4];
        int x[4];
        for (r = 0; r < 4; r++) {
            const int row = rows[k + r];
            w[r] = layer->weights + (size_t)row * layer->units;
            x[r] = row < layer->inputs ? in[row] : 0;
        }
        add_four_of_bytes(w, x, layer->units, sums);
    }
    in_order(sums, layer->units);
}

/* parts += weights, for ROWS rows; parts come out of order, see ``widen_parts``. */
static void add_rows_of_bits(const int8_t *const w[ROWS], int units, int16_t *parts)
{
    const __m256i ones = _mm256_set1_epi8(1);
    int j, r;
    for (j = 0; j < units; j += UNITS_OF_ROWS) {
        __m256i low = at(parts + j), high = at(parts + j + 16);
#pragma GCC unroll 4
        for (r = 0; r < ROWS; r += 2) {
            const __m256i a = at(w[r] + j), b = at(w[r + 1] + j);
            const __m256i pairs = _mm256_maddubs_epi16(ones, _mm256_unpacklo_epi8(a, b));
            const __m256i others = _mm256_maddubs_epi16(ones, _mm256_unpackhi_epi8(a, b));
            low = _mm256_add_epi16(low, pairs);
            high = _mm256_add_epi16(high, others);
        }
        put(parts + j, low);
        put(parts + j + 16, high);
    }
}

/* sums += parts, in order; then parts = 0. */
static void widen_parts(int16_t *parts, int units, int32_t *sums)
{
    static const int places[4] = {0, 16, 8, 24};
    int j, v;
    for (j = 0; j < units; j += UNITS_OF_ROWS)
        for (v = 0; v < 4; v++) {
            const __m128i part = _mm_loadu_si128((const __m128i *)(parts + j + 8 * v));
            int32_t *const s = sums + j + places[v];
            put(s, _mm256_add_epi32(at(s), _mm256_cvtepi16_epi32(part)));
        }
    memset(parts, 0, sizeof *parts * units);
}

static void sums_of_a_sample_of_bits(const struct layer *layer, const uint8_t *in, int32_t *rows,
                                     int16_t *parts, int32_t *sums)
{
    const int count = find_rows(in, layer->inputs, ROWS, rows);
    int k, r;
    memset(parts, 0, sizeof *parts * layer->units);
    memset(sums, 0, sizeof *sums * layer->units);
    for (k = 0; k < count; k += ROWS) {
        const int8_t *w[ROWS];
        for (r = 0; r < ROWS; r++)
            w[r] = layer->weights + (size_t)rows[k + r] * layer->units;
        add_rows_of_bits(w, layer->units, parts);
        if ((k + ROWS) % MOST_ROWS == 0)
            widen_parts(parts, layer->units, sums);
    }
    widen_parts(parts, layer->units, sums);
}

/* Compute the scores of one sample. ``memory`` has room for ``widest`` row numbers, sums, parts and
 * bits; ``widest`` is the largest number of inputs or units, plus ROWS. */
void score_one(const struct layer *layers, int n, const uint8_t *in, int widest, void *memory,
               int32_t *scores)
{
    int32_t *const rows = memory, *const room = rows + widest;
    int16_t *const parts = (int16_t *)(room + widest);
    uint8_t *const bits = (uint8_t *)(parts + widest);
    int i, j;
    for (i = 0; i < n; i++) {
        const struct layer *const layer = layers + i;
        int32_t *const sums = i == n - 1 ? scores : room;
        if (i)
            sums_of_a_sample_of_bits(layer, bits, rows, parts, sums);
        else
            sums_of_a_sample_of_bytes(layer, in, rows, sums);
        for (j = 0; j < layer->units; j++)
            if (i == n - 1)
                sums[j] += layer->limits[j];
            else
                bits[j] = sums[j] > layer->limits[j];
    }
}
