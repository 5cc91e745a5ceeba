/* What the daemons of these tests have in common that show a directory:
 *     PROGRAM BACKING CONTROL MOUNTPOINT [OPTIONS]
 * Nothing is cached, so that whatever is asked for reaches them. Who has to look at its system calls defines TRY before. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef TRY
#define TRY(call) (call)
#endif

static int backing, control;

static inline const char *below(const char *path) { return path[1] ? path + 1 : "."; }

static inline int result(int value) { return value < 0 ? -errno : value; }

static inline void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

static inline int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    return result(TRY(fstatat(backing, below(path), st, AT_SYMLINK_NOFOLLOW)));
}

static inline int open_flags(const char *path, int flags, mode_t mode, struct fuse_file_info *fi) {
    int fd = TRY(openat(backing, below(path), flags, mode));
    if (fd < 0)
        return -errno;
    fi->fh = fd;
    return 0;
}

static inline int open_file(const char *path, struct fuse_file_info *fi) { return open_flags(path, fi->flags, 0, fi); }

static inline int read_file(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)path;
    return result(TRY(pread(fi->fh, buf, size, off)));
}

static inline int release_file(const char *path, struct fuse_file_info *fi) {
    (void)path;
    return result(close(fi->fh));
}

/* A death by a signal leaves no core file. */
static inline void without_core(void) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

/* Opens BACKING and CONTROL. */
static inline int open_directories(int argc, char **argv) {
    if (argc < 4)
        return -1;
    backing = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    control = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return backing < 0 || control < 0 ? -1 : 0;
}

static inline int serve(int argc, char **argv, const struct fuse_operations *operations) {
    umask(0);
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, operations, NULL);
}
