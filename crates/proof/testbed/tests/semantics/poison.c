/* A daemon that shows a directory and dies, or hangs, when it is asked to make a directory with a certain name:
 *     poison BACKING CONTROL MOUNTPOINT [OPTIONS]
 * CONTROL is a directory: "once" in it is removed by who dies of "poison-once"; who gets "gate" adds a byte to "reached"
 * and waits until "open" is there. */
#include "passthrough.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *path, const char *name) {
    return strncmp(strrchr(path, '/') + 1, name, strlen(name)) == 0;
}

static void reached(void) {
    int fd = openat(control, "reached", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0 || write(fd, "x", 1) != 1)
        _exit(9);
    close(fd);
}

static void look_at(const char *path) {
    if (is(path, "poison-segv"))
        *(volatile int *)0 = 1;
    if (is(path, "poison-abort"))
        abort();
    if (is(path, "poison-exit"))
        _exit(3);
    if (is(path, "poison-kill"))
        kill(getpid(), SIGKILL);
    if (is(path, "poison-once") && unlinkat(control, "once", 0) == 0)
        abort();
    if (is(path, "poison-hang")) {
        for (;;)
            pause();
    }
    if (is(path, "gate")) {
        reached();
        while (faccessat(control, "open", F_OK, 0) != 0)
            usleep(1000);
    }
}

static int read_dir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
                    enum fuse_readdir_flags flags) {
    (void)off, (void)fi, (void)flags;
    int fd = openat(backing, below(path), O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    for (struct dirent *entry; (entry = readdir(dir));)
        fill(buf, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int make_dir(const char *path, mode_t mode) {
    look_at(path);
    return result(mkdirat(backing, below(path), mode));
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    return open_flags(path, fi->flags | O_CREAT, mode, fi);
}

static int write_file(const char *path, const char *buf, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)path;
    return result(pwrite(fi->fh, buf, size, off));
}

static int remove_file(const char *path) { return result(unlinkat(backing, below(path), 0)); }

static int remove_dir(const char *path) { return result(unlinkat(backing, below(path), AT_REMOVEDIR)); }

static int move(const char *from, const char *to, unsigned flags) {
    return result(renameat2(backing, below(from), backing, below(to), flags));
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .readdir = read_dir, .mkdir = make_dir, .open = open_file,
        .create = create_file, .read = read_file, .write = write_file, .release = release_file,
        .unlink = remove_file, .rmdir = remove_dir, .rename = move,
    };
    if (open_directories(argc, argv))
        return 2;
    without_core();
    return serve(argc, argv, &operations);
}
