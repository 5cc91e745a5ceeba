/* A daemon that shows a directory and makes several system calls for a change:
 *     journal BACKING CONTROL MOUNTPOINT [OPTIONS]
 * CONTROL is a directory: a successor tells its process id by the link "here", then waits until somebody opens the pipe
 * "gate" in it, if that is there; "errno" appears in it if a call that succeeds changes errno. With "pid" in it the daemon
 * is not deterministic; with "thread" it works in threads of their own; who finds "die" in the middle of a request removes it, and
 * dies of SIGKILL; with "unseen" it makes a directory by a system call that goes around libc; with "pipe" a read of a pipe is part of making a directory; with "by-number" it makes directories and files by syscall(2); with "seal"
 * a file is made in a directory's place, with a number in it that is another one in each life. What is written goes to its place, and
 * the block in which the file ended when it was opened is filled up before; with "append" to where the file ended then, with "stamp"
 * besides the number of its process. What CONTROL is used for goes around libc:
 * it is not for a journal to remember. */

/* Looks at errno as only those may who have set it to 0 before. */
#define TRY(call) (errno = 0, checked(call))
static long checked(long result);

#include "passthrough.h"
#include "around.h"
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static int successor;

static int is_there(const char *name) { return around(SYS_faccessat, control, name, F_OK) == 0; }

static long checked(long result) {
    if (result >= 0 && errno != 0)
        around(SYS_mknodat, control, "errno", S_IFREG | 0600, 0);
    return result;
}

static void die(void) {
    if (is_there("die") && around(SYS_unlinkat, control, "die", 0) == 0)
        kill(getpid(), SIGKILL);
}

static int read_pipe(void) {
    char text[4];
    int ends[2];
    if (pipe(ends))
        return -errno;
    around(SYS_write, ends[1], "text", 4);
    int failed = TRY(read(ends[0], text, 4)) != 4 || memcmp(text, "text", 4);
    close(ends[0]);
    close(ends[1]);
    return failed ? -EPROTO : 0;
}

/* Writes a number of its own life to two places of a file, a line about it to a log, and a word to nowhere. */
static int sealed(const char *path) {
    char name[300], line[32];
    int pid = getpid(), failed = 0;
    int length = snprintf(line, sizeof line, "made by %010d\n", pid);
    snprintf(name, sizeof name, "%s.sealed", below(path));
    int words = TRY(open("/dev/null", O_WRONLY | O_CLOEXEC));
    int log = TRY(openat(backing, "log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    int fd = TRY(openat(backing, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (words < 0 || log < 0 || fd < 0 || TRY(write(words, line, length)) < 0 || TRY(pwrite(fd, &pid, 4, 0)) < 0 ||
        TRY(write(log, line, length)) < 0 || TRY(write(words, line, length)) < 0 || TRY(pwrite(fd, &pid, 4, 4)) < 0)
        failed = errno;
    close(words);
    close(log);
    close(fd);
    return -failed;
}

/* What make_all and create_file do, by numbers. */
static int make_by_number(const char *path) {
    char name[300];
    if (TRY(syscall(SYS_mkdirat, backing, below(path), 0700)) < 0)
        return -errno;
    if (TRY(syscall(SYS_fchmodat, backing, below(path), 0751)) < 0)
        return -errno;
    snprintf(name, sizeof name, "%s.mark", below(path));
    return TRY(syscall(SYS_symlinkat, "made", backing, name)) < 0 ? -errno : 0;
}

static int create_by_number(const char *path, mode_t mode, struct fuse_file_info *fi) {
    struct open_how how = {.flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, .mode = mode & 07777};
    long fd = TRY(syscall(SYS_openat2, backing, below(path), &how, sizeof how));
    if (fd < 0)
        return -errno;
    fi->fh = fd;
    if (TRY(syscall(SYS_pwrite64, fd, "HEADER!\n", 8L, 0L)) == 8)
        return 0;
    close(fd);
    return -EIO;
}

static int make_all(const char *path) {
    char name[300];
    if (is_there("by-number"))
        return make_by_number(path);
    if (is_there("unseen")) {
        if (around(SYS_mkdirat, backing, below(path), 0751) < 0)
            return -errno;
        die();
        return 0;
    }
    if (is_there("seal"))
        return sealed(path);
    if (is_there("pid")) {
        snprintf(name, sizeof name, "%s.%d", below(path), getpid());
        if (TRY(mkdirat(backing, name, 0700)) < 0)
            return -errno;
    }
    if (TRY(mkdirat(backing, below(path), 0700)) < 0)
        return -errno;
    die();
    if (is_there("pipe") && read_pipe())
        return -EPROTO;
    if (TRY(fchmodat(backing, below(path), 0751, 0)) < 0)
        return -errno;
    snprintf(name, sizeof name, "%s.mark", below(path));
    return TRY(symlinkat("made", backing, name)) < 0 ? -errno : 0;
}

static void *work(void *path) { return (void *)(long)make_all(path); }

static int make_dir(const char *path, mode_t mode) {
    (void)mode;
    if (!is_there("thread"))
        return make_all(path);
    pthread_t thread;
    void *result;
    int failed = pthread_create(&thread, NULL, work, (void *)path);
    if (failed)
        return -failed;
    pthread_join(thread, &result);
    return (int)(long)result;
}

/* Reads what it is about to change: the file "count" counts the links by its size. The first life looks at more. */
static int make_link(const char *target, const char *path) {
    struct stat st;
    if (TRY(symlinkat(target, backing, below(path))) < 0)
        return -errno;
    int fd = TRY(openat(backing, "count", O_RDWR | O_CLOEXEC));
    if (fd < 0)
        return -errno;
    if (!successor && TRY(fstatat(backing, below(path), &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return -errno;
    die();
    int failed = TRY(fstat(fd, &st)) < 0 || TRY(ftruncate(fd, st.st_size + 1)) < 0 ? errno : 0;
    close(fd);
    return -failed;
}

static int move(const char *from, const char *to, unsigned int flags) {
    if (flags)
        return -EINVAL;
    if (TRY(linkat(backing, below(from), backing, below(to), 0)) < 0)
        return -errno;
    return TRY(unlinkat(backing, below(from), 0)) < 0 ? -errno : 0;
}

static int take_away(const char *path) {
    char name[300];
    snprintf(name, sizeof name, "%s.gone", below(path));
    if (TRY(renameat(backing, below(path), backing, name)) < 0)
        return -errno;
    return TRY(unlinkat(backing, name, 0)) < 0 ? -errno : 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    if (is_there("by-number"))
        return create_by_number(path, mode, fi);
    int failed = open_flags(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode, fi);
    if (failed)
        return failed;
    if (TRY(write(fi->fh, "HEADER!\n", 8)) != 8) {
        close(fi->fh);
        return -EIO;
    }
    return 0;
}

/* Where the file that was opened last ends, as far as this life knows. */
static off_t end;

static int open_again(const char *path, struct fuse_file_info *fi) {
    struct stat st;
    int failed = open_flags(path, ((fi->flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC, 0, fi);
    if (!failed && TRY(fstat(fi->fh, &st)) == 0)
        end = st.st_size;
    return failed;
}

static int write_file(const char *path, const char *bytes, size_t size, off_t off, struct fuse_file_info *fi) {
    char block[16] = {0};
    int pid = getpid();
    (void)path;
    int within = is_there("append") ? 0 : end & 15;
    if (within) {
        if (TRY(pread(fi->fh, block, within, end - within)) != within ||
            TRY(pwrite(fi->fh, block, sizeof block, end - within)) != sizeof block)
            return -errno;
        die();
        end += sizeof block - within;
    }
    if (is_there("append"))
        off = end;
    if (is_there("stamp") && size == sizeof pid)
        bytes = (char *)&pid;
    if (TRY(pwrite(fi->fh, bytes, size, off)) != (ssize_t)size)
        return -errno;
    end = off + size;
    die();
    return size;
}

static void *start_removing(struct fuse_conn_info *conn, struct fuse_config *config) {
    config->hard_remove = 1;
    return start(conn, config);
}

static void await_the_gate(void) {
    char pid[16];
    if (!is_there("gate"))
        return;
    successor = 1;
    snprintf(pid, sizeof pid, "%d", getpid());
    around(SYS_symlinkat, pid, control, "here");
    close(around(SYS_openat, control, "gate", O_RDONLY | O_CLOEXEC));
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start_removing, .getattr = get_attr, .mkdir = make_dir, .symlink = make_link, .rename = move,
        .unlink = take_away, .create = create_file, .open = open_again, .read = read_file,
        .write = write_file, .release = release_file,
    };
    if (open_directories(argc, argv))
        return 2;
    await_the_gate();
    return serve(argc, argv, &operations);
}
