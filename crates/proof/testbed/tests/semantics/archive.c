/* A daemon that keeps its files in memory and stores them by a new archive at its end:
 *     archive STORE CONTROL MOUNTPOINT [OPTIONS]
 * CONTROL is a directory: who finds "before" or "after" in it when it stores removes it, and dies of SIGKILL before or after
 * the archive has taken the old one's place; "slow" in it keeps it waiting there until that is gone. */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 64
static struct { char name[64]; size_t size; char *data; } files[FILES];
static const char *store, *control;

static int is_told(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", control, what);
    return access(path, F_OK) == 0;
}

static void die_if(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", control, what);
    if (unlink(path) == 0)
        kill(getpid(), SIGKILL);
}

static int find(const char *path) {
    for (int i = 0; i < FILES; i++)
        if (files[i].name[0] && !strcmp(files[i].name, path + 1))
            return i;
    return -1;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    memset(st, 0, sizeof *st);
    int i = find(path);
    if (strcmp(path, "/") && i < 0)
        return -ENOENT;
    st->st_mode = i < 0 ? S_IFDIR | 0755 : S_IFREG | 0644;
    st->st_nlink = 1;
    st->st_size = i < 0 ? 0 : (off_t)files[i].size;
    return 0;
}

static int list(const char *path, void *out, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *fi,
                enum fuse_readdir_flags flags) {
    (void)path, (void)at, (void)fi, (void)flags;
    for (int i = 0; i < FILES; i++)
        if (files[i].name[0])
            fill(out, files[i].name, NULL, 0, 0);
    return 0;
}

static int resize(int i, size_t size) {
    char *data = realloc(files[i].data, size + 1);
    if (!data)
        return -ENOMEM;
    if (size > files[i].size)
        memset(data + files[i].size, 0, size - files[i].size);
    files[i].data = data;
    files[i].size = size;
    return 0;
}

static int create(const char *path, mode_t mode, struct fuse_file_info *fi) {
    (void)mode, (void)fi;
    if (find(path) >= 0)
        return -EEXIST;
    for (int i = 0; i < FILES; i++)
        if (!files[i].name[0]) {
            snprintf(files[i].name, sizeof files[i].name, "%s", path + 1);
            files[i].size = 0;
            return 0;
        }
    return -ENOSPC;
}

static int open_file(const char *path, struct fuse_file_info *fi) {
    (void)fi;
    return find(path) < 0 ? -ENOENT : 0;
}

static int cut(const char *path, off_t size, struct fuse_file_info *fi) {
    (void)fi;
    int i = find(path);
    return i < 0 ? -ENOENT : resize(i, (size_t)size);
}

static int read_file(const char *path, char *out, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)fi;
    int i = find(path);
    if (i < 0)
        return -ENOENT;
    size_t left = (size_t)at < files[i].size ? files[i].size - (size_t)at : 0;
    size = size < left ? size : left;
    memcpy(out, files[i].data + at, size);
    return (int)size;
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)fi;
    int i = find(path);
    if (i < 0)
        return -ENOENT;
    if ((size_t)at + size > files[i].size && resize(i, (size_t)at + size))
        return -ENOMEM;
    memcpy(files[i].data + at, data, size);
    return (int)size;
}

static int take_away(const char *path) {
    int i = find(path);
    if (i < 0)
        return -ENOENT;
    files[i].name[0] = 0;
    return 0;
}

static int move(const char *from, const char *to, unsigned int flags) {
    int i = find(from);
    if (i < 0 || flags)
        return i < 0 ? -ENOENT : -EINVAL;
    if (strcmp(from, to))
        take_away(to);
    snprintf(files[i].name, sizeof files[i].name, "%s", to + 1);
    return 0;
}

static void load(void) {
    FILE *in = fopen(store, "r");
    if (!in)
        return;
    for (int i = 0; i < FILES; i++) {
        size_t size;
        if (fscanf(in, "%63s %zu", files[i].name, &size) != 2 || fgetc(in) != '\n' || resize(i, size) ||
            fread(files[i].data, 1, size, in) != size) {
            files[i].name[0] = 0;
            break;
        }
    }
    fclose(in);
}

static void save(void *unused) {
    (void)unused;
    char name[4096];
    while (is_told("slow"))
        usleep(1000);
    snprintf(name, sizeof name, "%s.new", store);
    FILE *out = fopen(name, "w");
    for (int i = 0; out && i < FILES; i++)
        if (files[i].name[0]) {
            fprintf(out, "%s %zu\n", files[i].name, files[i].size);
            fwrite(files[i].data, 1, files[i].size, out);
        }
    if (!out || fclose(out))
        exit(3);
    die_if("before");
    if (rename(name, store))
        exit(4);
    die_if("after");
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .getattr = get_attr, .readdir = list, .create = create, .open = open_file, .read = read_file,
        .write = write_file, .truncate = cut, .unlink = take_away, .rename = move, .destroy = save,
    };
    if (argc < 4)
        return 2;
    store = argv[1];
    control = argv[2];
    load();
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
