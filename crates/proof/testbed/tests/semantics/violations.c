/* A daemon that shows a directory and gives replies that no daemon should:
 *     violations BACKING CONTROL MOUNTPOINT [OPTIONS]
 * A file in CONTROL that is called KIND.OPERATION has the next reply to that operation be of that kind; who gives it removes the
 * file, unless there is one called "always". */
#include "passthrough.h"
#include "around.h"
#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const char *const kinds[] = {
    "length", "node", "asked", "type", "errno", "failure", "header", "unique", "longer", "size", "entry", "count", "assert",
    "heap", NULL,
};

/* What is wrong with the reply that this thread gives next. */
static __thread const char *wrong;

/* Not through libc: it is not for a journal to remember. */
static int is_there(const char *name) { return around(SYS_faccessat, control, name, F_OK) == 0; }

static void look(const char *operation) {
    char name[64];
    if (wrong)
        return; /* libfuse asks for more, for the same request */
    for (int i = 0; kinds[i]; i++) {
        snprintf(name, sizeof name, "%s.%s", kinds[i], operation);
        if (is_there(name)) {
            wrong = kinds[i];
            if (!is_there("always"))
                around(SYS_unlinkat, control, name, 0);
        }
    }
    if (wrong && !strcmp(wrong, "heap")) {
        char *volatile twice = malloc(100000);
        free(twice);
        free(twice - 8);
    }
    if (wrong && !strcmp(wrong, "assert")) {
        volatile int blocks_in_use = 1;
        assert(blocks_in_use == 0);
    }
}

static int is(const char *kind) { return !strcmp(wrong, kind); }

/* libfuse's own replies come by here: the program's function is found before the C library's. */
ssize_t writev(int fd, const struct iovec *iov, int count) {
    static char message[1 << 20];
    static ssize_t (*next)(int, const struct iovec *, int);
    struct fuse_out_header head, *out = (void *)message;
    struct fuse_entry_out *entry = (void *)(out + 1);
    struct iovec one = {message, 0};
    if (!next)
        next = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (!wrong || count < 1 || iov[0].iov_len != sizeof head)
        return next(fd, iov, count);
    memcpy(&head, iov[0].iov_base, sizeof head);
    memset(message, 0, sizeof message);
    *out = (struct fuse_out_header){.unique = head.unique, .len = sizeof head + sizeof *entry};
    *entry = (struct fuse_entry_out){.nodeid = 99, .attr = {.ino = 99, .mode = S_IFDIR | 0755, .nlink = 2}};
    one.iov_len = out->len;
    if (is("length"))
        out->len = one.iov_len = 80;
    else if (is("node"))
        entry->nodeid = 0;
    else if (is("asked"))
        entry->attr.mode = S_IFREG | 0644;
    else if (is("type"))
        entry->attr.mode = 0;
    else if (is("errno"))
        out->error = 5, out->len = one.iov_len = sizeof *out;
    else if (is("failure"))
        out->error = -5, out->len = one.iov_len = sizeof *out + 8;
    else if (is("header"))
        one.iov_len = 100;
    else if (is("unique"))
        out->unique += 1000000, out->error = -5, out->len = one.iov_len = sizeof *out;
    else if (is("longer"))
        out->len = one.iov_len = sizeof *out + 500001;
    else if (is("size")) {
        struct fuse_attr_out *attr = (void *)(out + 1);
        memset(entry, 0, sizeof *entry);
        attr->attr = (struct fuse_attr){.ino = 5, .mode = S_IFREG | 0644, .nlink = 1, .size = 1ULL << 63};
        out->len = one.iov_len = sizeof *out + sizeof *attr;
    } else if (is("entry")) {
        /* As READDIRPLUS has it; for READDIR it is one without a name. */
        struct fuse_dirent *dirent = (void *)(entry + 1);
        memset(entry, 0, sizeof *entry);
        *dirent = (struct fuse_dirent){.ino = 5, .off = 1, .namelen = 3, .type = DT_REG};
        memcpy(dirent + 1, "a/b", 3);
        out->len = one.iov_len = sizeof *out + sizeof *entry + sizeof *dirent + 8;
    } else if (is("count")) {
        struct fuse_write_out *written = (void *)(out + 1);
        memset(entry, 0, sizeof *entry);
        written->size = 1 << 30;
        out->len = one.iov_len = sizeof *out + sizeof *written;
    }
    wrong = NULL;
    next(fd, &one, 1);
    return iov[0].iov_len;
}

static int v_getattr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    look("getattr");
    return get_attr(path, st, fi);
}

static int v_mkdir(const char *path, mode_t mode) {
    look("mkdir");
    return wrong ? 0 : result(mkdirat(backing, below(path), mode));
}

static int v_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi) {
    look("read");
    return read_file(path, buf, size, off, fi);
}

static int v_write(const char *path, const char *buf, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)path;
    look("write");
    return wrong ? (int)size : result(pwrite(fi->fh, buf, size, off));
}

static int v_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
                     enum fuse_readdir_flags flags) {
    int fd = openat(backing, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    (void)off, (void)fi, (void)flags;
    if (!dir)
        return -errno;
    look("readdir");
    while ((entry = readdir(dir)))
        fill(buf, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = v_getattr, .mkdir = v_mkdir, .open = open_file, .read = v_read, .write = v_write,
        .release = release_file, .readdir = v_readdir,
    };
    if (open_directories(argc, argv))
        return 2;
    without_core();
    return serve(argc, argv, &operations);
}
