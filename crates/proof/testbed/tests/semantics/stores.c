/* A daemon that shows a directory and stores what is written at once, though not by a call of the thread that answers:
 *     stores BACKING CONTROL MOUNTPOINT [OPTIONS]
 * With "map" in CONTROL it writes by a shared mapping of the file, with "later" by a thread that was there before, which it does
 * not wait for and which stores when there is "store"; else as anybody does. */
#include "passthrough.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The queue: one place. */
static struct job {
    int fd;
    size_t size;
    off_t at;
    char data[];
} *job;

static int is_there(const char *name) { return faccessat(control, name, F_OK, 0) == 0; }

static void *store(void *nothing) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!job)
            pthread_cond_wait(&changed, &lock);
        while (!is_there("store"))
            usleep(1000);
        if (pwrite(job->fd, job->data, job->size, job->at) < 0)
            abort();
        free(job);
        job = NULL;
        pthread_cond_broadcast(&changed);
    }
    return nothing;
}

static int by_mapping(int fd, const char *data, size_t size, off_t at) {
    struct stat st;
    size_t end = (size_t)at + size;
    if (fstat(fd, &st) || (size_t)st.st_size < end)
        return -EFBIG;
    char *there = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (there == MAP_FAILED)
        return -errno;
    memcpy(there + at, data, size);
    munmap(there, end);
    return (int)size;
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)path;
    if (is_there("map"))
        return by_mapping((int)fi->fh, data, size, at);
    if (!is_there("later"))
        return result((int)pwrite((int)fi->fh, data, size, at));
    struct job *mine = malloc(sizeof *mine + size);
    *mine = (struct job){(int)fi->fh, size, at};
    memcpy(mine->data, data, size);
    pthread_mutex_lock(&lock);
    while (job)
        pthread_cond_wait(&changed, &lock);
    job = mine;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return (int)size;
}

static void *begin(struct fuse_conn_info *conn, struct fuse_config *config) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, store, NULL))
        abort();
    return start(conn, config);
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .init = begin, .getattr = get_attr, .open = open_file, .read = read_file, .write = write_file,
        .release = release_file,
    };
    return open_directories(argc, argv) ? 2 : serve(argc, argv, &operations);
}
