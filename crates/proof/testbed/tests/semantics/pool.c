/* A daemon that can make directories in its root, and has one thread that does so:
 *     pool BACKING CONTROL MOUNTPOINT [OPTIONS]
 * That thread is started when the mount is, or, with "late" in CONTROL, when a name is looked up for the first time. The thread that has read a request waits for it and answers, or, with "answer"
 * in CONTROL, goes on at once, and the thread of the pool answers. Who finds "die" in CONTROL when a directory is made
 * removes it, and dies of SIGKILL. */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include "around.h"
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int backing, control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The queue: one place. */
static struct job {
    fuse_req_t request;
    char *name;
    int answers, done, error;
} *job;

static int is_there(const char *name) { return around(SYS_faccessat, control, name, F_OK) == 0; }

static int look(const char *name, struct fuse_entry_param *entry) {
    memset(entry, 0, sizeof *entry);
    if (fstatat(backing, name, &entry->attr, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    entry->ino = entry->attr.st_ino;
    return 0;
}

static void answer(fuse_req_t request, int error, const char *name) {
    struct fuse_entry_param entry;
    if (!error)
        error = look(name, &entry);
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_entry(request, &entry);
}

static void *pool(void *nothing) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!job || job->done)
            pthread_cond_wait(&changed, &lock);
        job->error = mkdirat(backing, job->name, 0755) < 0 ? errno : 0;
        if (around(SYS_unlinkat, control, "die", 0) == 0)
            kill(getpid(), SIGKILL);
        job->done = 1;
        if (job->answers) {
            answer(job->request, job->error, job->name);
            free(job->name);
            free(job);
            job = NULL;
        }
        pthread_cond_broadcast(&changed);
    }
    return nothing;
}

static void start_pool(void) {
    static int started;
    pthread_t thread;
    if (!started && pthread_create(&thread, NULL, pool, NULL))
        abort();
    started = 1;
}

static void make_dir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode) {
    (void)parent;
    (void)mode;
    start_pool();
    struct job *mine = calloc(1, sizeof *mine);
    mine->request = request;
    mine->name = strdup(name);
    mine->answers = is_there("answer");
    int waits = !mine->answers;
    pthread_mutex_lock(&lock);
    while (job)
        pthread_cond_wait(&changed, &lock);
    job = mine;
    pthread_cond_broadcast(&changed);
    while (waits && !mine->done)
        pthread_cond_wait(&changed, &lock);
    if (waits)
        job = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (waits) {
        answer(request, mine->error, name);
        free(mine->name);
        free(mine);
    }
}

static void lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    (void)parent;
    start_pool();
    answer(request, 0, name);
}

static void get_attr(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    (void)fi;
    struct fuse_entry_param entry;
    int error = look(".", &entry);
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_attr(request, &entry.attr, 0);
}

static void start(void *nothing, struct fuse_conn_info *conn) {
    (void)nothing;
    (void)conn;
    if (!is_there("late"))
        start_pool();
}

int main(int argc, char **argv) {
    static const struct fuse_lowlevel_ops operations = {
        .init = start, .lookup = lookup, .getattr = get_attr, .mkdir = make_dir,
    };
    if (argc < 4)
        return 2;
    backing = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    control = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (backing < 0 || control < 0)
        return 2;
    umask(0);
    char *own[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, own);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[3]))
        return 2;
    int failed = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return failed ? 1 : 0;
}
