/* Many rows of bits times int8 weights with AVX2, where one addition handles four inputs.
 *
 * This is the method of the Four Russians: a quad of inputs has sixteen subsets, whose sums are
 * computed once for all rows; a row adds one entry of each table. Weights are ordered as in bytes.c.
 */
#define WIDE 64 /* the most units of a tile */
#define GROUPS 8 /* quads that have tables at the same time: those of a word */

/* By quad, subset and unit. */
typedef int16_t tables_of_word[GROUPS][16][WIDE] __attribute__((aligned(32)));

/* The weights of sixteen units for input i of a quad. */
INLINE WITH_AVX2 __m256i weights_of(const int8_t *weights, int i)
{
    const __m256i one = _mm256_set1_epi32(1 << 8 * i);
    const __m256i a = _mm256_maddubs_epi16(one, _mm256_loadu_si256((const __m256i *)weights));
    const __m256i b = _mm256_maddubs_epi16(one, _mm256_loadu_si256((const __m256i *)weights + 1));
    return _mm256_permute4x64_epi64(_mm256_hadd_epi16(a, b), 0xD8);
}

/* The sums of ``units`` units' weights over all subsets of the quads of a word. */
INLINE WITH_AVX2 void make_tables(int units, const int8_t *weights, tables_of_word tables)
{
    int g, u, i, m;
    for (g = 0; g < GROUPS; g++)
        for (u = 0; u < units; u += 16, weights += 64) {
            __m256i sums[16] = {_mm256_setzero_si256()};
#pragma GCC unroll 4
            for (i = 0; i < 4; i++) {
                const __m256i more = weights_of(weights, i);
#pragma GCC unroll 8
                for (m = 0; m < 1 << i; m++)
                    sums[m | 1 << i] = _mm256_add_epi16(sums[m], more);
            }
#pragma GCC unroll 16
            for (m = 0; m < 16; m++)
                _mm256_store_si256((__m256i *)&tables[g][m][u], sums[m]);
        }
}

/* Add a word's entries to the sums of each row. */
INLINE WITH_AVX2 void look_up(const int units, tables_of_word tables, const uint32_t *in,
                              ptrdiff_t stride, int rows, int16_t (*parts)[WIDE])
{
    int row, g, v;
    for (row = 0; row < rows; row++) {
        const uint32_t x = in[row * stride];
        __m256i *const part = (__m256i *)parts[row], sums[WIDE / 16];
#pragma GCC unroll 4
        for (v = 0; v < units / 16; v++)
            sums[v] = part[v];
#pragma GCC unroll 8
        for (g = 0; g < GROUPS; g++) {
            const __m256i *const entry = (const __m256i *)tables[g][x >> 4 * g & 15];
#pragma GCC unroll 4
            for (v = 0; v < units / 16; v++)
                sums[v] = _mm256_add_epi16(sums[v], entry[v]);
        }
#pragma GCC unroll 4
        for (v = 0; v < units / 16; v++)
            part[v] = sums[v];
    }
}

/* Run a layer on at most ROWS rows of words; ``stride`` is in words. */
static WITH_AVX2 void run_tables(const struct layer *layer, const uint32_t *in, ptrdiff_t stride,
                                 int rows, struct results to)
{
    const int8_t *weights = layer->weights;
    const int most = 32767 / (4 * 128 * GROUPS); /* words whose sums 16 bits hold */
    int unit, units, row, k, u;
    for (unit = 0; unit < layer->units; unit += units) {
        int16_t parts[ROWS][WIDE] __attribute__((aligned(32)));
        int32_t sums[ROWS][WIDE];
        tables_of_word tables;
        units = tile_of(layer->units - unit, layer->tile);
        memset(parts, 0, sizeof parts[0] * rows);
        memset(sums, 0, sizeof sums[0] * rows);
        for (k = 0; k < layer->inputs; k++, weights += 4 * GROUPS * units) {
            make_tables(units, weights, tables);
            if (units == 64)
                look_up(64, tables, in + k, stride, rows, parts);
            else if (units == 32)
                look_up(32, tables, in + k, stride, rows, parts);
            else
                look_up(16, tables, in + k, stride, rows, parts);
            if ((k + 1) % most && k + 1 < layer->inputs)
                continue;
            for (row = 0; row < rows; row++)
                for (u = 0; u < units; u++) {
                    sums[row][u] += parts[row][u];
                    parts[row][u] = 0;
                }
        }
        for (row = 0; row < rows; row++)
            for (u = 0; u < units; u += LANES)
                finish(sums[row] + u, layer, to, row, unit + u);
    }
}
