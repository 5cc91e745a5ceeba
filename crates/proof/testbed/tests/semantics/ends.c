/* In front of libext2fs: dies where a file in $BELAY_TEST_DIES says so, once for each such file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void perhaps_die(const char *place)
{
	const char *dir = getenv("BELAY_TEST_DIES");
	char path[4096];

	for (int i = 0; dir && i < 10; i++) {
		snprintf(path, sizeof(path), "%s/%s-%d", dir, place, i);
		if (unlink(path) == 0)
			kill(getpid(), SIGKILL);
	}
}

/* When fuse2fs writes what it holds, for fsync and at its end. */
long ext2fs_flush2(void *fs, int flags)
{
	long (*real)(void *, int) = (long (*)(void *, int))dlsym(RTLD_NEXT, "ext2fs_flush2");

	perhaps_die("flush");
	return real(fs, flags);
}

/* At its end alone. */
long ext2fs_set_gdt_csum(void *fs)
{
	long (*real)(void *) = (long (*)(void *))dlsym(RTLD_NEXT, "ext2fs_set_gdt_csum");

	perhaps_die("end");
	return real(fs);
}
