/* A daemon that shows a directory and stores the content of a file when that is flushed, as those do that upload to a server:
 *     upload BACKING CONTROL MOUNTPOINT [OPTIONS]
 * What is written collects in memory, by path. FLUSH and FSYNC store it by a new file that takes the old one's place; with "close" in
 * CONTROL it is RELEASE that does, and FLUSH nothing. A file that is made is there when it is stored. Names go through at once.
 * With "release" in CONTROL it is as with "close", FSYNC stores nothing, and neither does a change of length by no handle, which is kept until
 * somebody has had the file open.
 * Extended attributes of a file that is open collect as well, up to four; those of others go through.
 * With "aside" in CONTROL what is written goes to a temporary file without a name as well, to a memfd, by a word to an eventfd and to a
 * pipe of its own: all of that dies with it.
 * Who finds "stop" there when a RELEASE has stored waits with its answer until that is gone.
 * Who finds "before" or "after" in CONTROL when it stores removes it, and dies of SIGKILL before or after the new file is in place. */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILES 32
#define ATTRIBUTES 4
struct attribute { char name[64], value[64]; ssize_t length; /* 0: none, or it is gone */ };
static struct {
    char path[256];
    int opens, dirty, kept; /* not open, and not stored */
    mode_t mode;
    size_t size;
    char *data;
    struct attribute attributes[ATTRIBUTES];
} files[FILES];
static const char *backing, *control;

/* Held while files are looked at: a write that comes while its file is stored must not be taken for stored. */
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static void unlock(int *nothing) { (void)nothing; pthread_mutex_unlock(&files_lock); }
#define LOCKED __attribute__((cleanup(unlock))) int locked = pthread_mutex_lock(&files_lock); (void)locked

static const char *in(const char *dir, const char *name, char *out) {
    snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return out;
}

static const char *behind(const char *path, char *out) { return in(backing, path + 1, out); }

static void die_if(const char *what) {
    char path[PATH_MAX];
    if (unlink(in(control, what, path)) == 0)
        kill(getpid(), SIGKILL);
}

static int find(const char *path) {
    for (int i = 0; i < FILES; i++)
        if ((files[i].opens || files[i].kept) && !strcmp(files[i].path, path))
            return i;
    return -1;
}

static int resize(int i, size_t size) {
    char *data = realloc(files[i].data, size + 1);
    if (!data)
        return -ENOMEM;
    if (size > files[i].size)
        memset(data + files[i].size, 0, size - files[i].size);
    files[i].data = data;
    files[i].size = size;
    files[i].dirty = 1;
    return 0;
}

static int store(int i) {
    char name[PATH_MAX], to[PATH_MAX];
    if (!files[i].dirty)
        return 0;
    snprintf(name, sizeof name, "%s.part", in(control, "object", to));
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, files[i].data, files[i].size) != (ssize_t)files[i].size || fchmod(fd, files[i].mode & 07777))
        return -EIO;
    for (struct attribute *a = files[i].attributes; a < files[i].attributes + ATTRIBUTES; a++)
        if (a->length && fsetxattr(fd, a->name, a->value, (size_t)a->length, 0))
            return -EIO;
    close(fd);
    die_if("before");
    if (rename(name, behind(files[i].path, to)))
        return -errno;
    die_if("after");
    files[i].dirty = 0;
    return 0;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    LOCKED;
    char at[PATH_MAX];
    int i = find(path);
    (void)fi;
    if (lstat(behind(path, at), st)) {
        if (i < 0)
            return -errno;
        memset(st, 0, sizeof *st);
        st->st_mode = files[i].mode;
        st->st_nlink = 1;
    }
    if (i >= 0)
        st->st_size = (off_t)files[i].size;
    return 0;
}

/* Made ahead of the first write. */
static void aside(const char *data, size_t size, off_t at) {
    static int file = -1, memory, event, ends[2];
    char path[PATH_MAX];
    if (access(in(control, "aside", path), F_OK))
        return;
    if (file < 0) {
        in(control, "temporary", path);
        if ((file = open(path, O_RDWR | O_CREAT, 0600)) < 0 || unlink(path) || (memory = memfd_create("cache", 0)) < 0 ||
            (event = eventfd(0, EFD_NONBLOCK)) < 0 || pipe2(ends, O_NONBLOCK))
            abort();
    }
    uint64_t one = 1;
    if (data && (pwrite(file, data, size, at) < 0 || pwrite(memory, data, size, at) < 0 || ftruncate(memory, at) ||
                 write(event, &one, sizeof one) < 0 || write(ends[1], "", 1) < 0))
        abort();
}

static int hold(const char *path, mode_t mode, int load) {
    char at[PATH_MAX];
    int i = find(path);
    aside(NULL, 0, 0);
    if (i >= 0) {
        files[i].opens++;
        return i;
    }
    for (i = 0; i < FILES && (files[i].opens || files[i].kept); i++)
        ;
    if (i == FILES)
        return -ENFILE;
    snprintf(files[i].path, sizeof files[i].path, "%s", path);
    files[i].opens = 1;
    files[i].size = 0;
    files[i].mode = mode;
    memset(files[i].attributes, 0, sizeof files[i].attributes);
    if (load) {
        struct stat st;
        int fd = open(behind(path, at), O_RDONLY);
        if (fd < 0 || fstat(fd, &st) || resize(i, (size_t)st.st_size) || read(fd, files[i].data, files[i].size) < 0) {
            files[i].opens = 0;
            return -ENOENT;
        }
        files[i].mode = st.st_mode;
        char names[ATTRIBUTES * 64], *name = names;
        ssize_t length = flistxattr(fd, names, sizeof names);
        for (int n = 0; n < ATTRIBUTES && name < names + length; n++, name += strlen(name) + 1) {
            struct attribute *a = &files[i].attributes[n];
            snprintf(a->name, sizeof a->name, "%s", name);
            a->length = fgetxattr(fd, name, a->value, sizeof a->value);
        }
        close(fd);
    }
    files[i].dirty = !load;
    return i;
}

static int create(const char *path, mode_t mode, struct fuse_file_info *fi) {
    LOCKED;
    int i = hold(path, S_IFREG | (mode & 07777), 0);
    fi->fh = (uint64_t)i;
    return i < 0 ? i : 0;
}

static int open_file(const char *path, struct fuse_file_info *fi) {
    LOCKED;
    int i = hold(path, 0, 1);
    if (i >= 0 && fi->flags & O_TRUNC)
        resize(i, 0);
    fi->fh = (uint64_t)i;
    return i < 0 ? i : 0;
}

static int has(const char *what) {
    char path[PATH_MAX];
    return access(in(control, what, path), F_OK) == 0;
}

static int cut(const char *path, off_t size, struct fuse_file_info *fi) {
    LOCKED;
    int i = fi ? (int)fi->fh : hold(path, 0, 1);
    int failed = i < 0 ? i : resize(i, (size_t)size);
    if (!fi && i >= 0) {
        if (has("release"))
            files[i].kept = 1;
        else
            failed = failed ? failed : store(i);
        files[i].opens--;
    }
    return failed;
}

static int read_file(const char *path, char *out, size_t size, off_t at, struct fuse_file_info *fi) {
    LOCKED;
    (void)path;
    size_t all = files[fi->fh].size, left = (size_t)at < all ? all - (size_t)at : 0;
    size = size < left ? size : left;
    memcpy(out, files[fi->fh].data + at, size);
    return (int)size;
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *fi) {
    LOCKED;
    (void)path;
    int i = (int)fi->fh;
    aside(data, size, at);
    if ((size_t)at + size > files[i].size && resize(i, (size_t)at + size))
        return -ENOMEM;
    memcpy(files[i].data + at, data, size);
    files[i].dirty = 1;
    return (int)size;
}

static int by_close(void) { return has("close") || has("release"); }

static int flush(const char *path, struct fuse_file_info *fi) {
    LOCKED;
    (void)path;
    return by_close() ? 0 : store((int)fi->fh);
}

static int sync_file(const char *path, int data, struct fuse_file_info *fi) {
    LOCKED;
    (void)path, (void)data;
    return has("release") ? 0 : store((int)fi->fh);
}

static int release(const char *path, struct fuse_file_info *fi) {
    LOCKED;
    (void)path;
    int i = (int)fi->fh, failed = 0;
    if (by_close() && files[i].opens == 1)
        failed = store(i);
    files[i].opens--; /* what is not stored now is lost */
    files[i].kept = 0;
    while (by_close() && has("stop"))
        usleep(10000);
    return failed;
}

static struct attribute *attribute(int i, const char *name) {
    for (struct attribute *a = files[i].attributes; a < files[i].attributes + ATTRIBUTES; a++)
        if (a->length && !strcmp(a->name, name))
            return a;
    return NULL;
}

static int set_attribute(const char *path, const char *name, const char *value, size_t size, int flags) {
    LOCKED;
    int i = find(path);
    char at[PATH_MAX];
    if (i < 0)
        return lsetxattr(behind(path, at), name, value, size, flags) ? -errno : 0;
    struct attribute *a = attribute(i, name);
    if (a ? flags & XATTR_CREATE : flags & XATTR_REPLACE)
        return a ? -EEXIST : -ENODATA;
    for (int n = 0; !a && n < ATTRIBUTES; n++)
        if (!files[i].attributes[n].length)
            a = &files[i].attributes[n];
    if (!a || !size || size > sizeof a->value)
        return -ENOSPC;
    snprintf(a->name, sizeof a->name, "%s", name);
    memcpy(a->value, value, size);
    a->length = (ssize_t)size;
    files[i].dirty = 1;
    return 0;
}

static int get_attribute(const char *path, const char *name, char *value, size_t size) {
    LOCKED;
    char at[PATH_MAX];
    int i = find(path);
    if (i < 0) {
        ssize_t length = lgetxattr(behind(path, at), name, value, size);
        return length < 0 ? -errno : (int)length;
    }
    struct attribute *a = attribute(i, name);
    if (!a || (size && size < (size_t)a->length))
        return a ? -ERANGE : -ENODATA;
    if (size)
        memcpy(value, a->value, (size_t)a->length);
    return (int)a->length;
}

static int remove_attribute(const char *path, const char *name) {
    LOCKED;
    char at[PATH_MAX];
    int i = find(path);
    if (i < 0)
        return lremovexattr(behind(path, at), name) ? -errno : 0;
    struct attribute *a = attribute(i, name);
    if (!a)
        return -ENODATA;
    a->length = 0;
    files[i].dirty = 1;
    return 0;
}

static int make_dir(const char *path, mode_t mode) {
    char at[PATH_MAX];
    return mkdir(behind(path, at), mode) ? -errno : 0;
}

static int take_away(const char *path) {
    LOCKED;
    char at[PATH_MAX];
    int i = find(path);
    if (i >= 0)
        files[i].kept = 0;
    return unlink(behind(path, at)) ? -errno : 0;
}

static int move(const char *from, const char *to, unsigned int flags) {
    LOCKED;
    char at[PATH_MAX], new[PATH_MAX];
    int i = find(from), over = find(to);
    if (flags)
        return -EINVAL;
    if (over >= 0 && over != i)
        files[over].kept = 0;
    if (rename(behind(from, at), behind(to, new)) && (i < 0 || errno != ENOENT))
        return -errno;
    if (i >= 0)
        snprintf(files[i].path, sizeof files[i].path, "%s", to);
    return 0;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .getattr = get_attr, .create = create, .open = open_file, .read = read_file, .write = write_file,
        .truncate = cut, .flush = flush, .fsync = sync_file, .release = release, .mkdir = make_dir, .unlink = take_away,
        .rename = move, .setxattr = set_attribute, .getxattr = get_attribute, .removexattr = remove_attribute,
    };
    if (argc < 4)
        return 2;
    backing = argv[1];
    control = argv[2];
    umask(0);
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
