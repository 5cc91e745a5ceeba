/* A mirror of a folder whose create opens for reading and writing whatever its caller asked for, as many scripts do:
 *     plain FOLDER MOUNTPOINT [OPTIONS] */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *folder;

static const char *real(const char *path, char *into) {
    snprintf(into, PATH_MAX, "%s%s", folder, path);
    return into;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    char name[PATH_MAX];
    int failed = fi ? fstat(fi->fh, st) : lstat(real(path, name), st);
    return failed ? -errno : 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    char name[PATH_MAX];
    int fd = open(real(path, name), O_RDWR | O_CREAT | O_TRUNC, mode);
    fi->fh = fd;
    return fd < 0 ? -errno : 0;
}

static int open_file(const char *path, struct fuse_file_info *fi) {
    char name[PATH_MAX];
    int fd = open(real(path, name), fi->flags & ~(O_CREAT | O_EXCL));
    fi->fh = fd;
    return fd < 0 ? -errno : 0;
}

static int read_file(const char *path, char *buf, size_t size, off_t at, struct fuse_file_info *fi) {
    ssize_t done = pread(fi->fh, buf, size, at);
    return (void)path, done < 0 ? -errno : done;
}

static int write_file(const char *path, const char *buf, size_t size, off_t at, struct fuse_file_info *fi) {
    ssize_t done = pwrite(fi->fh, buf, size, at);
    return (void)path, done < 0 ? -errno : done;
}

static int release_file(const char *path, struct fuse_file_info *fi) { return (void)path, close(fi->fh), 0; }

static const struct fuse_operations operations = {
    .getattr = get_attr, .create = create_file, .open = open_file, .read = read_file, .write = write_file,
    .release = release_file,
};

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    folder = argv[1];
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
