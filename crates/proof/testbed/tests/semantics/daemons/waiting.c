/* passthrough_ll of libfuse's examples with another loop: one that waits for the device in the way that
 * WAITING_LOOP names, and answers SIGUSR1, through a signalfd that it waits for as well, with a byte in the file
 * WAITING_BEATS. A loop that is stuck in a read of the device does not. Errors that a bare kernel does not give end it. */

#define _GNU_SOURCE
#define FUSE_USE_VERSION 34
#include <fuse_lowlevel.h>

static int waiting_loop(struct fuse_session *se);

#undef fuse_session_loop_mt
#define main passthrough_main
#define fuse_session_loop waiting_loop
#define fuse_session_loop_mt(session, config) waiting_loop(session)
#include "passthrough_ll.c"
#undef main
#undef fuse_session_loop
#undef fuse_session_loop_mt

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include "../around.h"
#include <sys/wait.h>
#include <liburing.h>

static const char *how;
static int device, signals, set = -1;
static int nonblocking; /* set in this life */
static int level_until_empty; /* what is readable is read until there is nothing more */

static int is(const char *part) { return strstr(how, part) != NULL; }

static void complain(const char *what, int error)
{
	fprintf(stderr, "waiting: %s: %s\n", what, strerror(error));
	_exit(3);
}

static void check(int result, const char *what)
{
	if (result < 0)
		complain(what, errno);
}

/* The first life of a mount, of which a file tells. */
static int is_first(void)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s.first", getenv("WAITING_BEATS"));
	return open(path, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0;
}

/* Closes the daemon's descriptors in a child that uses the daemon's memory. */
static void close_in_child(void)
{
	pid_t child = vfork();
	if (child == 0) {
		close(device);
		close(set);
		close_range(3, ~0U, 0);
		_exit(0);
	}
	check(child, "vfork");
	check(waitpid(child, NULL, 0), "waitpid");
}

static void begin(struct fuse_session *se)
{
	device = fuse_session_fd(se);
	if (is("dup"))
		check(device = dup(device), "dup");
	nonblocking = is("nonblock") || is("fionbio") || (is("inherited") && is_first());
	if (nonblocking && !is("fionbio"))
		check(fcntl(device, F_SETFL, fcntl(device, F_GETFL) | O_NONBLOCK), "O_NONBLOCK");
	if (is("fionbio"))
		check(ioctl(device, FIONBIO, &(int) { 1 }), "FIONBIO");
	level_until_empty = is("edge");
	if (is("epoll")) {
		uint32_t kind = is("edge") ? EPOLLET : 0;
		uint32_t once = is("once") ? EPOLLONESHOT : 0;
		uint32_t out = is("writable") ? EPOLLOUT : 0;
		struct epoll_event event = { .events = EPOLLIN | kind | once | out, .data.u64 = 1 };
		if (set < 0)
			check(set = epoll_create1(0), "epoll_create1");
		check(epoll_ctl(set, EPOLL_CTL_ADD, device, &event), "epoll_ctl");
		event.events = EPOLLIN;
		event.data.u64 = 2;
		check(epoll_ctl(set, EPOLL_CTL_ADD, signals, &event), "epoll_ctl");
	}
	if (is("vfork"))
		close_in_child();
	if (is("twice")) { /* the same set by another number, by which the device is taken out and put in again */
		struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 };
		int other = dup(set), filler;
		check(other, "dup of a set");
		check(epoll_ctl(other, EPOLL_CTL_DEL, device, NULL), "epoll_ctl");
		check(filler = dup(signals), "dup");
		check(epoll_ctl(set, EPOLL_CTL_ADD, device, &event), "epoll_ctl");
		check(close(other), "close of a set");
	}
}

/* Reads as the C library does, without it. */
static int receive_raw(struct fuse_buf *buffer)
{
	size_t size = (1 << 20) + 8192;
	if (!buffer->mem)
		buffer->mem = malloc(size);
	ssize_t got = around(SYS_read, device, buffer->mem, size);
	buffer->size = got;
	return got < 0 ? -errno : got;
}

static struct io_uring ring;

static void ask_ring(int fd, uint64_t data)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
	io_uring_prep_poll_add(entry, fd, POLLIN);
	entry->user_data = data;
	io_uring_submit(&ring);
}

static void wait_in_ring(int *readable, int *signalled)
{
	static int begun;
	struct io_uring_cqe *entry;
	if (!begun++) {
		int failed = io_uring_queue_init(8, &ring, 0);
		if (failed < 0)
			complain("io_uring", -failed);
		ask_ring(device, 1);
		ask_ring(signals, 2);
	}
	if (io_uring_wait_cqe(&ring, &entry) < 0)
		return;
	*readable = entry->user_data == 1;
	*signalled = entry->user_data == 2;
	io_uring_cqe_seen(&ring, entry);
}

/* A set for as many descriptors as a long has bits, with nothing behind it. */
static fd_set *short_set(void)
{
	static char *pages;
	if (!pages) {
		pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(pages == MAP_FAILED ? -1 : 0, "mmap");
		check(mprotect(pages + 4096, 4096, PROT_NONE), "mprotect");
	}
	return (fd_set *)(pages + 4096 - sizeof(long));
}

/* Waits until there is something. */
static void wait_for(int *readable, int *signalled)
{
	*readable = *signalled = 0;
	if (is("naps")) {
		*readable = *signalled = 1; /* it does not wait, but tries */
	} else if (is("plain") && !nonblocking) {
		*readable = 1; /* it waits in its read */
	} else if (is("epoll")) {
		struct epoll_event events[4];
		int count;
		if (is("pwait2"))
			count = epoll_pwait2(set, events, 4, &(struct timespec) { 3600, 0 }, NULL);
		else if (is("pwait"))
			count = epoll_pwait(set, events, 4, -1, NULL);
		else
			count = epoll_wait(set, events, 4, is("timeout") ? 100 : -1);
		if (count < 0 && errno != EINTR)
			complain("epoll_wait", errno);
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == 1) {
				if (*readable && is("once"))
					complain("an event too many", 0);
				*readable = (events[i].events & ~EPOLLOUT) != 0;
				if (is("once") && !*readable)
					complain("an event without a message", 0);
			}
			if (events[i].data.u64 == 2)
				*signalled = 1;
		}
	} else if (is("select")) {
		fd_set whole, *in = is("short") ? short_set() : &whole;
		memset(in, 0, is("short") ? sizeof(long) : sizeof(whole));
		FD_SET(device, in);
		FD_SET(signals, in);
		int count = is("pselect") ? pselect(1024, in, NULL, NULL, NULL, NULL)
				: select(device > signals ? device + 1 : signals + 1, in, NULL, NULL,
					 is("timeout") ? &(struct timeval) { 0, 100000 } : NULL);
		if (count < 0 && errno != EINTR)
			complain("select", errno);
		*readable = count > 0 && FD_ISSET(device, in);
		*signalled = count > 0 && FD_ISSET(signals, in);
		if (count > 0 && count != *readable + *signalled)
			complain("select counts wrongly", 0);
	} else if (is("uring")) {
		wait_in_ring(readable, signalled);
	} else {
		struct pollfd fds[] = { { signals, POLLIN, 0 }, { device, POLLIN, 0 }, { -1, POLLIN, 7 } };
		int count = is("ppoll") ? ppoll(fds, 3, &(struct timespec) { is("timeout") ? 0 : 3600, 100000000 }, NULL)
				: poll(fds, 3, is("timeout") ? 100 : -1);
		if (count < 0 && errno != EINTR)
			complain("poll", errno);
		if (count > 0 && (fds[1].fd != device || fds[2].revents != 0))
			complain("poll has changed what it was asked", 0);
		*signalled = count > 0 && fds[0].revents;
		*readable = count > 0 && fds[1].revents;
	}
}

static void beat(void)
{
	struct signalfd_siginfo info;
	if (read(signals, &info, sizeof(info)) != sizeof(info))
		return;
	int file = open(getenv("WAITING_BEATS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
	check(file, "beats");
	check(write(file, "b", 1), "beats");
	close(file);
}

static int waiting_loop(struct fuse_session *se)
{
	struct fuse_buf buffer = { .mem = NULL };
	int waits = 0;
	begin(se);
	while (!fuse_session_exited(se)) {
		int readable, signalled, got;
		wait_for(&readable, &signalled);
		if (signalled)
			beat();
		if (is("later") && readable && (waits ^= 1))
			goto again; /* it has other things to do, and is told again */
		if (!readable)
			goto again;
		do {
			got = is("raw") ? receive_raw(&buffer) : fuse_session_receive_buf(se, &buffer);
			if (got == -EAGAIN && nonblocking) {
				if (is("naps"))
					usleep(5000);
				break;
			}
			if (got == -EINTR)
				break;
			if (got <= 0) {
				if (got == 0 || got == -ENODEV)
					goto out;
				complain("receive", -got);
			}
			fuse_session_process_buf(se, &buffer);
		} while (level_until_empty);
again:
		if (is("once") && readable) {
			struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 1 };
			check(epoll_ctl(set, EPOLL_CTL_MOD, device, &event), "epoll_ctl");
		}
		if (is("uring") && readable)
			ask_ring(device, 1);
		if (is("uring") && signalled)
			ask_ring(signals, 2);
	}
out:
	free(buffer.mem);
	fuse_session_reset(se);
	return 0;
}

int main(int argc, char **argv)
{
	sigset_t mask;
	how = getenv("WAITING_LOOP");
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	check(signals = signalfd(-1, &mask, SFD_NONBLOCK), "signalfd");
	if (is("early")) /* before it goes into the background */
		check(set = epoll_create1(0), "epoll_create1");
	return passthrough_main(argc, argv);
}
