/* A daemon that keeps its one file, /f, in its own memory until its root is synced, as daemons that buffer do:
 *     blob IMAGE MOUNTPOINT [OPTIONS]
 * File and root have a mark each, set and told by ioctl:
 *     blob mark PATH [NUMBER]
 * It takes the data of writes from a pipe if libfuse got them by one, and says so.
 * With REPLY_BY in its environment it talks to the kernel as libfuse does not: "offset" by preadv and pwritev, "pipe" by
 * write and splice, "head" by vmsplice and splice. With CONTROL, a directory: while there is a file "short" in it, a write
 * writes a byte less than it could; while there is a file "hold", a write waits; for a file "type", which it removes, it says
 * once that /f is a directory; with a file "most", a life carries out as many writes as that says, and makes a file "stuck" when
 * it is asked for more. With LATE it writes at its end, too.
 * With SPLICE, libfuse splices what is read. It is told of as much as was asked for, and finds less at the end of the file. */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST (4 << 20)
#define SET_MARK _IOW('b', 1, int)
#define GET_MARK _IOR('b', 2, int)

static int image;
/* What the image is like when everything was written. */
static struct {
    size_t length;
    int marks[2];
    char data[MOST];
} held;

/* Whether a file is in the directory by which the daemon is controlled. */
static int is_told(const char *what, int once) {
    char path[4096];
    if (!getenv("CONTROL"))
        return 0;
    snprintf(path, sizeof path, "%s/%s", getenv("CONTROL"), what);
    return once ? !unlink(path) : !access(path, F_OK);
}

static void tell(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("CONTROL"), what);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

/* How many writes a life carries out. */
static int most(void) {
    char path[4096], text[16] = "";
    int file, length;
    if (!is_told("most", 0))
        return 1 << 30;
    snprintf(path, sizeof path, "%s/most", getenv("CONTROL"));
    file = open(path, O_RDONLY | O_CLOEXEC);
    length = (int)read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atoi(text) : 1 << 30;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    int top = !strcmp(path, "/");
    (void)fi;
    if (!top && strcmp(path, "/f"))
        return -ENOENT;
    memset(st, 0, sizeof *st);
    st->st_mode = top ? S_IFDIR | 0755 : S_IFREG | 0644;
    st->st_nlink = 1 + top;
    st->st_size = top ? 0 : (off_t)held.length;
    if (!top && is_told("type", 1))
        st->st_mode = S_IFDIR | 0755;
    return 0;
}

static int cut(const char *path, off_t length, struct fuse_file_info *fi) {
    (void)path, (void)fi;
    if (length > MOST)
        return -EFBIG;
    if ((size_t)length > held.length)
        memset(held.data + held.length, 0, (size_t)length - held.length);
    held.length = (size_t)length;
    return 0;
}

static int get(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *fi) {
    size_t left = (size_t)at < held.length ? held.length - (size_t)at : 0;
    (void)path, (void)fi;
    size = size < left ? size : left;
    memcpy(to, held.data + at, size);
    return (int)size;
}

static int put(const char *path, struct fuse_bufvec *from, off_t at, struct fuse_file_info *fi) {
    struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(from));
    static int written;
    ssize_t done;
    (void)path, (void)fi;
    if (at + (off_t)fuse_buf_size(from) > MOST)
        return -EFBIG;
    if (from->buf[0].flags & FUSE_BUF_IS_FD)
        fprintf(stderr, "%zu bytes at %lld by a pipe\n", fuse_buf_size(from), (long long)at);
    while (is_told("hold", 0))
        usleep(5000);
    while (written >= most()) {
        tell("stuck");
        usleep(5000);
    }
    written++;
    to.buf[0].mem = held.data + at;
    done = fuse_buf_copy(&to, from, 0);
    done -= done > 1 && is_told("short", 0);
    if (done > 0 && (size_t)(at + done) > held.length)
        held.length = (size_t)(at + done);
    return (int)done;
}

static int get_spliced(const char *path, struct fuse_bufvec **to, size_t size, off_t at, struct fuse_file_info *fi) {
    static int copy = -1;
    (void)path, (void)fi;
    if (copy < 0 && (copy = memfd_create("copy", MFD_CLOEXEC)) < 0)
        return -EIO;
    if (pwrite(copy, held.data, held.length, 0) != (ssize_t)held.length || ftruncate(copy, (off_t)held.length) ||
        !(*to = malloc(sizeof **to)))
        return -EIO;
    **to = FUSE_BUFVEC_INIT(size);
    (*to)->buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    (*to)->buf[0].fd = copy;
    (*to)->buf[0].pos = at;
    return 0;
}

static int sync_dir(const char *path, int data, struct fuse_file_info *fi) {
    (void)path, (void)data, (void)fi;
    return pwrite(image, &held, sizeof held, 0) == sizeof held ? 0 : -EIO;
}

static void end(void *data) {
    (void)data;
    if (getenv("LATE"))
        sync_dir("/", 0, NULL);
}

static int control(const char *path, unsigned command, void *argument, struct fuse_file_info *fi, unsigned flags,
                   void *data) {
    int *mark = &held.marks[!strcmp(path, "/")];
    (void)argument, (void)fi;
    if (!(flags & FUSE_IOCTL_DIR) != !!strcmp(path, "/"))
        return -EBADF;
    if (command == SET_MARK)
        *mark = *(int *)data;
    else if (command == GET_MARK)
        *(int *)data = *mark;
    else
        return -ENOTTY;
    return 0;
}

/* Ways to talk to the kernel. */
static int pipe_ends[2];

static ssize_t ask_at(int device, void *to, size_t size, void *data) {
    struct iovec part = {to, size};
    (void)data;
    return preadv(device, &part, 1, 0);
}

static ssize_t ask(int device, void *to, size_t size, void *data) {
    (void)data;
    return read(device, to, size);
}

static ssize_t tell_at(int device, struct iovec *parts, int count, void *data) {
    (void)data;
    return pwritev(device, parts, count, 0);
}

static ssize_t splice_on(int device, ssize_t put) {
    ssize_t done = put;
    while (put > 0 && done > 0 && (done = splice(pipe_ends[0], NULL, device, NULL, (size_t)put, 0)) > 0)
        put -= done;
    return put ? -1 : done;
}

static ssize_t tell_by_pipe(int device, struct iovec *parts, int count, void *data) {
    (void)data;
    return splice_on(device, writev(pipe_ends[1], parts, count));
}

static ssize_t tell_head_first(int device, struct iovec *parts, int count, void *data) {
    ssize_t head = vmsplice(pipe_ends[1], parts, 1, 0), body = 0;
    (void)data;
    if (count > 1 && (body = vmsplice(pipe_ends[1], parts + 1, (size_t)count - 1, 0)) < 0)
        return -1;
    return splice_on(device, head + body);
}

static int serve(const char *way, struct fuse_args *args, const struct fuse_operations *operations, const char *at) {
    struct fuse_custom_io io = {.read = ask, .writev = tell_by_pipe};
    struct fuse *fuse = fuse_new(args, operations, sizeof *operations, NULL);
    struct fuse_session *session;
    int result;
    if (!fuse || pipe2(pipe_ends, O_CLOEXEC) || fcntl(pipe_ends[1], F_SETPIPE_SZ, 1 << 20) < 0 || fuse_mount(fuse, at))
        return 4;
    if (!strcmp(way, "offset"))
        io.read = ask_at, io.writev = tell_at;
    else if (!strcmp(way, "head"))
        io.writev = tell_head_first;
    session = fuse_get_session(fuse);
    if (fuse_set_signal_handlers(session) || fuse_session_custom_io(session, &io, fuse_session_fd(session)))
        return 5;
    result = fuse_loop(fuse);
    fuse_unmount(fuse);
    fuse_destroy(fuse);
    return result != 0;
}

static int client(const char *path, const char *number) {
    int file = open(path, O_RDONLY), mark = number ? atoi(number) : 0;
    if (file < 0 || ioctl(file, number ? SET_MARK : GET_MARK, &mark) < 0)
        return 1;
    printf("%d", mark);
    return 0;
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    conn->max_write = 128 << 10; /* so that a request has room in a pipe as large as anybody may make it */
    if (getenv("SPLICE"))
        conn->want |= conn->capable & FUSE_CAP_SPLICE_WRITE;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

int main(int argc, char **argv) {
    struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .truncate = cut, .read = get, .write_buf = put, .fsyncdir = sync_dir,
        .ioctl = control, .destroy = end,
    };
    if (argc > 2 && !strcmp(argv[1], "mark"))
        return client(argv[2], argv[3]);
    if (argc < 3 || (image = open(argv[1], O_RDWR | O_CLOEXEC)) < 0)
        return 2;
    if (pread(image, &held, sizeof held, 0) < 0 || held.length > MOST)
        return 3;
    if (getenv("SPLICE"))
        operations.read_buf = get_spliced;
    if (getenv("REPLY_BY")) {
        struct fuse_args args = FUSE_ARGS_INIT(1, argv);
        return serve(getenv("REPLY_BY"), &args, &operations, argv[2]);
    }
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
