// A mirror of a folder for reading, by Mono.Fuse: mirror.exe FOLDER MOUNTPOINT.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using Mono.Fuse;
using Mono.Unix.Native;

class Mirror : FileSystem {
  string root;
  Mirror(string folder) { root = folder; }
  static Errno Bad() { return Stdlib.GetLastError(); }

  protected override Errno OnGetPathStatus(string path, out Stat buf) {
    return Syscall.lstat(root + path, out buf) == -1 ? Bad() : 0;
  }
  protected override Errno OnReadSymbolicLink(string path, out string target) {
    target = null;
    StringBuilder buf = new StringBuilder(4096);
    if (Syscall.readlink(root + path, buf) == -1) return Bad();
    target = buf.ToString();
    return 0;
  }
  protected override Errno OnReadDirectory(string path, OpenedPathInfo info, out IEnumerable<DirectoryEntry> paths) {
    paths = null;
    IntPtr dir = Syscall.opendir(root + path);
    if (dir == IntPtr.Zero) return Bad();
    var found = new List<DirectoryEntry>();
    Dirent entry;
    while ((entry = Syscall.readdir(dir)) != null) found.Add(new DirectoryEntry(entry.d_name));
    Syscall.closedir(dir);
    paths = found;
    return 0;
  }
  protected override Errno OnOpenHandle(string path, OpenedPathInfo info) {
    int fd = Syscall.open(root + path, info.OpenFlags);
    if (fd == -1) return Bad();
    info.Handle = (IntPtr) fd;
    return 0;
  }
  protected override unsafe Errno OnReadHandle(string path, OpenedPathInfo info, byte[] buf, long offset, out int read) {
    fixed (byte* at = buf) {
      read = (int) Syscall.pread((int) info.Handle, at, (ulong) buf.Length, offset);
    }
    return read == -1 ? Bad() : 0;
  }
  protected override Errno OnReleaseHandle(string path, OpenedPathInfo info) {
    Syscall.close((int) info.Handle);
    return 0;
  }

  static void Main(string[] args) {
    using (var mirror = new Mirror(args[0])) {
      mirror.MountPoint = args[1];
      mirror.Start();
    }
  }
}
