/* Dense layers of integer networks on processors with AVX2, a block of samples at a time.
 *
 * build.py compiles this file, kernel_batch.py orders the weights. Sums of integers are exact in
 * any order. Widths are padded: the weights above a unit that is padding are 0, so its bit does not
 * matter.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* build.py defines SAMPLES, the most in a block; UNITS_OF_BYTES and UNITS, the units of a tile in
 * add_bytes and add_bits, whose weights or tables fit in the first cache; and GROUPS, the groups of
 * four inputs that have tables at the same time. */
#define VECTORS (UNITS / 16)

typedef int16_t sixteen __attribute__((vector_size(32)));
typedef int8_t small __attribute__((vector_size(16), aligned(1), may_alias));

int can_run(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

/* ONNX Runtime uses vpdpbusd where it exists, and is as fast. */
int pays(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni"))
        return 0;
    return !(__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4)); /* AVX-VNNI */
}

/* Turn sums into bits (1 where they exceed limits) or, in the last layer, into scores. */
static inline void finish(const int32_t *sums, int units, const int32_t *limits, uint8_t *bits,
                          int32_t *scores)
{
    int j;
    if (scores)
        for (j = 0; j < units; j++)
            scores[j] = sums[j] + limits[j];
    else
        for (j = 0; j < units; j++)
            bits[j] = sums[j] > limits[j];
}

/* Four bytes of a sample, and the place of their weights in a tile. */
struct quad {
    int32_t bytes;
    uint32_t weights;
};

/* Find the quads of a sample that are not 0; a zero one makes their number even. */
static int find_quads(const uint8_t *in, int quads, struct quad *found)
{
    int k, count = 0;
    for (k = 0; k < quads; k++) {
        memcpy(&found[count].bytes, in + 4 * k, 4);
        found[count].weights = 4 * UNITS_OF_BYTES * (uint32_t)k;
        count += found[count].bytes != 0;
    }
    found[count].bytes = 0;
    found[count].weights = 0;
    return (count + 1) / 2;
}

/* Sum bytes times weights for one sample and 32 units.
 *
 * vpmaddubsw adds two products in 16 bits. In a ``roomy`` tile, weights are so small that the sums
 * of two quads fit there as well; otherwise they are widened first.
 */
static inline __attribute__((always_inline)) void sums_of_bytes(
    const int roomy, const struct quad *found, int pairs, const int8_t *weights,
    int32_t sums[UNITS_OF_BYTES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i total[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                        _mm256_setzero_si256()};
    int k, v;
    for (k = 0; k < pairs; k++, found += 2) {
        const __m256i x0 = _mm256_set1_epi32(found[0].bytes);
        const __m256i x1 = _mm256_set1_epi32(found[1].bytes);
        const __m256i *w0 = (const __m256i *)(weights + found[0].weights);
        const __m256i *w1 = (const __m256i *)(weights + found[1].weights);
        for (v = 0; v < 4; v++) {
            __m256i a = _mm256_maddubs_epi16(x0, _mm256_loadu_si256(w0 + v));
            const __m256i b = _mm256_maddubs_epi16(x1, _mm256_loadu_si256(w1 + v));
            if (roomy) {
                a = _mm256_madd_epi16(_mm256_add_epi16(a, b), ones);
            } else {
                a = _mm256_madd_epi16(a, ones);
                a = _mm256_add_epi32(a, _mm256_madd_epi16(b, ones));
            }
            total[v] = _mm256_add_epi32(total[v], a);
        }
    }
    for (v = 0; v < 4; v++)
        _mm256_storeu_si256((__m256i *)(sums + 8 * v), total[v]);
}

/* Run a layer on bytes, four to a quad, for at most SAMPLES samples.
 *
 * ``weights`` are ordered by tile of UNITS_OF_BYTES units, quad, and unit. ``roomy`` has one entry
 * per tile. ``found`` has room for one quad more than a sample has, for each sample. ``stride`` is
 * the width of a sample in the results.
 */
void add_bytes(const uint8_t *in, int n, int quads, const int8_t *weights, const uint8_t *roomy,
               int tiles, const int32_t *limits, struct quad *found, uint8_t *bits,
               int32_t *scores, int stride)
{
    int pairs[SAMPLES], tile, s;
    for (s = 0; s < n; s++)
        pairs[s] = find_quads(in + 4 * (size_t)quads * s, quads, found + (size_t)(quads + 1) * s);
    for (tile = 0; tile < tiles; tile++, weights += 4 * UNITS_OF_BYTES * (size_t)quads)
        for (s = 0; s < n; s++) {
            int32_t sums[UNITS_OF_BYTES];
            const struct quad *which = found + (size_t)(quads + 1) * s;
            const size_t to = (size_t)s * stride + UNITS_OF_BYTES * tile;
            if (roomy[tile])
                sums_of_bytes(1, which, pairs[s], weights, sums);
            else
                sums_of_bytes(0, which, pairs[s], weights, sums);
            finish(sums, UNITS_OF_BYTES, limits + UNITS_OF_BYTES * tile, bits + to,
                   scores ? scores + to : 0);
        }
}

/* Sum all sixteen subsets of four inputs; ``w`` holds the weights, input by input. */
static inline void make_table(const small *w, sixteen table[16][VECTORS])
{
    int v;
    for (v = 0; v < VECTORS; v++) {
        const sixteen a = __builtin_convertvector(w[v], sixteen);
        const sixteen b = __builtin_convertvector(w[VECTORS + v], sixteen);
        const sixteen c = __builtin_convertvector(w[2 * VECTORS + v], sixteen);
        const sixteen d = __builtin_convertvector(w[3 * VECTORS + v], sixteen);
        const sixteen ab = a + b, cd = c + d;
        table[0][v] = a - a;
        table[1][v] = a;
        table[2][v] = b;
        table[3][v] = ab;
        table[4][v] = c;
        table[5][v] = a + c;
        table[6][v] = b + c;
        table[7][v] = ab + c;
        table[8][v] = d;
        table[9][v] = a + d;
        table[10][v] = b + d;
        table[11][v] = ab + d;
        table[12][v] = cd;
        table[13][v] = a + cd;
        table[14][v] = b + cd;
        table[15][v] = ab + cd;
    }
}

/* Find, for each group of four inputs, the offset in bytes of its sum in the tables. */
static void find_offsets(const uint8_t *in, int n, int stride_in, int blocks, uint16_t *offsets)
{
    int block, s, g;
    for (block = 0; block < blocks; block++)
        for (s = 0; s < n; s++, offsets += GROUPS) {
            const uint8_t *x = in + (size_t)s * stride_in + 4 * GROUPS * block;
            for (g = 0; g < GROUPS; g++, x += 4)
                offsets[g] = (uint16_t)(
                    2 * UNITS * (16 * g + (x[0] | x[1] << 1 | x[2] << 2 | x[3] << 3)));
        }
}

struct workspace {
    sixteen tables[GROUPS][16][VECTORS];
    sixteen parts[SAMPLES][VECTORS]; /* sums so far in 16 bits; totals hold the widened ones */
    int32_t totals[SAMPLES][UNITS];
};

int workspace_bytes(void)
{
    return sizeof(struct workspace) + 64;
}

static void widen(int n, struct workspace *space)
{
    int s, j;
    for (s = 0; s < n; s++)
        for (j = 0; j < UNITS; j++)
            space->totals[s][j] += ((const int16_t *)space->parts[s])[j];
    memset(space->parts, 0, sizeof space->parts[0] * n);
}

/* Run a layer on bits for at most SAMPLES samples; one addition handles four inputs.
 *
 * This is the method of the Four Russians: four inputs have sixteen subsets, whose sums are
 * computed once for all samples; a sample adds one entry of each table. ``weights`` are ordered by
 * tile of UNITS units, and input. ``full`` tells whether to widen sums after a block of 4 GROUPS
 * inputs because the next one could overflow 16 bits. ``offsets`` and ``memory`` are scratch space.
 */
void add_bits(const uint8_t *in, int n, int stride_in, int blocks, const int8_t *weights,
              const uint8_t *full, int tiles, const int32_t *limits, uint16_t *offsets,
              void *memory, uint8_t *bits, int32_t *scores, int stride)
{
    struct workspace *const space = (struct workspace *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    const char *const tables = (const char *)space->tables;
    const small *w = (const small *)weights;
    int tile, block, s, g, v;
    find_offsets(in, n, stride_in, blocks, offsets);
    for (tile = 0; tile < tiles; tile++) {
        const uint16_t *at = offsets;
        memset(space->parts, 0, sizeof space->parts[0] * n);
        memset(space->totals, 0, sizeof space->totals[0] * n);
        for (block = 0; block < blocks; block++) {
            for (g = 0; g < GROUPS; g++, w += 4 * VECTORS)
                make_table(w, space->tables[g]);
            for (s = 0; s < n; s++, at += GROUPS) {
                sixteen sum[VECTORS];
                for (v = 0; v < VECTORS; v++)
                    sum[v] = space->parts[s][v];
#pragma GCC unroll 10
                for (g = 0; g < GROUPS; g++) {
                    const sixteen *entry = (const sixteen *)(tables + at[g]);
#pragma GCC unroll 4
                    for (v = 0; v < VECTORS; v++)
                        sum[v] += entry[v];
                }
                for (v = 0; v < VECTORS; v++)
                    space->parts[s][v] = sum[v];
            }
            if (full[block])
                widen(n, space);
        }
        for (s = 0; s < n; s++) {
            const size_t to = (size_t)s * stride + UNITS * tile;
            finish(space->totals[s], UNITS, limits + UNITS * tile, bits + to,
                   scores ? scores + to : 0);
        }
    }
}
