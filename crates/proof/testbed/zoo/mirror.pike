// A mirror of a folder for reading, by Pike's Fuse: mirror.pike FOLDER MOUNTPOINT.
class Mirror {
  inherit Fuse.Operations;
  string root;
  void create(string folder) { root = folder; }
  Stdio.Stat|int getattr(string path) { return file_stat(root + path, 1) || errno(); }
  int readdir(string path, function(string:void) add) {
    array(string) names = get_dir(root + path);
    if (!names) return errno();
    add("."); add("..");
    foreach (sort(names), string name) add(name);
    return 0;
  }
  string|int readlink(string path) { return System.readlink(root + path); }
  int open(string path, int mode) { return file_stat(root + path) ? 0 : errno(); }
  string|int read(string path, int length, int offset) {
    Stdio.File file = Stdio.File();
    if (!file->open(root + path, "r")) return file->errno();
    file->seek(offset);
    string data = file->read(length);
    file->close();
    return data;
  }
}

int main(int argc, array(string) argv) {
  Fuse.run(Mirror(argv[1]), ({ "mirror", "-f", argv[2] }));
  return 0;
}
