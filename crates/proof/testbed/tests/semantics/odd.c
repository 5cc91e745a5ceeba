/* A daemon that shows a directory and speaks FUSE by itself, of any minor version and with odd habits:
 *     odd BACKING MOUNTPOINT [HABIT...]
 * minor=N      answers INIT with that minor, and gives and takes what belongs to it
 * plus         has READDIRPLUS and no READDIR
 * known        dies if it is to remove or rename a name that it has not looked up in this life
 * root         dies if it is to open the root before it was asked for its attributes, which last
 * user=UID     refuses everybody but that user
 * links        opens no file for writing that has several links (rofiles-fuse)
 * copies       gives directories other inode numbers in each life (overlays that copy them up)
 * order        numbers inodes in the order in which it meets them (fuseiso)
 * miscounts    counts a link too many of a file that another was renamed over while it had several (posixovl)
 * sync         has the kernel wait for the answer to INIT before mount(2) comes back, where it can (Linux 6.18)
 * steps        mounts by fsopen(2), fsmount(2) and move_mount(2)
 * late         so, but serves before its file system has a place: it gets one when "go" is in BACKING
 * dup          so, each by another number than that which it was given
 * beside=DIR   so, and then moves a clone of the directory behind it to DIR, by the number that the mount had
 * name=NAME    opens the device by this name, from /dev on
 * closes, closes_range, closes_each  at its start, all descriptors that it does not know: closefrom(3), close_range(2), close(2)
 * closes_late  so, when it has mounted
 * locks        has its memory not swapped out (mlockall)
 * Its node ids count up from 2 in each life: they are paths to it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int device, backing, minor = 22, plus, known, root, root_asked, links, order, copies, miscounts, user = -1;
static struct { char path[1024]; uint64_t lookups; } nodes[4096] = {[1] = {".", 1}};
static int nodes_used = 2;
static _Alignas(8) char in[(1 << 17) + 8192], out[1 << 17];
static struct fuse_in_header *head = (void *)in;

static void answer(int error, const void *body, size_t length) {
    struct fuse_out_header header = {.error = -error, .unique = head->unique};
    struct iovec iov[2] = {{&header, sizeof header}, {(void *)body, error ? 0 : length}};
    header.len = sizeof header + iov[1].iov_len;
    /* The kernel knows what it has asked for: a reply that it refuses is this daemon's mistake. */
    if (writev(device, iov, 2) < 0 && errno != ENOENT) {
        fprintf(stderr, "odd: opcode %u: %s\n", head->opcode, strerror(errno));
        abort();
    }
}

static void result(int value) { answer(value < 0 ? errno : 0, NULL, 0); }

static const char *below(uint64_t node, const char *name) {
    static char paths[2][2048];
    static int turn;
    char *path = paths[turn = !turn];
    if (!strcmp(nodes[node].path, "."))
        snprintf(path, sizeof paths[0], "%s", name);
    else
        snprintf(path, sizeof paths[0], "%s/%s", nodes[node].path, name);
    return path;
}

static int find(const char *path) {
    for (int i = 2; i < nodes_used; i++)
        if (nodes[i].lookups && !strcmp(nodes[i].path, path))
            return i;
    return 0;
}

/* How many inodes it had met before this one. */
static int met_as(const struct stat *st) {
    static ino_t met[4096];
    int i = 1;
    while (i < 4095 && met[i] && met[i] != st->st_ino)
        i++;
    met[i] = st->st_ino;
    return i;
}

/* Of a file that is noted, a link more is counted. */
static ino_t noted[64];

static void note(const char *path) {
    struct stat st;
    int i = 0;
    if (!miscounts || fstatat(backing, path, &st, AT_SYMLINK_NOFOLLOW) || st.st_nlink < 2)
        return;
    while (i < 63 && noted[i])
        i++;
    noted[i] = st.st_ino;
}

static nlink_t links_of(const struct stat *st) {
    int i = 0;
    while (i < 63 && noted[i] && noted[i] != st->st_ino)
        i++;
    return st->st_nlink + (noted[i] == st->st_ino);
}

static struct fuse_attr attr_of(const struct stat *st, uint64_t node) {
    return (struct fuse_attr){
        .ino = order ? 7 + met_as(st) : copies && S_ISDIR(st->st_mode) ? st->st_ino + getpid() : st->st_ino, .size = st->st_size, .blocks = st->st_blocks, .atime = st->st_atim.tv_sec,
        .mtime = st->st_mtim.tv_sec, .ctime = st->st_ctim.tv_sec, .atimensec = st->st_atim.tv_nsec,
        .mtimensec = st->st_mtim.tv_nsec, .ctimensec = st->st_ctim.tv_nsec, .mode = st->st_mode, .nlink = links_of(st),
        .uid = st->st_uid, .gid = st->st_gid, .blksize = 4096};
}

static size_t entry_size(void) { return minor < 9 ? FUSE_COMPAT_ENTRY_OUT_SIZE : sizeof(struct fuse_entry_out); }

static int look_up(const char *path, struct fuse_entry_out *entry) {
    struct stat st;
    int node = find(path);
    if (fstatat(backing, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    if (!node) {
        node = nodes_used++;
        snprintf(nodes[node].path, sizeof nodes[0].path, "%s", path);
    }
    nodes[node].lookups++;
    *entry = (struct fuse_entry_out){.nodeid = node, .entry_valid = 1000, .attr = attr_of(&st, node)};
    return 0;
}

static void answer_entry(const char *path) {
    struct fuse_entry_out entry;
    int error = look_up(path, &entry);
    answer(error, &entry, entry_size());
}

static void answer_attr(uint64_t node) {
    struct stat st;
    struct fuse_attr_out attr = {0};
    if (fstatat(backing, nodes[node].path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return answer(errno, NULL, 0);
    attr.attr = attr_of(&st, node);
    if (root && node == 1) {
        attr.attr_valid = 1000;
        root_asked = 1;
    }
    answer(0, &attr, minor < 9 ? FUSE_COMPAT_ATTR_OUT_SIZE : sizeof attr);
}

static void must_know(const char *path) {
    if (known && !find(path)) {
        fprintf(stderr, "odd: never looked up: %s\n", path);
        abort();
    }
}

static void moved(const char *from, const char *to) {
    size_t length = strlen(from);
    int old = find(to);
    if (old)
        nodes[old].path[0] = 0;
    for (int i = 2; i < nodes_used; i++)
        if (!strncmp(nodes[i].path, from, length) && (nodes[i].path[length] == '/' || !nodes[i].path[length])) {
            char rest[1024];
            snprintf(rest, sizeof rest, "%s", nodes[i].path + length);
            snprintf(nodes[i].path, sizeof nodes[0].path, "%.500s%.500s", to, rest);
        }
}

static void gone(const char *path) {
    int node = find(path);
    if (node)
        nodes[node].path[0] = 0;
}

/* The stream's position is the number of entries before it. */
static void list(int with_entries) {
    struct fuse_read_in *read_in = (void *)(head + 1);
    size_t used = 0, fixed = with_entries ? sizeof(struct fuse_direntplus) : sizeof(struct fuse_dirent);
    int fd = openat(backing, nodes[head->nodeid].path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *found;
    if (!dir)
        return answer(errno, NULL, 0);
    for (uint64_t i = 1; (found = readdir(dir)); i++) {
        size_t length = strlen(found->d_name), record = FUSE_DIRENT_ALIGN(fixed + length);
        struct fuse_direntplus *entry = (void *)(out + used);
        struct fuse_dirent *dirent = with_entries ? &entry->dirent : (void *)(out + used);
        if (i <= read_in->offset)
            continue;
        if (used + record > read_in->size || used + record > 1000) /* a few at a time */
            break;
        memset(entry, 0, record);
        if (with_entries && strcmp(found->d_name, ".") && strcmp(found->d_name, ".."))
            look_up(below(head->nodeid, found->d_name), &entry->entry_out);
        dirent->ino = found->d_ino, dirent->off = i, dirent->namelen = length, dirent->type = found->d_type;
        memcpy(dirent->name, found->d_name, length);
        used += record;
    }
    closedir(dir);
    answer(0, out, used);
}

static void init(void) {
    struct fuse_init_in *init_in = (void *)(head + 1);
    struct fuse_init_out init_out = {.major = 7, .minor = minor, .max_readahead = init_in->max_readahead, .max_write = 65536};
    init_out.flags = init_in->flags & (FUSE_BIG_WRITES | (plus ? FUSE_DO_READDIRPLUS : 0));
    if (minor > FUSE_KERNEL_MINOR_VERSION) /* and all that it may be offered one day */
        init_out.flags |= init_in->flags & ~(FUSE_WRITEBACK_CACHE | FUSE_NO_OPEN_SUPPORT | FUSE_NO_OPENDIR_SUPPORT | FUSE_READDIRPLUS_AUTO | (plus ? 0 : FUSE_DO_READDIRPLUS));
    answer(0, &init_out, minor < 5 ? FUSE_COMPAT_INIT_OUT_SIZE : minor < 23 ? FUSE_COMPAT_22_INIT_OUT_SIZE : sizeof init_out);
}

static void forget(uint64_t node, uint64_t count) {
    if (nodes[node].lookups < count) {
        fprintf(stderr, "odd: %s is forgotten too often\n", nodes[node].path);
        abort();
    }
    nodes[node].lookups -= count;
}

static void open_it(const char *path, int flags, int mode, int made) {
    struct { struct fuse_entry_out entry; struct fuse_open_out open; } both = {0};
    struct stat st;
    if (links && !made && flags & O_ACCMODE && !fstatat(backing, path, &st, 0) && st.st_nlink > 1)
        return answer(EROFS, NULL, 0);
    int fd = openat(backing, path, flags, mode), error = fd < 0 ? errno : 0;
    both.open.fh = fd;
    both.open.open_flags = minor > FUSE_KERNEL_MINOR_VERSION ? 0 : FOPEN_DIRECT_IO * !(flags & O_NOATIME);
    if (!made)
        return answer(error, &both.open, sizeof both.open);
    if (!error)
        error = look_up(path, &both.entry);
    memmove((char *)&both + entry_size(), &both.open, sizeof both.open);
    answer(error, &both, entry_size() + sizeof both.open);
}

static void set_attr(void) {
    struct fuse_setattr_in *set = (void *)(head + 1);
    const char *path = nodes[head->nodeid].path;
    int fd, failed = 0;
    if (set->valid & FATTR_MODE)
        failed |= fchmodat(backing, path, set->mode & 07777, 0);
    if (!failed && set->valid & FATTR_SIZE) {
        failed |= (fd = openat(backing, path, O_WRONLY)) < 0 || ftruncate(fd, set->size) < 0;
        close(fd);
    }
    if (!failed && set->valid & (FATTR_ATIME | FATTR_MTIME)) {
        struct timespec times[2] = {{set->atime, set->atimensec}, {set->mtime, set->mtimensec}};
        times[0].tv_nsec = set->valid & FATTR_ATIME ? times[0].tv_nsec : UTIME_OMIT;
        times[1].tv_nsec = set->valid & FATTR_MTIME ? times[1].tv_nsec : UTIME_OMIT;
        failed |= utimensat(backing, path, times, AT_SYMLINK_NOFOLLOW);
    }
    failed ? answer(errno, NULL, 0) : answer_attr(head->nodeid);
}

static void rename_it(const char *from_name, uint64_t newdir) {
    char from[2048], to[2048];
    snprintf(from, sizeof from, "%s", below(head->nodeid, from_name));
    snprintf(to, sizeof to, "%s", below(newdir, from_name + strlen(from_name) + 1));
    must_know(from);
    if (!faccessat(backing, to, F_OK, AT_SYMLINK_NOFOLLOW))
        must_know(to);
    note(to);
    if (renameat(backing, from, backing, to) < 0)
        return answer(errno, NULL, 0);
    moved(from, to);
    answer(0, NULL, 0);
}

static void serve(void) {
    char *body = (char *)(head + 1);
    uint64_t node = head->nodeid;
    struct stat st;
    ssize_t got;
    if (user >= 0 && head->uid != (uint32_t)user && head->opcode != FUSE_INIT && head->opcode != FUSE_FORGET &&
        head->opcode != FUSE_BATCH_FORGET && head->opcode != FUSE_RELEASE && head->opcode != FUSE_RELEASEDIR &&
        head->opcode != FUSE_WRITE && head->opcode != FUSE_DESTROY && head->opcode != FUSE_FLUSH)
        return answer(EACCES, NULL, 0);
    switch (head->opcode) {
    case FUSE_INIT: return init();
    case FUSE_DESTROY: return answer(0, NULL, 0);
    case FUSE_INTERRUPT: return;
    case FUSE_FORGET: return forget(node, ((struct fuse_forget_in *)body)->nlookup);
    case FUSE_BATCH_FORGET: {
        struct fuse_batch_forget_in *batch = (void *)body;
        struct fuse_forget_one *one = (void *)(batch + 1);
        for (uint32_t i = 0; i < batch->count; i++)
            forget(one[i].nodeid, one[i].nlookup);
        return;
    }
    case FUSE_LOOKUP: return answer_entry(below(node, body));
    case FUSE_GETATTR: return answer_attr(node);
    case FUSE_SETATTR: return set_attr();
    case FUSE_STATFS: {
        struct fuse_statfs_out statfs_out = {.st = {.blocks = 1000, .bfree = 500, .bavail = 500, .bsize = 4096, .namelen = 255}};
        return answer(0, &statfs_out, minor < 4 ? FUSE_COMPAT_STATFS_SIZE : sizeof statfs_out);
    }
    case FUSE_READLINK:
        got = readlinkat(backing, nodes[node].path, out, 4096);
        return answer(got < 0 ? errno : 0, out, got);
    case FUSE_SYMLINK:
        if (symlinkat(body + strlen(body) + 1, backing, below(node, body)) < 0)
            return answer(errno, NULL, 0);
        return answer_entry(below(node, body));
    case FUSE_MKNOD: {
        struct fuse_mknod_in *mknod_in = (void *)body;
        const char *path = below(node, body + (minor < 12 ? FUSE_COMPAT_MKNOD_IN_SIZE : sizeof *mknod_in));
        return mknodat(backing, path, mknod_in->mode, mknod_in->rdev) < 0 ? answer(errno, NULL, 0) : answer_entry(path);
    }
    case FUSE_MKDIR: {
        struct fuse_mkdir_in *mkdir_in = (void *)body;
        const char *path = below(node, (char *)(mkdir_in + 1));
        return mkdirat(backing, path, mkdir_in->mode) < 0 ? answer(errno, NULL, 0) : answer_entry(path);
    }
    case FUSE_UNLINK: case FUSE_RMDIR: {
        const char *path = below(node, body);
        must_know(path);
        if (unlinkat(backing, path, head->opcode == FUSE_RMDIR ? AT_REMOVEDIR : 0) < 0)
            return answer(errno, NULL, 0);
        gone(path);
        return answer(0, NULL, 0);
    }
    case FUSE_RENAME: return rename_it(body + sizeof(struct fuse_rename_in), ((struct fuse_rename_in *)body)->newdir);
    case FUSE_RENAME2: return rename_it(body + sizeof(struct fuse_rename2_in), ((struct fuse_rename2_in *)body)->newdir);
    case FUSE_LINK: {
        struct fuse_link_in *link_in = (void *)body;
        const char *path = below(node, (char *)(link_in + 1));
        return linkat(backing, nodes[link_in->oldnodeid].path, backing, path, 0) < 0 ? answer(errno, NULL, 0) : answer_entry(path);
    }
    case FUSE_CREATE: {
        struct fuse_create_in *create_in = (void *)body;
        const char *name = body + (minor < 12 ? sizeof(struct fuse_open_in) : sizeof *create_in);
        return open_it(below(node, name), create_in->flags | O_CREAT, create_in->mode, 1);
    }
    case FUSE_OPEN: return open_it(nodes[node].path, ((struct fuse_open_in *)body)->flags, 0, 0);
    case FUSE_OPENDIR:
        if (root && node == 1 && !root_asked) {
            fprintf(stderr, "odd: the root is opened before it was asked about\n");
            abort();
        }
        return open_it(nodes[node].path, O_RDONLY | O_DIRECTORY | O_NOATIME, 0, 0);
    case FUSE_RELEASE: case FUSE_RELEASEDIR: return result(close(((struct fuse_release_in *)body)->fh));
    case FUSE_READ: {
        struct fuse_read_in *read_in = (void *)body;
        got = pread(read_in->fh, out, read_in->size, read_in->offset);
        return answer(got < 0 ? errno : 0, out, got);
    }
    case FUSE_WRITE: {
        struct fuse_write_in *write_in = (void *)body;
        struct fuse_write_out write_out = {0};
        char *data = body + (minor < 9 ? FUSE_COMPAT_WRITE_IN_SIZE : sizeof *write_in);
        if (data + write_in->size != in + head->len)
            abort();
        got = pwrite(write_in->fh, data, write_in->size, write_in->offset);
        write_out.size = got;
        return answer(got < 0 ? errno : 0, &write_out, sizeof write_out);
    }
    case FUSE_FLUSH: case FUSE_FSYNC: case FUSE_FSYNCDIR: return answer(fstat(device, &st) < 0 ? errno : 0, NULL, 0);
    case FUSE_READDIR: return plus ? answer(ENOSYS, NULL, 0) : list(0);
    case FUSE_READDIRPLUS: return plus ? list(1) : answer(ENOSYS, NULL, 0);
    default: return answer(ENOSYS, NULL, 0);
    }
}

/* The file system that fsmount(2) has made, to be moved to its place. */
static int tree = -1;

static int dups;

/* The same by another number. */
static int other(int fd) {
    int copy = dups && fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 100) : fd;
    if (copy != fd)
        close(fd);
    return copy;
}

static int make_tree(void) {
    char number[20];
    int context = other(fsopen("fuse", FSOPEN_CLOEXEC));
    snprintf(number, sizeof number, "%d", device);
    if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "fd", number, 0) ||
        fsconfig(context, FSCONFIG_SET_STRING, "rootmode", "40000", 0) ||
        fsconfig(context, FSCONFIG_SET_STRING, "user_id", "0", 0) ||
        fsconfig(context, FSCONFIG_SET_STRING, "group_id", "0", 0) ||
        fsconfig(context, FSCONFIG_SET_FLAG, "allow_other", NULL, 0) ||
        fsconfig(context, FSCONFIG_SET_STRING, "subtype", "odd", 0) ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        return -1;
    tree = other(fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    close(context);
    return tree < 0 ? -1 : 0;
}

static int move_tree(const char *place) {
    int moved = move_mount(tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH);
    close(tree);
    return moved;
}

/* It is there in each life. */
static int clone_beside(const char *from, const char *beside) {
    int again = fcntl(open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), F_DUPFD_CLOEXEC, tree);
    int dir;
    if (again != tree || move_mount(again, "", AT_FDCWD, beside, MOVE_MOUNT_F_EMPTY_PATH))
        return -1;
    dir = open(beside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return faccessat(dir, "file", F_OK, 0) || close(dir);
}

static void *move_late(void *place) {
    while (faccessat(backing, "go", F_OK, 0))
        usleep(10000);
    if (move_tree(place))
        abort();
    return NULL;
}

/* FUSE_DEV_IOC_SYNC_INIT */
#define SYNC_INIT _IO(229, 3)

static char *mounted_at, options[200];

static void *mount_beside(void *unused) {
    if (mount("odd", mounted_at, "fuse.odd", MS_NOSUID | MS_NODEV, options) < 0) {
        perror("odd: mount");
        exit(1);
    }
    return unused;
}

int main(int argc, char **argv) {
    int steps = 0, late = 0, sync = 0, close_late = 0;
    const char *beside = NULL, *name = "/dev/fuse";
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    umask(0);
    for (int i = 3; i < argc; i++) {
        sscanf(argv[i], "minor=%d", &minor);
        sscanf(argv[i], "user=%d", &user);
        plus |= !strcmp(argv[i], "plus");
        known |= !strcmp(argv[i], "known");
        root |= !strcmp(argv[i], "root");
        links |= !strcmp(argv[i], "links");
        copies |= !strcmp(argv[i], "copies");
        order |= !strcmp(argv[i], "order");
        miscounts |= !strcmp(argv[i], "miscounts");
        late |= !strcmp(argv[i], "late");
        sync |= !strcmp(argv[i], "sync");
        dups |= !strcmp(argv[i], "dup");
        if (!strncmp(argv[i], "beside=", 7))
            beside = argv[i] + 7;
        if (!strncmp(argv[i], "name=", 5))
            name = argv[i] + 5;
        close_late |= !strcmp(argv[i], "closes_late");
        if (!strcmp(argv[i], "closes"))
            closefrom(3);
        if (!strcmp(argv[i], "closes_range"))
            syscall(SYS_close_range, 3, ~0U, 0);
        if (!strcmp(argv[i], "closes_each"))
            for (int fd = 3; fd < sysconf(_SC_OPEN_MAX) && fd < 65536; fd++)
                close(fd);
        if (!strcmp(argv[i], "locks") && mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
            perror("odd: mlockall");
        steps |= late | dups | (beside != NULL) | !strcmp(argv[i], "steps");
    }
    backing = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int dev = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    device = openat(dev, name, O_RDWR | O_CLOEXEC);
    close(dev);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    pthread_t mover;
    int failed = backing < 0 || device < 0;
    mounted_at = argv[2];
    if (!failed && sync && ioctl(device, SYNC_INIT) < 0)
        sync = 0;
    if (!failed && late)
        failed = make_tree() || pthread_create(&mover, NULL, move_late, argv[2]);
    else if (!failed && steps)
        failed = make_tree() || move_tree(argv[2]) || (beside && clone_beside(argv[1], beside));
    else if (!failed && sync)
        failed = pthread_create(&mover, NULL, mount_beside, NULL);
    else if (!failed)
        failed = mount("odd", argv[2], "fuse.odd", MS_NOSUID | MS_NODEV, options);
    if (failed) {
        perror("odd");
        return 1;
    }
    for (int fd = 3; close_late && fd < 1000; fd++)
        if (fd != device && fd != backing)
            close(fd);
    for (;;) {
        ssize_t got = read(device, in, sizeof in);
        if (got >= 0)
            serve();
        else if (errno == ENODEV)
            return 0;
        else if (errno != EINTR && errno != ENOENT && errno != EAGAIN) {
            perror("odd: read");
            return 1;
        }
    }
}
