/* Has files open, and closes none in passing, as a shell does: commands on standard input, each answered by "done" and errno.
 *     o PATH      open to write at the end, made if it is not there; the files are numbered from 0
 *     w N TEXT    write to file N
 *     f N SIZE    write so many bytes to it, in pieces of a MiB
 *     s N         sync it
 *     t SIZE PATH set the length of what it has not open
 *     c N         close it */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    static char line[4096], piece[1 << 20];
    int files[16], count = 0;
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line + 2;
        line[strcspn(line, "\n")] = 0;
        errno = 0;
        if (line[0] == 'o') {
            files[count++] = open(rest, O_WRONLY | O_CREAT | O_APPEND, 0644);
        } else if (line[0] == 't') {
            long size = strtol(rest, &rest, 10);
            if (truncate(rest + (*rest == ' '), size))
                ; /* errno tells */
        } else {
            int fd = files[strtol(rest, &rest, 10)];
            rest += *rest == ' ';
            if (line[0] == 'c')
                close(fd);
            if (line[0] == 's' && fsync(fd))
                ; /* errno tells */
            if (line[0] == 'w' && write(fd, rest, strlen(rest)) < 0)
                ; /* errno tells */
            for (long left = line[0] == 'f' ? atol(rest) : 0; left > 0; left -= sizeof piece)
                if (write(fd, piece, sizeof piece) < 0)
                    break;
        }
        printf("done %d\n", errno);
        fflush(stdout);
    }
    return 0;
}
