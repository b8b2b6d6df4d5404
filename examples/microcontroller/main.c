/* Classify each sample of samples.bin; measure the stack and the instructions of a prediction. */
#include "network.h"
#include "semihosting.h"

#define SYSTICK ((volatile uint32_t *)0xe000e010) /* control, reload, value */
#define LONGEST 0xffffffu
#define PAINT 0xa5c3a5c3u

extern uint32_t stack_bottom[];

static network_input sample[NETWORK_INPUTS];
static int32_t scores[NETWORK_CLASSES];
static char line[16 * NETWORK_CLASSES + 1024];
static uint32_t deepest;

static char *put_text(char *at, const char *text)
{
    while (*text && at < line + sizeof line - 1)
        *at++ = *text++;
    *at = 0;
    return at;
}

static char *put_number(char *at, int64_t number)
{
    char digits[24], *digit = digits + sizeof digits - 1;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    *digit = 0;
    do
        *--digit = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *--digit = '-';
    return put_text(at, digit);
}

static void say(const char *before, int64_t number, const char *after)
{
    put_text(put_number(put_text(line, before), number), after);
    host_say(line);
}

static void start_clock(void)
{
    SYSTICK[0] = 0;
    SYSTICK[1] = LONGEST;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5; /* count down at the processor's clock */
}

static uint32_t ticks(void)
{
    uint32_t left = SYSTICK[2];
    if (SYSTICK[0] >> 16 & 1) { /* it has come to 0 */
        host_say("a prediction takes longer than the clock can count\n");
        host_exit(2);
    }
    return LONGEST - left;
}

/* Time a million rounds of two instructions: a tick must be as many instructions as we think. */
static void check_clock(void)
{
    uint32_t rounds = 1000000, found;
    start_clock();
    __asm__ volatile("1: subs %0, %0, #1\n bne 1b" : "+l"(rounds) : : "cc");
    found = ticks() * PER_TICK;
    if (found < 1998000 || found > 2002000) {
        say("2000000 instructions are counted as ", found, ": start QEMU with -icount shift=0\n");
        host_exit(2);
    }
}

/* Classify the sample; add the ticks, and look how deep the stack became. */
__attribute__((noinline)) static int classify(uint64_t *total)
{
    uint32_t *top, *word;
    int best;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (word = stack_bottom; word < top; word++)
        *word = PAINT;
    start_clock();
    best = network_classify(sample);
    *total += ticks();
    for (word = stack_bottom; word < top && *word == PAINT; word++)
        ;
    if ((uint32_t)(top - word) > deepest)
        deepest = (uint32_t)(top - word);
    return best;
}

int main(void)
{
    int32_t in = host_open("samples.bin", READ_BYTES), out = host_open(":tt", WRITE_TEXT);
    uint32_t count = 0;
    uint64_t total = 0;
    if (in < 0) {
        host_say("there is no samples.bin\n");
        return 1;
    }
    check_clock();
    for (; host_read(in, sample, sizeof sample); count++) {
        char *end = put_text(line, network_labels[classify(&total)]);
        int j;
        network_scores(sample, scores);
        for (j = 0; j < NETWORK_CLASSES; j++)
            end = put_number(put_text(end, "\t"), scores[j]);
        end = put_text(end, "\n");
        host_write(out, line, (uint32_t)(end - line));
    }
    if (count == 0) {
        host_say("samples.bin is shorter than a sample\n");
        return 1;
    }
    say("samples ", count, "\n");
    say("stack ", 4 * (int64_t)deepest, " bytes\n");
    say("instructions ", (int64_t)(total * PER_TICK / count), " per prediction\n");
    return 0;
}
