#!/usr/bin/python3
"""One file, "file", by pyfuse3, whose loop is trio's: event_loop.py MOUNTPOINT."""

import errno
import os
import stat
import sys

import pyfuse3
import trio

FILE = pyfuse3.ROOT_INODE + 1
TEXT = b"text"


class OneFile(pyfuse3.Operations):
    async def getattr(self, inode, ctx=None):
        entry = pyfuse3.EntryAttributes()
        if inode == pyfuse3.ROOT_INODE:
            entry.st_mode = stat.S_IFDIR | 0o755
        elif inode == FILE:
            entry.st_mode = stat.S_IFREG | 0o644
            entry.st_size = len(TEXT)
        else:
            raise pyfuse3.FUSEError(errno.ENOENT)
        entry.st_ino = inode
        entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        return entry

    async def lookup(self, parent_inode, name, ctx=None):
        if parent_inode != pyfuse3.ROOT_INODE or name != b"file":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(FILE)

    async def open(self, inode, flags, ctx):
        return pyfuse3.FileInfo(fh=inode)

    async def read(self, fh, off, size):
        return TEXT[off : off + size]


async def main():
    try:
        await pyfuse3.main()
    finally:
        pyfuse3.close(unmount=True)


pyfuse3.init(OneFile(), sys.argv[1], {"fsname=event_loop"})
trio.run(main)
