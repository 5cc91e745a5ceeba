/* A daemon on an image, in which a few bytes say which directories there are:
 *     image IMAGE MOUNTPOINT [OPTIONS]
 *     image -e MOUNTPOINT [OPTIONS]        the variable IMAGE names it
 * A directory's first letter is its place among the first 4096 bytes. Making it writes the 1 MiB blocks behind these, each
 * full of that letter: 70 for a name that begins with "b", three for others; and reads them all again before it answers.
 * One that begins with "v": a child that has its memory has closed the image before that. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (1 << 20)

static int image;
static char block[BLOCK], found[BLOCK];

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    char there = path[1] == 0;
    (void)fi;
    if (!there && pread(image, &there, 1, (unsigned char)path[1]) != 1)
        return -EIO;
    if (!there)
        return -ENOENT;
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFDIR | 0755;
    st->st_nlink = 2;
    return 0;
}

static int make_dir(const char *path, mode_t mode) {
    int count = path[1] == 'b' ? 70 : 3;
    (void)mode;
    if (path[1] == 'v') {
        pid_t child = vfork();
        if (child == 0) {
            close(image);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    memset(block, path[1], sizeof block);
    for (int i = 0; i < count; i++)
        if (pwrite(image, block, BLOCK, 4096 + (off_t)i * BLOCK) != BLOCK)
            return -EIO;
    if (pwrite(image, path + 1, 1, (unsigned char)path[1]) != 1)
        return -EIO;
    for (int i = 0; i < count; i++)
        if (pread(image, found, BLOCK, 4096 + (off_t)i * BLOCK) != BLOCK || memcmp(found, block, BLOCK))
            return -EPROTO;
    return 0;
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .mkdir = make_dir,
    };
    if (argc < 3 || (image = open(strcmp(argv[1], "-e") ? argv[1] : getenv("IMAGE"), O_RDWR | O_CLOEXEC)) < 0)
        return 2;
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
