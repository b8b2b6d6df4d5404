/* From reset to main: the vector table, and memory as C expects it. */
#include "semihosting.h"

#include <stddef.h>

extern uint32_t data_source[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];

int main(void);
void reset(void);

static void fault(void)
{
    host_say("a fault: not enough stack or memory?\n");
    host_exit(3);
}

/* The first stack pointer, then the handlers of reset, NMI, and four kinds of faults. */
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    stack_top, reset, fault, fault, fault, fault, fault,
};

void reset(void)
{
    uint32_t *from = data_source, *to;
    for (to = data_start; to < data_end;)
        *to++ = *from++;
    for (to = bss_start; to < bss_end;)
        *to++ = 0;
    host_exit((uint32_t)main());
}

/* Compilers call these two even without a library. */
void *memset(void *to, int value, size_t bytes)
{
    unsigned char *p = to;
    while (bytes--)
        *p++ = (unsigned char)value;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    unsigned char *p = to;
    const unsigned char *q = from;
    while (bytes--)
        *p++ = *q++;
    return to;
}
