/* A daemon that looks at its mountpoint in every way before it mounts, and wants a directory that is not a link:
 *     picky MOUNTPOINT [OPTIONS]
 * It shows one file, "file". */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "text.h"

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    memset(st, 0, sizeof *st);
    st->st_nlink = 1;
    st->st_size = 4;
    st->st_mode = strcmp(path, "/") ? S_IFREG | 0600 : S_IFDIR | 0700;
    return strcmp(path, "/") && strcmp(path, "/file") ? -ENOENT : 0;
}

static const struct fuse_operations operations = {.getattr = get_attr, .read = read_text};

static void want(int holds, const char *path, const char *what) {
    if (!holds)
        errx(3, "%s: %s", path, what);
}

static void look(const char *path) {
    struct stat st;
    struct statx stx;
    char real[PATH_MAX];
    int fd;
    DIR *list;
    struct statfs fs;
    struct statvfs vfs;
    struct dirent **names;
    want(lstat(path, &st) == 0 && S_ISDIR(st.st_mode), path, "lstat");
    want(stat(path, &st) == 0 && S_ISDIR(st.st_mode), path, "stat");
    want(fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode), path, "fstatat");
    want(statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &stx) == 0 && S_ISDIR(stx.stx_mode), path, "statx");
    want(access(path, R_OK | W_OK | X_OK) == 0, path, "access");
    want(faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0, path, "faccessat");
    want(readlink(path, real, sizeof real) < 0, path, "readlink");
    want(realpath(path, real) != NULL, path, "realpath");
    want((fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)) >= 0 && close(fd) == 0, path, "open");
    want((fd = open(path, O_PATH | O_NOFOLLOW)) >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode), path, "O_PATH");
    close(fd);
    want(statfs(path, &fs) == 0, path, "statfs");
    want(statvfs(path, &vfs) == 0, path, "statvfs");
    want(mkdir(path, 0700) < 0 && errno == EEXIST, path, "mkdir");
    want(scandir(path, &names, NULL, NULL) == 2, path, "scandir");
    want((list = opendir(path)) && closedir(list) == 0, path, "opendir");
}

int main(int argc, char **argv) {
    char path[PATH_MAX];
    if (argc < 2)
        return 2;
    look(argv[1]);
    look(strcat(strcpy(path, argv[1]), "/"));
    look(strcat(strcpy(path, argv[1]), "/."));
    return fuse_main(argc, argv, &operations, NULL);
}
