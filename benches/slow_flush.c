/*
 * Makes every flush of the disk 2 ms slower, as on ordinary disks: preloaded (LD_PRELOAD) into a server, so that its
 * own fsync and fdatasync come here first. The flush itself still happens.
 *
 *   cc -O2 -shared -fPIC -o slow_flush.so slow_flush.c
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct timespec extra = {.tv_sec = 0, .tv_nsec = 2000000};

int fsync(int fd)
{
    int result = (int)syscall(SYS_fsync, fd);
    nanosleep(&extra, 0);
    return result;
}

int fdatasync(int fd)
{
    int result = (int)syscall(SYS_fdatasync, fd);
    nanosleep(&extra, 0);
    return result;
}
