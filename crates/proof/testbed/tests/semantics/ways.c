/* A daemon on an image that it writes to in all ways that there are:
 *     ways IMAGE MOUNTPOINT [OPTIONS]
 * The first letter of a directory's name says how its place is filled when it is made: 700 bytes of that letter, 100 bytes into
 * the page with its number. What was written is read again in four ways. A byte among the first 4096 says which directories
 * there are. Ways that belay must refuse are done as well, and must fail as they should. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH 700

static int image;
static const char *name;

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

/* What was written is there, in whichever way it is read. */
static int is_there(off_t at, const char *bytes) {
    char a[LENGTH], b[LENGTH], c[LENGTH], d[LENGTH];
    struct iovec parts[] = {{c, 1}, {c + 1, LENGTH - 1}}, others[] = {{d, 500}, {d + 500, LENGTH - 500}};
    return pread(image, a, LENGTH, at) == LENGTH && lseek(image, at, SEEK_SET) == at &&
           read(image, b, LENGTH) == LENGTH && lseek(image, 0, SEEK_CUR) == at + LENGTH &&
           lseek(image, -LENGTH, SEEK_CUR) == at && readv(image, parts, 2) == LENGTH &&
           preadv(image, others, 2, at) == LENGTH && !memcmp(a, bytes, LENGTH) && !memcmp(b, bytes, LENGTH) &&
           !memcmp(c, bytes, LENGTH) && !memcmp(d, bytes, LENGTH);
}

static off_t size(void) {
    struct stat st;
    return fstat(image, &st) ? -1 : st.st_size;
}

static int fails(int result, int expected) {
    return result == -1 && errno == expected ? 0 : -EPROTO;
}

/* A child reads five bytes of what `from` leads to, and ends. */
static int spawn_dd(int from) {
    char *words[] = {"dd", "bs=5", "count=1", NULL};
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, from, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&child, words[0], &actions, NULL, words, environ))
        return -EPROTO;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : -EPROTO;
}

/* Another program reads five bytes where `from` stands, in a child that has closed, in this process's memory, all else. */
static int vfork_dd(int from) {
    int status = -1;
    pid_t child = vfork();
    if (child == 0) {
        dup2(from, 0);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execlp("dd", "dd", "bs=5", "count=1", "of=/dev/null", "status=none", NULL);
        _exit(127);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : -EPROTO;
}

static volatile sig_atomic_t caught;

static void catch(int signal) {
    caught = signal;
}

/* Handlers are those of this process, whatever a child resets that has its memory; and interrupt calls if that was asked for. */
static int signals(void) {
    struct sigaction before, now, mine = {.sa_handler = catch};
    int signal_no = SIGHUP, right;
    pid_t child;
    sigaction(signal_no, &mine, &before);
    if ((child = vfork()) == 0) {
        signal(signal_no, SIG_DFL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    right = !sigaction(signal_no, NULL, &now) && now.sa_handler == catch;
    if ((child = fork()) == 0)
        _exit(kill(getppid(), signal_no));
    waitpid(child, NULL, 0);
    for (int i = 0; i < 1000 && !caught; i++)
        usleep(10000);
    right = right && caught == signal_no;
    for (int interrupts = 1; interrupts >= 0; interrupts--) {
        siginterrupt(signal_no, interrupts);
        right = right && signal(signal_no, catch) == catch && !sigaction(signal_no, NULL, &now) &&
                now.sa_handler == catch && !(now.sa_flags & SA_RESTART) == interrupts;
    }
    sigaction(signal_no, &before, NULL);
    return right ? 0 : -EPROTO;
}

static int make_dir(const char *path, mode_t mode) {
    char way = path[1], bytes[LENGTH];
    off_t at = 4096 * (off_t)way + 100, end = size();
    struct iovec parts[] = {{bytes, 3}, {bytes + 3, 0}, {bytes + 3, LENGTH - 3}};
    ssize_t done = LENGTH;
    int result = 0, other, twin, status, pipes[2];
    pid_t child;
    char command[80];
    FILE *stream;
    (void)mode;
    memset(bytes, way, LENGTH);
    switch (way) {
    case 'p': done = pwrite(image, bytes, LENGTH, at); break;
    case 's': lseek(image, at, SEEK_SET); done = write(image, bytes, LENGTH); break;
    case 'v': lseek(image, at, SEEK_SET); done = writev(image, parts, 3); break;
    case 'w': done = pwritev(image, parts, 3, at); break;
    case 'q': done = pwritev2(image, parts, 3, at, 0); break;
    case 'c': lseek(image, at, SEEK_SET); done = pwritev2(image, parts, 3, -1, 0); break;
    case 'd':
        other = dup(image);
        lseek(other, at, SEEK_SET);
        done = write(image, bytes, LENGTH); /* they have one position */
        close(other);
        break;
    case 'b':
        other = open(name, O_RDWR | O_CLOEXEC);
        lseek(other, 5, SEEK_SET);
        twin = dup(other);
        result = lseek(twin, at - 5, SEEK_CUR) == at ? 0 : -EPROTO;
        done = write(other, bytes, LENGTH);
        result = lseek(twin, 0, SEEK_CUR) == at + LENGTH ? result : -EPROTO;
        close(twin);
        close(other);
        break;
    case 'k':
        other = open(name, O_RDWR | O_CLOEXEC);
        lseek(other, 5, SEEK_SET);
        if ((child = fork()) == 0)
            _exit(lseek(other, at - 5, SEEK_CUR) != at);
        result = waitpid(child, &status, 0) == child && status == 0 ? 0 : -EPROTO;
        done = write(other, bytes, LENGTH); /* where the child has left it */
        close(other);
        break;
    case 'x':
        other = open(name, O_RDWR); /* children have it */
        lseek(other, at - 10, SEEK_SET);
        snprintf(command, sizeof command, "dd bs=5 count=1 <&%d >/dev/null 2>&1", other);
        result = system(command) == 0 && lseek(other, 0, SEEK_CUR) == at - 5 ? 0 : -EPROTO;
        lseek(other, at - 5, SEEK_SET); /* not the kernel's, if it was kept again */
        result = result ? result : spawn_dd(other);
        done = write(other, bytes, LENGTH);
        close(other);
        break;
    case 'y': /* it stays what it is */
        other = open(name, O_RDWR | O_CLOEXEC);
        result = fails(dup2(-1, other), EBADF) || close_range(other, other, CLOSE_RANGE_CLOEXEC) ? -EPROTO : 0;
        lseek(other, at, SEEK_SET);
        done = write(other, bytes, LENGTH);
        close(other);
        break;
    case 'g': /* by what the C library does unseen */
        result = fails(fdopen(image, "r") ? 0 : -1, EOPNOTSUPP);
        result = result ? result : fails(fopen(name, "r") ? 0 : -1, EOPNOTSUPP);
        result = result ? result : fails(fopen(name, "w") ? 0 : -1, EOPNOTSUPP);
        result = result ? result : fails(freopen(name, "a", tmpfile()) ? 0 : -1, EOPNOTSUPP);
        result = result ? result : (stream = fopen("/dev/null", "r+")) && fclose(stream) == 0 ? 0 : -EPROTO;
        at = -1;
        break;
    case 'V':
        other = open(name, O_RDWR | O_CLOEXEC);
        lseek(other, at - 5, SEEK_SET);
        result = vfork_dd(other);
        done = write(other, bytes, LENGTH); /* where that has left it */
        close(other);
        break;
    case 'S': result = signals(); at = -1; break;
    case 'i':
        other = open(name, O_RDWR | O_CLOEXEC);
        result = lseek(other, 7, SEEK_SET) == 7 && fails(lseek(other, -8, SEEK_CUR), EINVAL) == 0 &&
                 fails(lseek(other, -1, SEEK_SET), EINVAL) == 0 && lseek(other, 0, SEEK_CUR) == 7 ? 0 : -EPROTO;
        close(other);
        at = -1;
        break;
    case 'r': /* read otherwise than by a read */
        if (pipe(pipes) || (other = memfd_create("copy", MFD_CLOEXEC)) < 0)
            return -EIO;
        result = fails(sendfile(other, image, NULL, LENGTH), EINVAL);
        result = result ? result : fails(copy_file_range(image, NULL, other, NULL, LENGTH, 0), EOPNOTSUPP);
        result = result ? result : fails(splice(image, NULL, pipes[1], NULL, LENGTH, 0), EINVAL);
        close(other);
        close(pipes[0]);
        close(pipes[1]);
        at = -1;
        break;
    case 'o':
        other = open(name, O_RDWR | O_CLOEXEC);
        done = pwrite(other, bytes, LENGTH, at);
        result = pread(other, bytes, LENGTH, at) == LENGTH ? 0 : -EPROTO;
        close(other);
        break;
    case 'e':
        at = lseek(image, 0, SEEK_END);
        done = write(image, bytes, LENGTH);
        result = at == end && size() == end + LENGTH && lseek(image, -LENGTH, SEEK_END) == at ? 0 : -EPROTO;
        break;
    case 't':
        memset(bytes, 0, LENGTH);
        at = end + 5000;
        result = ftruncate(image, at + LENGTH) || size() != at + LENGTH || !is_there(at, bytes) ? -EPROTO : 0;
        result = ftruncate(image, end) || size() != end || pread(image, bytes, 1, end) != 0 ? -EPROTO : result;
        at = -1;
        break;
    case 'm':
        result = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, image, 0) == MAP_FAILED ? 0 : -EPROTO;
        result = result ? result : fails(-1, ENODEV);
        at = -1;
        break;
    case 'z': result = fails(fallocate(image, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP); at = -1; break;
    case 'h':
        result = fails(fallocate(image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EOPNOTSUPP);
        at = -1;
        break;
    case 'f': result = fails(copy_file_range(image, NULL, image, NULL, 4096, 0), EOPNOTSUPP); at = -1; break;
    case 'n': result = fails(sendfile(image, image, NULL, 4096), EINVAL); at = -1; break;
    case 'a': /* lengths otherwise than by ftruncate */
        result = fails(truncate(name, 5), EOPNOTSUPP);
        result = result || posix_fallocate(image, end, 4096) == EOPNOTSUPP ? result : -EPROTO;
        result = result || posix_fallocate(image, 0, 4096) == EOPNOTSUPP ? result : -EPROTO;
        result = result || size() == end ? result : -EPROTO;
        at = -1;
        break;
    case 'u': { /* by threads of the C library's */
        struct aiocb one = {.aio_fildes = image, .aio_buf = bytes, .aio_nbytes = LENGTH, .aio_lio_opcode = LIO_WRITE};
        struct aiocb *const list[] = {NULL, &one};
        result = fails(aio_write(&one), EOPNOTSUPP);
        result = result ? result : fails(aio_read(&one), EOPNOTSUPP);
        result = result ? result : fails(lio_listio(LIO_WAIT, list, 2, NULL), EOPNOTSUPP);
        at = -1;
        break;
    }
    case 'l':
        if (pipe(pipes) || write(pipes[1], bytes, LENGTH) != LENGTH)
            return -EIO;
        result = fails(splice(pipes[0], NULL, image, NULL, LENGTH, 0), EINVAL);
        close(pipes[0]);
        close(pipes[1]);
        at = -1;
        break;
    default: return -EINVAL;
    }
    if (done != LENGTH || (at >= 0 && !is_there(at, bytes)))
        result = -EPROTO;
    if (!result && (pwrite(image, path + 1, 1, (unsigned char)way) != 1 || fsync(image)))
        result = -EIO;
    return result;
}

static int sync_dir(const char *path, int data, struct fuse_file_info *fi) {
    (void)path, (void)data, (void)fi;
    return 0; /* nothing is held */
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .mkdir = make_dir, .fsyncdir = sync_dir,
    };
    if (argc < 3 || (image = open(name = argv[1], O_RDWR | O_CLOEXEC)) < 0)
        return 2;
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
