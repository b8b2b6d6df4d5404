/* Dense layers of integer networks for processors with AVX2, a block of samples at a time.
 *
 * build.py compiles this file, kernel_batch.py says how weights are laid out. All sums are exact,
 * whatever the order in which they are added up. Widths are padded: a unit that was added for that
 * has weights 0 above, so that its bit does not matter.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* build.py says, so that there is one place for it: SAMPLES of a block, at most; UNITS_OF_BYTES
 * and UNITS of a tile of add_bytes and of add_bits, whose weights or tables fit into the first
 * cache; GROUPS of four inputs each that have tables at a time. */
#define VECTORS (UNITS / 16)

typedef int16_t sixteen __attribute__((vector_size(32)));
typedef int8_t small __attribute__((vector_size(16), aligned(1), may_alias));

int can_run(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

/* Where vpdpbusd exists ONNX Runtime makes use of it, and is as fast. */
int pays(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni"))
        return 0;
    return !(__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4)); /* AVX-VNNI */
}

/* Of sums: bits where they exceed limits, or, of the last layer, scores. */
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

/* Four bytes of a sample, and where in a tile their weights are. */
struct quad {
    int32_t bytes;
    uint32_t weights;
};

/* The quads of a sample that are not 0, and one that is, to make their number even. */
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

/* A sample's sums of bytes times weights, of 32 units.
 *
 * vpmaddubsw adds two products in 16 bits. ``roomy``: the sums of two quads fit there as well, as
 * the weights are small enough; else they are widened first.
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

/* A layer on bytes, of which there are 4 ``quads`` a sample, of at most SAMPLES samples.
 *
 * ``weights``: by tiles of UNITS_OF_BYTES units, of each the quads, of each the units. ``roomy``:
 * one a tile. ``found``: room for one quad more than a sample has, of each sample. ``stride``: of a
 * sample in the results.
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

/* The sums of all sixteen subsets of four inputs. ``w``: the weights of one after the other. */
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

/* Where in the tables a sample finds the sum of each group of four inputs, in bytes. */
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
    sixteen parts[SAMPLES][VECTORS]; /* sums so far of 16 bits, and those that were widened */
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

/* A layer on bits, of at most SAMPLES samples: additions only, four inputs by one of them.
 *
 * The method of the Four Russians: of four inputs there are sixteen subsets, whose sums are made
 * once for all samples; a sample adds up one entry of each table. ``weights``: by tiles of UNITS
 * units, of each the inputs. ``full``: whether sums must be widened after a block of 4 GROUPS
 * inputs, because the next could overflow 16 bits. ``offsets`` and ``memory``: room to work in.
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
