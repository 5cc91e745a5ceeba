/* A FUSE daemon that speaks to the device itself. Its first life answers nothing but INIT. In the others a second thread
 * reads the device while the first still has INIT in hand, as in libfuse; what that thread does is printed. With a third
 * argument all lives are alike. "at-once": four threads begin to read at the same instant, in the background. "child": the
 * daemon has a child, which does nothing, and ends when the folder of this mount has gone. "early": in the first life, too, a
 * second thread reads the device before INIT is answered; it takes all that comes then, and answers nothing. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int device, second_life;
static int alike, at_once, early;
static volatile pid_t second_thread;
static atomic_int arrived, inits;

static void answer(__u64 unique, int error, const void *body, size_t length) {
	char message[4096];
	struct fuse_out_header head = { .len = sizeof head + length, .error = error, .unique = unique };
	memcpy(message, &head, sizeof head);
	memcpy(message + sizeof head, body, length);
	if (write(device, message, head.len) < 0)
		perror("write");
}

static void serve(char *buffer, size_t size);

static void *second(void *buffer) {
	second_thread = syscall(SYS_gettid);
	for (;;)
		serve(buffer, 1 << 17);
	return NULL;
}

/* Starts the second thread and looks for a while whether it sleeps in a read of the device. */
static void watch_second(void) {
	pthread_t thread;
	char path[64], text[128], reading[32];
	int early = 0;
	pthread_create(&thread, NULL, second, malloc(1 << 17));
	snprintf(reading, sizeof reading, "%d ", SYS_read); /* by this descriptor of the device or another */
	for (int i = 0; i < 100; i++) {
		usleep(2000);
		snprintf(path, sizeof path, "/proc/self/task/%d/syscall", second_thread);
		FILE *file = fopen(path, "r");
		if (file) {
			if (fgets(text, sizeof text, file) && !strncmp(text, reading, strlen(reading)))
				early = 1;
			fclose(file);
		}
	}
	fprintf(stderr, early ? "it reads before INIT is answered\n" : "it waits for INIT\n");
}

static void serve(char *buffer, size_t size) {
	struct fuse_in_header *head = (void *)buffer;
	ssize_t n = read(device, buffer, size);
	if (n < (ssize_t)sizeof *head)
		_exit(n < 0 ? 0 : 3);
	if (head->opcode == FUSE_INIT) {
		struct fuse_init_in *in = (void *)(head + 1);
		struct fuse_init_out out = { .major = 7, .minor = in->minor, .max_readahead = 65536, .max_write = 65536 };
		if (at_once && atomic_fetch_add(&inits, 1) > 0) {
			fprintf(stderr, "INIT came twice\n");
			answer(head->unique, -71, NULL, 0); /* EPROTO, as libfuse says then */
			return;
		}
		if (early ? !second_life : second_life && !alike)
			watch_second();
		answer(head->unique, 0, &out, sizeof out);
		if (writev(device, NULL, 0) > 0)
			fprintf(stderr, "a message of nothing is taken\n");
		while (early && !second_life)
			pause();
	} else if ((second_life || alike) && head->opcode == FUSE_GETATTR) {
		struct fuse_attr_out out = { .attr = { .ino = 1, .mode = 040755, .nlink = 2 } };
		answer(head->unique, 0, &out, sizeof out);
	} else if ((second_life || alike) && head->opcode != FUSE_FORGET) {
		answer(head->unique, -38, NULL, 0);
	}
}

#define THREADS 4

static void *one_of_many(void *buffer) {
	atomic_fetch_add(&arrived, 1);
	for (int spins = 0; atomic_load(&arrived) < THREADS; spins++)
		if (spins > 10000)
			sched_yield();
	for (;;)
		serve(buffer, 1 << 17);
	return NULL;
}

static void read_at_once(void) {
	pthread_t thread;
	for (int i = 1; i < THREADS; i++)
		pthread_create(&thread, NULL, one_of_many, malloc(1 << 17));
	one_of_many(malloc(1 << 17));
}

int main(int argc, char **argv) {
	char options[128];
	if (argc != 3 && argc != 4)
		return 2;
	early = argc == 4 && !strcmp(argv[3], "early");
	alike = argc == 4 && !early;
	at_once = alike && !strcmp(argv[3], "at-once");
	second_life = access(argv[1], F_OK) == 0;
	close(open(argv[1], O_CREAT | O_WRONLY, 0600));
	if (alike && !at_once && !fork()) {
		while (access(argv[1], F_OK) == 0)
			usleep(10000);
		_exit(0);
	}
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (device < 0 || mount("two_readers", argv[2], "fuse.two_readers", 0, options)) {
		perror("mount");
		return 1;
	}
	if (at_once && fork())
		_exit(0); /* the child is another process than the one that attached, and takes the lease */
	if (at_once)
		read_at_once();
	char *buffer = malloc(1 << 17);
	for (;;)
		serve(buffer, 1 << 17);
}
