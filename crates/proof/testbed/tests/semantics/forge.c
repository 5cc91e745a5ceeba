/* A daemon that shows an empty directory, gives up its privileges once it is mounted, and then turns against belay:
 *     forge IMAGE MOUNTPOINT [OPTIONS]
 * Words that begin with '#' are none of its options.
 * It opens IMAGE for writing, as those do that work on one; for reading if FORGE_READS is set. What it is asked for is done
 * to the memory that it shares with belay, and to its descriptors:
 *     mkdir words    stores the words that the file IMAGE.orders has, each behind its offset
 *     mkdir touch    writes to each page from the first offset there up to the second
 *     mkdir shrink   makes the memory file as short as can be
 *     mkdir block    makes all of its descriptors wait, and takes what belay's counters have
 *     mkdir fill     makes all of its descriptors wait, and fills belay's counters up
 *     mkdir receive  takes a descriptor from the socket IMAGE.socket, and keeps it
 *     mkdir exchange takes one there, and puts it into all of its own sockets, in the place of what is in them
 *     mkdir drain    makes them wait, and from then on counts and takes back at once, so that who looks first and reads then waits
 *     mkdir post     leaves the file that FORGE_LEAVES names, which is opened in the first life, in all mailboxes for devices
 *                    (PROCESS:NUMBER is a descriptor of another process)
 *     mkdir leave    leaves it in those for images, and has it open no more in both cases; with FORGE_NAMES the file is not
 *                    opened for writing, but as anybody may who knows its name (O_PATH)
 * The answer is EXFULL where that went well. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "around.h"

#define OTHER 1234

static uint64_t orders[1 << 16];
static size_t count;
static int orders_file, recorder, left_behind = -1;
static volatile uint64_t *memory;
static char place[64];
static struct sockaddr_un sender = {.sun_family = AF_UNIX};

/* The largest mapping of this process that others share is the one. */
static void find_memory(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to, most = 0;
    char line[4096], rights[8];
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && rights[3] == 's' && to - from > most) {
            most = to - from;
            memory = (volatile uint64_t *)from;
            snprintf(place, sizeof place, "/proc/self/map_files/%lx-%lx", from, to);
        }
    if (maps)
        fclose(maps);
}

static void make_wait(int fills) {
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], kind[64] = "";
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0)
            continue;
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, kind, sizeof kind - 1) < 0 || strcmp(kind, "anon_inode:[eventfd]"))
            continue;
        struct pollfd look = {.fd = fd, .events = POLLIN};
        uint64_t value;
        if (poll(&look, 1, 0) == 1 && read(fd, &value, sizeof value) < 0)
            continue;
        value = fills ? UINT64_MAX - 1 : 1;
        if (write(fd, &value, sizeof value) < 0)
            continue;
        if (!fills && read(fd, &value, sizeof value) < 0)
            continue;
    }
}

/* Never waits itself: it has the kernel not wait in the call. */
static void *drain(void *unused) {
    uint64_t value, one = 1;
    struct iovec place_of = {.iov_base = &value, .iov_len = sizeof value};
    int counters[8], found = 0;
    for (int fd = 0; fd < 1024 && found < 8; fd++) {
        char path[64], kind[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, kind, sizeof kind - 1) > 0 && !strcmp(kind, "anon_inode:[eventfd]"))
            counters[found++] = fd;
    }
    for (unsigned round = 0;; round++)
        for (int i = 0; i < found; i++) {
            if (write(counters[i], &one, sizeof one) < 0)
                continue;
            /* Sometimes at once, so that who waits in a read waits on; sometimes when somebody has just been woken. */
            for (volatile unsigned n = round % 64 * (round % 4 * 32); n; n--)
                ;
            if (preadv2(counters[i], &place_of, 1, -1, RWF_NOWAIT) < 0)
                continue;
        }
    return unused;
}

/* Sends what is to be left through each socket of that type that belay has given it. */
static int leave(int type) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    int left = 0;
    for (int fd = 100; fd < 1024; fd++) {
        int found;
        socklen_t length = sizeof found;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &found, &length) || found != type)
            continue;
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &left_behind, sizeof left_behind);
        left += sendmsg(fd, &message, MSG_DONTWAIT) > 0;
    }
    close(left_behind);
    return left;
}

/* Sends `fd` through `to`, or receives one from there if it is negative; `seen` by who stands in front of libc or not. */
static int message(int to, int fd, int flags, int seen) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control};
    if (fd >= 0) {
        message.msg_controllen = CMSG_SPACE(sizeof fd);
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        return around(SYS_sendmsg, to, &message, flags | MSG_NOSIGNAL);
    }
    message.msg_controllen = sizeof control;
    if ((seen ? recvmsg(to, &message, flags) : around(SYS_recvmsg, to, &message, flags)) < 0)
        return -1;
    if (message.msg_controllen < CMSG_LEN(sizeof fd))
        return -1;
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

static int receive(int posts) {
    int from = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(from, (struct sockaddr *)&sender, sizeof sender) < 0)
        return -errno;
    int fd = message(from, -1, 0, !posts);
    close(from);
    if (fd < 0)
        return -EPROTO;
    for (int to = 0, kind; posts && to < 1024; to++) {
        socklen_t size = sizeof kind;
        if (to != fd && getsockopt(to, SOL_SOCKET, SO_TYPE, &kind, &size) == 0)
            while (message(to, -1, MSG_DONTWAIT, 0) >= 0)
                ;
    }
    for (int to = 0, kind; posts && to < 1024; to++) {
        socklen_t size = sizeof kind;
        if (to != fd && getsockopt(to, SOL_SOCKET, SO_TYPE, &kind, &size) == 0)
            message(to, fd, MSG_DONTWAIT, 0);
    }
    return -EXFULL;
}

static int make_dir(const char *path, mode_t mode) {
    (void)mode;
    if (!strcmp(path, "/receive") || !strcmp(path, "/exchange"))
        return receive(path[1] == 'e');
    ssize_t got = pread(orders_file, orders, sizeof orders, 0);
    count = got > 0 ? got / sizeof *orders : 0;
    if (!memory)
        return -ENODEV;
    if (!strcmp(path, "/words")) {
        for (size_t i = 0; i + 1 < count; i += 2)
            memory[orders[i]] = orders[i + 1];
    } else if (!strcmp(path, "/touch")) {
        for (uint64_t at = orders[0]; at < orders[1]; at += 512)
            memory[at] |= 1;
    } else if (!strcmp(path, "/shrink")) {
        if (ftruncate(recorder, 0) < 0)
            return -errno;
    } else if (!strcmp(path, "/block")) {
        make_wait(0);
    } else if (!strcmp(path, "/fill")) {
        make_wait(1);
    } else if (!strcmp(path, "/drain")) {
        pthread_t thread;
        make_wait(0);
        if (pthread_create(&thread, NULL, drain, NULL))
            return -EAGAIN;
    } else if (!strcmp(path, "/post")) {
        if (!leave(SOCK_STREAM))
            return -ENODEV;
    } else if (!strcmp(path, "/leave")) {
        if (!leave(SOCK_SEQPACKET))
            return -ENODEV;
    } else {
        return -ENOSYS;
    }
    return -EXFULL;
}

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    if (path[1])
        return -ENOENT;
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFDIR | 0777;
    st->st_nlink = 2;
    return 0;
}

/* A path, or PROCESS:NUMBER for a descriptor of another process. */
static int to_leave(const char *what) {
    int process, number;
    if (sscanf(what, "%d:%d", &process, &number) == 2)
        return syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, process, 0), number, 0);
    return open(what, (getenv("FORGE_NAMES") ? O_PATH : O_RDWR) | O_CLOEXEC);
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    if (setgroups(0, NULL) < 0 || setresgid(OTHER, OTHER, OTHER) < 0 || setresuid(OTHER, OTHER, OTHER) < 0)
        abort();
    return NULL;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {.init = start, .getattr = get_attr, .mkdir = make_dir};
    char path[4096];
    int words = 0;
    for (int i = 0; i < argc; i++)
        if (argv[i][0] != '#')
            argv[words++] = argv[i];
    argv[argc = words] = NULL;
    int writes = getenv("FORGE_READS") ? O_RDONLY : O_RDWR;
    if (argc < 3 || open(argv[1], writes | O_CLOEXEC) < 0)
        return 2;
    snprintf(path, sizeof path, "%s.orders", argv[1]);
    if ((orders_file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return 2;
    /* In the first life only: a successor would wait for who serves it. */
    snprintf(path, sizeof path, "%s.left", argv[1]);
    if (getenv("FORGE_LEAVES") && open(path, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0 && (left_behind = to_leave(getenv("FORGE_LEAVES"))) < 0)
        return 2;
    snprintf(sender.sun_path, sizeof sender.sun_path, "%s.socket", argv[1]);
    find_memory();
    recorder = open(place, O_RDWR | O_CLOEXEC);
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
