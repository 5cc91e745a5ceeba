"""A mirror of a folder by mfusepy: loopback.py FOLDER MOUNTPOINT."""

import errno
import os
import sys
import threading

import mfusepy as fuse


class Loopback(fuse.Operations):
    use_ns = True

    def __init__(self, root):
        self.root = os.path.realpath(root)
        self.lock = threading.Lock()

    def real(self, path):
        return self.root + path

    def access(self, path, amode):
        if not os.access(self.real(path), amode):
            raise fuse.FuseOSError(errno.EACCES)
        return 0

    def chmod(self, path, mode):
        os.chmod(self.real(path), mode)
        return 0

    def chown(self, path, uid, gid):
        os.chown(self.real(path), uid, gid, follow_symlinks=False)
        return 0

    def create(self, path, mode, fi=None):
        return os.open(self.real(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def open(self, path, flags):
        return os.open(self.real(path), flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))

    def getattr(self, path, fh=None):
        st = os.lstat(self.real(path)) if fh is None else os.fstat(fh)
        keys = ("st_atime", "st_ctime", "st_mtime", "st_gid", "st_uid", "st_mode", "st_nlink", "st_size", "st_blocks")
        found = {key: getattr(st, key) for key in keys}
        for key in ("st_atime", "st_ctime", "st_mtime"):
            found[key] = getattr(st, key + "_ns")
        return found

    def link(self, target, source):
        os.link(self.real(source), self.real(target))
        return 0

    def mkdir(self, path, mode):
        os.mkdir(self.real(path), mode)
        return 0

    def mknod(self, path, mode, dev):
        os.mknod(self.real(path), mode, dev)
        return 0

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def readdir(self, path, fh):
        return [".", ".."] + os.listdir(self.real(path))

    def readlink(self, path):
        return os.readlink(self.real(path))

    def release(self, path, fh):
        os.close(fh)
        return 0

    def rename(self, old, new):
        os.rename(self.real(old), self.real(new))
        return 0

    def rmdir(self, path):
        os.rmdir(self.real(path))
        return 0

    def statfs(self, path):
        st = os.statvfs(self.real(path))
        keys = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize", "f_namemax")
        return {key: getattr(st, key) for key in keys}

    def symlink(self, target, source):
        os.symlink(source, self.real(target))
        return 0

    def truncate(self, path, length, fh=None):
        if fh is None:
            os.truncate(self.real(path), length)
        else:
            os.ftruncate(fh, length)
        return 0

    def unlink(self, path):
        os.unlink(self.real(path))
        return 0

    def utimens(self, path, times=None):
        os.utime(self.real(path), ns=times, follow_symlinks=False)
        return 0

    def fsync(self, path, datasync, fh):
        os.fsync(fh)
        return 0

    def flush(self, path, fh):
        return 0


if __name__ == "__main__":
    fuse.FUSE(Loopback(sys.argv[1]), sys.argv[2], foreground=True, allow_other=os.geteuid() == 0, default_permissions=True,
              attr_timeout=0, entry_timeout=0, negative_timeout=0)
