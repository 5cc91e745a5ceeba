/* A high-level daemon that shows a directory, and whose handler of SIGUSR1 does not return:
 *     held_up BACKING CONTROL MOUNTPOINT [OPTIONS] */
#include "passthrough.h"
#include <signal.h>

static void stay(int signal) {
    (void)signal;
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    const struct fuse_operations operations = {
        .init = start, .getattr = get_attr, .open = open_file, .read = read_file, .release = release_file};
    without_core();
    signal(SIGUSR1, stay);
    return open_directories(argc, argv) < 0 ? 1 : serve(argc, argv, &operations);
}
