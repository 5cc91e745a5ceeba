/* A daemon that shows one empty directory, if it can: LATE names a folder that says what keeps it from starting.
 *     slow       it waits until that is gone
 *     away       it ends, as its server is away
 *     password   it asks for one
 *     once       it writes its process id to the file "pid" there, which must not exist */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *at(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("LATE"), name);
    return path;
}

static int says(const char *name) { return access(at(name), F_OK) == 0; }

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFDIR | 0755;
    st->st_nlink = 2;
    return path[1] ? -ENOENT : 0;
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    /* umount(8) asks for the attributes of what it unmounts. */
    config->attr_timeout = 10000;
    config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

int main(int argc, char **argv) {
    const struct fuse_operations operations = {.init = start, .getattr = get_attr};
    char word[64] = "";

    if (says("slow"))
        fprintf(stderr, "late: the server is slow\n");
    while (says("slow"))
        usleep(10000);
    if (says("away")) {
        fprintf(stderr, "late: the server is away\n");
        return 1;
    }
    if (says("password")) {
        fprintf(stderr, "Password: ");
        if (!fgets(word, sizeof word, stdin)) {
            fprintf(stderr, "late: no password\n");
            return 1;
        }
    }
    if (says("once")) {
        int file = open(at("pid"), O_CREAT | O_EXCL | O_WRONLY, 0600);

        if (file < 0) {
            fprintf(stderr, "late: it runs already, as %s exists\n", at("pid"));
            return 1;
        }
        dprintf(file, "%d\n", getpid());
        close(file);
    }
    return fuse_main(argc, argv, &operations, NULL);
}
