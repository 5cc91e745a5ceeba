/* A high-level daemon that shows a directory, and hides open files itself as libfuse does it (.fuse_hidden):
 *     slow BACKING CONTROL MOUNTPOINT [OPTIONS]
 * With "slow" in CONTROL, an open that has been made tells so by "here", and is answered when there is "go". */
#include "passthrough.h"
#include "around.h"
#include <sys/syscall.h>

static int is_there(const char *name) { return around(SYS_faccessat, control, name, F_OK) == 0; }

static int open_slowly(const char *path, struct fuse_file_info *fi) {
    int error = open_file(path, fi);
    if (is_there("slow")) {
        around(SYS_mknodat, control, "here", S_IFREG | 0600, 0);
        while (!is_there("go"))
            usleep(1000);
    }
    return error;
}

static int remove_file(const char *path) { return result(unlinkat(backing, below(path), 0)); }

static int move(const char *from, const char *to, unsigned flags) {
    return flags ? -EINVAL : result(renameat(backing, below(from), backing, below(to)));
}

int main(int argc, char **argv) {
    const struct fuse_operations operations = {.init = start, .getattr = get_attr, .open = open_slowly, .read = read_file,
                                               .release = release_file, .unlink = remove_file, .rename = move};
    without_core();
    return open_directories(argc, argv) < 0 ? 1 : serve(argc, argv, &operations);
}
