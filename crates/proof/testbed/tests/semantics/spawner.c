/* libfuse's passthrough_ll, mounted in the way of newer FUSE libraries (libfuse 3.15 and later): fusermount3 is
 * started by posix_spawn. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
int daemon_main(int argc, char **argv);

static int receive(int from) {
	char byte, space[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	if (recvmsg(from, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message))
		return -1;
	return *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
}

int main(int argc, char **argv) {
	char *line[] = { "fusermount3", "-o", "rw,nosuid,nodev,subtype=spawner", "--", argv[argc - 1], NULL };
	char number[16], place[32];
	int pair[2];
	pid_t child;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
	snprintf(number, sizeof number, "%d", pair[0]);
	setenv("_FUSE_COMMFD", number, 1);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclose(&actions, pair[1]);
	if (posix_spawnp(&child, "fusermount3", &actions, NULL, line, environ))
		return 3;
	close(pair[0]);
	int device = receive(pair[1]);
	int status;
	if (waitpid(child, &status, 0) != child || status != 0 || device < 0) {
		fprintf(stderr, "spawner: status %d, device %d\n", status, device);
		return 4;
	}
	close(pair[1]);
	snprintf(place, sizeof place, "/dev/fd/%d", device);
	argv[argc - 1] = place;
	return daemon_main(argc, argv);
}
