/* A daemon with two mounts, each a mirror of a folder:
 *     twice HOW FOLDER MOUNTPOINT OTHER-FOLDER OTHER-MOUNTPOINT
 * HOW: "early", both are mounted before any is served; "late", the other one when the first has been asked for something;
 * "cloned", early, with threads that clone the device; "swapped", early, and the other one first in all lives but the first;
 * "racing", by two threads at once; "steps", early, and the other one by fsopen(2) and so on (root only);
 * "opened", both devices are opened before any is mounted (root only); "overtaken", early, and in the first life the other one while
 * the first is in mount(2) (root only). It ends with 3 if it cannot have one of them. */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t asked;
static int cloned;
static struct fuse *other;

static const char *real(const char *path, char *into) {
    snprintf(into, PATH_MAX, "%s%s", (const char *)fuse_get_context()->private_data, path);
    return into;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    char name[PATH_MAX];
    (void)fi;
    sem_post(&asked);
    return lstat(real(path, name), st) ? -errno : 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    char name[PATH_MAX];
    int fd = open(real(path, name), O_RDWR | O_CREAT, mode);
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

static int release_file(const char *path, struct fuse_file_info *fi) {
    return (void)path, close(fi->fh);
}

static int read_dir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *fi,
                    enum fuse_readdir_flags flags) {
    char name[PATH_MAX];
    DIR *dir = opendir(real(path, name));
    struct dirent *entry;
    (void)at, (void)fi, (void)flags;
    if (!dir)
        return -errno;
    while ((entry = readdir(dir)))
        fill(buf, entry->d_name, NULL, 0, 0);
    return closedir(dir);
}

static const struct fuse_operations operations = {
    .getattr = get_attr, .create = create_file, .open = open_file, .read = read_file,
    .write = write_file, .release = release_file, .readdir = read_dir,
};

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static struct fuse *make(char *folder) {
    char *words[] = {"twice", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, words);
    struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, folder);
    if (!fuse)
        fail("fuse_new");
    return fuse;
}

static struct fuse *mount_at(char *folder, const char *mountpoint) {
    struct fuse *fuse = make(folder);
    if (fuse_mount(fuse, mountpoint))
        fail("fuse_mount");
    return fuse;
}

static void *serve(void *fuse) {
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, cloned);
    if (cloned)
        fuse_loop_mt(fuse, config);
    else
        fuse_loop(fuse);
    fuse_loop_cfg_destroy(config);
    return NULL;
}

static void *serve_later(void *words) {
    char **argv = words;
    sem_wait(&asked);
    other = mount_at(argv[4], argv[5]);
    return serve(other);
}

/* As two libraries do that know nothing of each other. */
static struct fuse *mount_from(const char *source, char *folder, const char *mountpoint, int device) {
    char options[200], name[50];
    struct fuse *fuse = make(folder);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount(source, mountpoint, "fuse.twice", MS_NODEV | MS_NOSUID, options))
        fail("mount");
    snprintf(name, sizeof name, "/dev/fd/%d", device);
    if (fuse_mount(fuse, name))
        fail("fuse_mount");
    return fuse;
}

static struct fuse *mount_by(char *folder, const char *mountpoint, int device) {
    return mount_from("twice", folder, mountpoint, device);
}

static int faults;
static char *missing;

/* The kernel is in mount(2), and waits for the page that the source is in. */
static void *overtake(void *words) {
    static char page[4096] = "twice";
    char **argv = words;
    struct uffd_msg fault;
    if (read(faults, &fault, sizeof fault) != sizeof fault)
        fail("no fault");
    other = mount_at(argv[4], argv[5]);
    usleep(300000); /* until who is told of it has looked */
    struct uffdio_copy copy = {.dst = (unsigned long)missing, .src = (unsigned long)page, .len = sizeof page};
    if (ioctl(faults, UFFDIO_COPY, &copy))
        fail("UFFDIO_COPY");
    return NULL;
}

static void leave_a_page_out(void) {
    struct uffdio_api api = {.api = UFFD_API};
    missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(unsigned long)missing, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
        fail("userfaultfd");
}

/* Mounts in steps. */
static struct fuse *mount_in_steps(char *folder, const char *mountpoint) {
    char name[50], number[20];
    int device = open("/dev/fuse", O_RDWR), context = syscall(SYS_fsopen, "fuse", 1);
    const char *options[][2] = {{"fd", number}, {"rootmode", "40000"}, {"user_id", "0"}, {"group_id", "0"}};
    snprintf(number, sizeof number, "%d", device);
    for (int i = 0; i < 4; i++)
        if (syscall(SYS_fsconfig, context, 1, options[i][0], options[i][1], 0))
            fail(options[i][0]);
    if (syscall(SYS_fsconfig, context, 6, NULL, NULL, 0))
        fail("FSCONFIG_CMD_CREATE");
    int made = syscall(SYS_fsmount, context, 1, 0);
    if (made < 0 || syscall(SYS_move_mount, made, "", AT_FDCWD, mountpoint, 4))
        fail("move_mount");
    close(context);
    close(made);
    snprintf(name, sizeof name, "/dev/fd/%d", device);
    struct fuse *fuse = make(folder);
    if (fuse_mount(fuse, name))
        fail("fuse_mount");
    return fuse;
}

static pthread_barrier_t start;

static void *race(void *words) {
    char **argv = words;
    pthread_barrier_wait(&start);
    other = mount_at(argv[4], argv[5]);
    return NULL;
}

int main(int argc, char **argv) {
    struct fuse *first;
    pthread_t thread;
    char mark[PATH_MAX];
    if (argc != 6)
        return 2;
    sem_init(&asked, 0, 0);
    cloned = !strcmp(argv[1], "cloned");
    snprintf(mark, sizeof mark, "%s/lived", argv[4]);
    int again = !access(mark, F_OK);
    close(open(mark, O_CREAT | O_WRONLY, 0600));
    if (!strcmp(argv[1], "swapped") && again) {
        other = mount_at(argv[4], argv[5]);
        first = mount_at(argv[2], argv[3]);
    } else if (!strcmp(argv[1], "racing")) {
        pthread_barrier_init(&start, NULL, 2);
        pthread_create(&thread, NULL, race, argv);
        pthread_barrier_wait(&start);
        first = mount_at(argv[2], argv[3]);
        pthread_join(thread, NULL);
    } else if (!strcmp(argv[1], "overtaken") && !again) {
        leave_a_page_out();
        pthread_create(&thread, NULL, overtake, argv);
        first = mount_from(missing, argv[2], argv[3], open("/dev/fuse", O_RDWR));
        pthread_join(thread, NULL);
    } else if (!strcmp(argv[1], "steps")) {
        first = mount_at(argv[2], argv[3]);
        other = mount_in_steps(argv[4], argv[5]);
    } else if (!strcmp(argv[1], "opened")) {
        int a = open("/dev/fuse", O_RDWR), b = open("/dev/fuse", O_RDWR | O_NONBLOCK);
        first = mount_by(argv[2], argv[3], a);
        other = mount_by(argv[4], argv[5], b);
        fcntl(b, F_SETFL, O_RDWR); /* which is that one's alone */
    } else {
        first = mount_at(argv[2], argv[3]);
        if (strcmp(argv[1], "late"))
            other = mount_at(argv[4], argv[5]);
    }
    if (pthread_create(&thread, NULL, other ? serve : serve_later, other ? (void *)other : (void *)argv))
        fail("pthread_create");
    serve(first);
    fuse_unmount(first);
    if (other)
        fuse_unmount(other);
    if (!strcmp(argv[1], "opened") || !strcmp(argv[1], "steps"))
        umount2(argv[5], MNT_DETACH); /* libfuse leaves that to who has mounted */
    _exit(0);
}
