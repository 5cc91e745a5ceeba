"""A server of WebDAV for davfs2, and what takes away the PID file of each davfs2 that was killed: none starts where one is
left. davfs2.py PORT FOLDER MOUNTPOINT."""

import os
import pathlib
import select
import sys
import threading
import time

from wsgidav.server.server_cli import run

PIDS = pathlib.Path("/var/run/mount.davfs")


def tidy(file):
    """Removes the file whenever the process that it names has ended."""
    while True:
        try:
            end = os.pidfd_open(int(file.read_text()))
        except (FileNotFoundError, ValueError):  # not there, or not yet written
            time.sleep(0.002)
            continue
        except ProcessLookupError:
            file.unlink(missing_ok=True)
            continue
        select.select([end], [], [])
        os.close(end)
        file.unlink(missing_ok=True)


def main():
    port, folder, mountpoint = sys.argv[1:]
    file = PIDS / (mountpoint.strip("/").replace("/", "-") + ".pid")
    threading.Thread(target=tidy, args=(file,), daemon=True).start()
    sys.argv[1:] = ["-H", "127.0.0.1", "-p", port, "-r", folder, "--auth", "anonymous", "--no-config", "-q"]
    run()


main()
