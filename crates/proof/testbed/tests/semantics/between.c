/* Waits until a process has read a request from a FUSE device, and gives it a signal before it can do anything with that:
 *     between PID SIGNAL
 * The process must have one thread. Writes the byte 1 when it is ready. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

static int is_device(pid_t pid, long fd) {
    char name[64], path[64] = "";
    snprintf(name, sizeof name, "/proc/%d/fd/%ld", pid, fd);
    return readlink(name, path, sizeof path - 1) > 0 && !strcmp(path, "/dev/fuse");
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    pid_t pid = atoi(argv[1]);
    int status, device = 0, ready = 0;
    if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) || ptrace(PTRACE_INTERRUPT, pid, 0, 0))
        return 3;
    for (;;) {
        if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
            return 4;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            struct ptrace_syscall_info info = {0};
            ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
                device = info.entry.nr == SYS_read && is_device(pid, info.entry.args[0]);
            else if (device && info.exit.rval >= 40)
                break;
            if (device && !ready && info.op == PTRACE_SYSCALL_INFO_ENTRY)
                ready = write(1, "\1", 1);
        }
        /* Signals of others are handed on; a stop that is none of a signal gives none. */
        int stop = status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP;
        if (ptrace(PTRACE_SYSCALL, pid, 0, stop ? 0 : WSTOPSIG(status)))
            return 5;
    }
    syscall(SYS_tgkill, pid, pid, atoi(argv[2]));
    return ptrace(PTRACE_DETACH, pid, 0, 0) ? 6 : 0;
}
