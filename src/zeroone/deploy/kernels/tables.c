/* Many rows of bits times int8 weights with AVX2, where one addition handles four inputs.
 *
 * This is the method of the Four Russians: a quad of inputs has sixteen subsets, whose sums are
 * computed once for all rows; a row adds one entry of each table. Weights are ordered as in bytes.c.
 */
#define WIDE 4 /* vectors of a tile */
#define GROUPS 8 /* quads that have tables at the same time: those of a word */

/* The sums of sixteen units' weights over all subsets of a quad, in the order of vphaddw. */
INLINE WITH_AVX2 void make_table(const int8_t *weights, ptrdiff_t step, __m256i *table)
{
    const __m256i a = _mm256_loadu_si256((const __m256i *)weights);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(weights + 32));
    int m;
    for (m = 0; m < 16; m++) {
        const __m256i some = _mm256_set1_epi32(SPREAD[m]);
        table[m * step] =
            _mm256_hadd_epi16(_mm256_maddubs_epi16(some, a), _mm256_maddubs_epi16(some, b));
    }
}

/* sums += parts, back in order; then parts = 0. */
INLINE WITH_AVX2 void widen(__m256i *parts, int vectors, int32_t *sums)
{
    int v, q;
    for (v = 0; v < vectors; v++) {
        static const int places[4] = {0, 8, 4, 12};
        int16_t values[16];
        memcpy(values, parts + v, sizeof values);
        for (q = 0; q < 16; q++)
            sums[16 * v + places[q / 4] + q % 4] += values[q];
        parts[v] = _mm256_setzero_si256();
    }
}

/* Run a tile of ``vectors`` times sixteen units on at most ROWS rows. */
INLINE WITH_AVX2 void tables_of_tile(const int vectors, const struct layer *layer,
                                     const uint32_t *in, ptrdiff_t stride, int rows,
                                     const int8_t *weights, int unit, struct results to)
{
    __m256i tables[GROUPS][16][WIDE], parts[ROWS][WIDE];
    int32_t sums[ROWS][16 * WIDE];
    const int most = 32767 / (4 * 128 * GROUPS); /* words whose sums 16 bits hold */
    int k, g, v, row;
    memset(parts, 0, sizeof parts[0] * rows);
    memset(sums, 0, sizeof sums[0] * rows);
    for (k = 0; k < layer->inputs; k++) {
        for (g = 0; g < GROUPS; g++, weights += 64 * vectors)
            for (v = 0; v < vectors; v++)
                make_table(weights + 64 * v, WIDE, &tables[g][0][v]);
        for (row = 0; row < rows; row++) {
            const uint32_t x = in[row * stride + k];
            __m256i sum[WIDE];
#pragma GCC unroll 4
            for (v = 0; v < vectors; v++)
                sum[v] = parts[row][v];
#pragma GCC unroll 8
            for (g = 0; g < GROUPS; g++)
#pragma GCC unroll 4
                for (v = 0; v < vectors; v++)
                    sum[v] = _mm256_add_epi16(sum[v], tables[g][x >> 4 * g & 15][v]);
#pragma GCC unroll 4
            for (v = 0; v < vectors; v++)
                parts[row][v] = sum[v];
        }
        if ((k + 1) % most == 0 || k + 1 == layer->inputs)
            for (row = 0; row < rows; row++)
                widen(parts[row], vectors, sums[row]);
    }
    for (row = 0; row < rows; row++)
        for (v = 0; v < vectors; v++)
            finish(sums[row] + 16 * v, layer->limits, to, row, unit + 16 * v);
}

static WITH_AVX2 void run_tables(const struct layer *layer, const uint32_t *in, ptrdiff_t stride,
                                 int rows, struct results to)
{
    const int8_t *weights = layer->weights;
    int unit, units;
    for (unit = 0; unit < layer->units; unit += units) {
        units = tile_of(layer->units - unit, layer->tile);
        if (units == 64)
            tables_of_tile(4, layer, in, stride, rows, weights, unit, to);
        else if (units == 32)
            tables_of_tile(2, layer, in, stride, rows, weights, unit, to);
        else
            tables_of_tile(1, layer, in, stride, rows, weights, unit, to);
        weights += 32 * (size_t)layer->inputs * units;
    }
}
