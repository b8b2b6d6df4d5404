/* What the program asks of the machine that runs QEMU: files, text, an exit. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stdint.h>

enum { SYS_OPEN = 0x01, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT = 0x20 };
enum { READ_BYTES = 1, WRITE_TEXT = 4 }; /* modes of SYS_OPEN */

static inline int32_t host_call(int32_t operation, const void *argument)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Return a handle of the file, or -1. The name ":tt" is the standard output. */
static inline int32_t host_open(const char *name, int mode)
{
    uint32_t length = 0;
    while (name[length])
        length++;
    uint32_t block[3] = {(uint32_t)name, (uint32_t)mode, length};
    return host_call(SYS_OPEN, block);
}

/* Return whether all bytes could be read. */
static inline int host_read(int32_t file, void *to, uint32_t bytes)
{
    uint32_t block[3] = {(uint32_t)file, (uint32_t)to, bytes};
    return host_call(SYS_READ, block) == 0;
}

static inline void host_write(int32_t file, const void *from, uint32_t bytes)
{
    uint32_t block[3] = {(uint32_t)file, (uint32_t)from, bytes};
    host_call(SYS_WRITE, block);
}

/* Write a text to the standard error. */
static inline void host_say(const char *text)
{
    host_call(SYS_WRITE0, text);
}

static inline void host_exit(uint32_t status)
{
    uint32_t block[2] = {0x20026, status}; /* the application ends by itself */
    host_call(SYS_EXIT, block);
    for (;;)
        ;
}

#endif
