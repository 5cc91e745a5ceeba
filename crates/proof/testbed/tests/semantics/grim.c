/* A daemon whose processes do not end as others do:
 *     grim OVER MOUNTPOINT [OPTIONS]
 * It shows one file, "file". A directory that is made has it do what its name says, and is there from then on:
 * forks    starts a chain of processes: each starts the next one and ends. They end when the file OVER is there, or its folder gone
 * traced   starts a process that traces it, and lets it go no further when it ends
 * core     has its core written where it is mounted, when it dies
 * mortal   starts such a chain and dies when "file" is asked for, in this life and all that come
 * child    starts a process that waits
 * quits    exits
 * user     becomes another user
 *     grim OVER trace PID
 * traces that process in the same way.
 * With GRIM_NEWPID in its environment it serves in a PID namespace of its own.
 * What is written is thrown away. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <libgen.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text.h"

static const char *over, *mountpoint;
static char made[64], core[64], mortal[4096];

static int is_made(const char *path) { return made[0] && !strcmp(path + 1, made); }
static int is_core(const char *path) { return core[0] && !strcmp(path + 1, core); }

static int is_over(void) {
    char folder[4096];
    strncpy(folder, over, sizeof folder - 1);
    return access(over, F_OK) == 0 || access(dirname(folder), F_OK);
}

static void chain(void) {
    signal(SIGCHLD, SIG_IGN);
    while (!is_over()) {
        if (fork() > 0)
            _exit(0);
        usleep(100);
    }
    _exit(0);
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    if (!strcmp(path, "/file") && access(mortal, F_OK) == 0) {
        if (fork() == 0)
            chain();
        abort();
    }
    memset(st, 0, sizeof *st);
    st->st_nlink = 1;
    st->st_size = 4;
    st->st_mode = S_IFREG | 0600;
    if (!strcmp(path, "/") || is_made(path))
        st->st_mode = S_IFDIR | 0700;
    else if (strcmp(path, "/file") && !is_core(path))
        return -ENOENT;
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *fi) { return (void)path, (void)fi, 0; }

static int write_file(const char *path, const char *buf, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)path, (void)buf, (void)at, (void)fi;
    return size;
}

static int truncate_file(const char *path, off_t size, struct fuse_file_info *fi) {
    return (void)path, (void)size, (void)fi, 0;
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *fi) {
    return (void)path, (void)mode, (void)fi, 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    (void)mode, (void)fi;
    strncpy(core, path + 1, sizeof core - 1);
    return 0;
}

static void trace(pid_t daemon, int ready) {
    if (ptrace(PTRACE_SEIZE, daemon, 0, PTRACE_O_TRACEEXIT) || write(ready, "x", 1) != 1)
        _exit(1);
    while (!is_over())
        usleep(10000);
    _exit(0);
}

static int make_dir(const char *path, mode_t mode) {
    const char *name = path + 1;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    pid_t self = getpid();
    int ready[2];
    char byte;
    (void)mode;
    strncpy(made, name, sizeof made - 1);
    if (!strcmp(name, "forks") && fork() == 0)
        chain();
    if (!strcmp(name, "traced")) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        if (pipe(ready))
            return -errno;
        if (fork() == 0)
            trace(self, ready[1]);
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1)
            return -EPROTO;
        close(ready[0]);
    }
    if (!strcmp(name, "mortal") && creat(mortal, 0600) < 0)
        return -errno;
    if (!strcmp(name, "child") && fork() == 0) {
        while (!is_over())
            usleep(10000);
        _exit(0);
    }
    if (!strcmp(name, "quits"))
        _exit(3);
    if (!strcmp(name, "user") && (setresgid(4321, 4321, 4321) || setresuid(4321, 4321, 4321)))
        return -errno;
    if (!strcmp(name, "core") && (setrlimit(RLIMIT_CORE, &all) || chdir(mountpoint)))
        return -errno;
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = get_attr, .open = open_file, .read = read_text, .write = write_file, .create = create_file,
    .truncate = truncate_file, .chmod = change_mode, .mkdir = make_dir,
};

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    over = argv[1];
    snprintf(mortal, sizeof mortal, "%s.mortal", over);
    mountpoint = argv[2];
    if (argc == 4 && !strcmp(argv[2], "trace"))
        trace(atoi(argv[3]), 1);
    argv[1] = argv[0];
    if (getenv("GRIM_NEWPID")) {
        if (unshare(CLONE_NEWPID))
            return 3;
        pid_t child = fork();
        int status;
        if (child > 0)
            return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
    }
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
