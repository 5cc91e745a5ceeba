/* Opens its image in the way that is asked for, and mounts nothing. Ends with 42 if it found what it should. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char written[512], seen[512], read_only[512];
	const char *image = argc > 2 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
	int flags = 0;

	if (strcmp(how, "direct") == 0)
		flags = O_DIRECT;
	if (strcmp(how, "append") == 0)
		flags = O_APPEND;
	if (strcmp(how, "trunc") == 0)
		flags = O_TRUNC;
	int first = strcmp(how, "creat") ? open(image, O_RDWR | flags) : creat(image, 0600), second = open(image, O_RDWR | O_CREAT, 0600);
	int reader = open(image, O_RDONLY);

	memset(written, 'x', sizeof(written));
	if (first < 0 || second < 0 || reader < 0) {
		perror(image);
		return 1;
	}
	/* What is written by one is read by the others, also by one that was opened for reading only. */
	if (pwrite(second, written, sizeof(written), 512) != sizeof(written) ||
	    pread(first, seen, sizeof(seen), 512) != sizeof(seen) ||
	    pread(reader, read_only, sizeof(read_only), 512) != sizeof(read_only))
		return 2;
	if (memcmp(written, seen, sizeof(seen)) != 0)
		return 3;
	return memcmp(written, read_only, sizeof(read_only)) != 0 ? 4 : 42;
}
