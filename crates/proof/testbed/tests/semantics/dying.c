/* A daemon that shows a directory and dies of what it is asked for, in its own functions:
 *     dying BACKING CONTROL MOUNTPOINT [OPTIONS]
 * CONTROL is a directory: "once" in it is removed by who dies; with "handler" in it the daemon handles SIGSEGV itself;
 * "pipe" is waited for by who makes a directory "slow", who then adds a byte to "log". */
#include "passthrough.h"
#include "around.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define APART __attribute__((noinline, noclone))

static volatile int *volatile nowhere;
static void (*volatile nothing)(void);

static int is(const char *path, const char *name) { return !strcmp(strrchr(path, '/') + 1, name); }

/* Not through libc: it is not for a journal to remember. */
static int once(void) { return around(SYS_unlinkat, control, "once", 0) == 0; }

APART int sink_deeper(int depth) {
    volatile char much[1000];
    much[depth % 1000] = 1;
    return sink_deeper(depth + 1) + much[depth % 1000];
}

APART void strike_inner(const char *path) {
    if (is(path, "null"))
        *nowhere = 1;
    if (is(path, "abort"))
        abort();
    if (is(path, "overflow"))
        *nowhere = sink_deeper(0);
    if (is(path, "call"))
        nothing();
    __asm__ volatile("");
}

APART void strike_outer(const char *path) {
    strike_inner(path);
    __asm__ volatile("");
}

static int fork_and_strike(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        *nowhere = 1;
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -errno;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 0 : -EPROTO;
}

static int slowly(void) {
    int fd = openat(control, "pipe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    fd = openat(control, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1)
        return -errno;
    close(fd);
    return 0;
}

static int make_dir(const char *path, mode_t mode) {
    int failed = 0;
    if (is(path, "child"))
        failed = fork_and_strike();
    else if (is(path, "slow"))
        failed = slowly();
    else if (once())
        strike_outer(path);
    return failed ? failed : result(mkdirat(backing, below(path), mode));
}

static void own_handler(int signal) {
    (void)signal;
    _exit(7);
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .mkdir = make_dir, .open = open_file, .read = read_file,
        .release = release_file,
    };
    if (open_directories(argc, argv))
        return 2;
    if (faccessat(control, "handler", F_OK, 0) == 0)
        signal(SIGSEGV, own_handler);
    without_core();
    return serve(argc, argv, &operations);
}
