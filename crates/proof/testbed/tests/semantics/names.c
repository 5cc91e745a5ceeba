/* A daemon that shows a directory, stores what is written to files at once, and keeps directories that are made in memory:
 *     names BACKING CONTROL MOUNTPOINT [OPTIONS]
 * With "stream" in CONTROL it stores them all the same, by a stream of the C library's. */
#include "passthrough.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MADE 128
static char made[MADE][256];

static int find(const char *path) {
    for (int i = 0; i < MADE; i++)
        if (!strcmp(made[i], path))
            return i;
    return -1;
}

static int attributes(const char *path, struct stat *st, struct fuse_file_info *fi) {
    if (find(path) < 0)
        return get_attr(path, st, fi);
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFDIR | 0755;
    st->st_nlink = 2;
    return 0;
}

static int make_dir(const char *path, mode_t mode) {
    int i = find("");
    (void)mode;
    if (i < 0)
        return -ENOSPC;
    snprintf(made[i], sizeof made[i], "%s", path);
    if (faccessat(control, "stream", F_OK, 0) == 0) {
        FILE *list = fopen("list", "a");
        if (!list || fprintf(list, "%s\n", path) < 0 || fclose(list))
            return -EIO;
    }
    return 0;
}

static int remove_dir(const char *path) {
    int i = find(path);
    if (i < 0)
        return result(unlinkat(backing, below(path), AT_REMOVEDIR));
    made[i][0] = 0;
    return 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    return open_flags(path, fi->flags | O_CREAT, mode, fi);
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)path;
    return result((int)pwrite((int)fi->fh, data, size, at));
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = attributes, .open = open_file, .create = create_file, .read = read_file,
        .write = write_file, .release = release_file, .mkdir = make_dir, .rmdir = remove_dir,
    };
    if (open_directories(argc, argv) || fchdir(control))
        return 2;
    return serve(argc, argv, &operations);
}
