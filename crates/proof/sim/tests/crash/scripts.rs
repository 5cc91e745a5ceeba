//! Short sequences that cover every kind of operation.

use belay_sim::disk::{EXCHANGE, NOREPLACE};
use belay_sim::ops::*;

fn create(path: &str, fd: usize) -> Op {
    Op::Create { path: path.into(), flags: O_CREAT | RDWR, mode: 0o644, fd }
}

fn open(path: &str, flags: u32, fd: usize) -> Op {
    Op::Open { path: path.into(), flags, fd }
}

fn write(fd: usize, at: usize, data: &str) -> Op {
    Op::Write { fd, at, data: data.into() }
}

fn read(fd: usize) -> Op {
    Op::Read { fd, at: 0, len: 40 }
}

fn append(fd: usize, data: &str) -> Op {
    Op::Append { fd, data: data.into() }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir(path.into())
}

fn unlink(path: &str) -> Op {
    Op::Unlink(path.into())
}

fn rename(old: &str, new: &str) -> Op {
    Op::Rename(old.into(), new.into(), 0)
}

fn link(old: &str, new: &str) -> Op {
    Op::Link(old.into(), new.into())
}

fn stat(path: &str) -> Op {
    Op::Stat(path.into())
}

fn lock(fd: usize, owner: u64, start: u64, end: u64, kind: u32) -> Op {
    Op::Lock { fd, owner, start, end, kind, wait: false }
}

fn setxattr(value: &str, flags: u32) -> Op {
    Op::SetXattr { path: "f".into(), name: "user.a", value: value.into(), flags }
}

fn list(take: usize, plus: bool) -> Op {
    Op::List { dd: 0, room: 400, take, plus }
}

/// A script by its name.
pub fn script(name: &str) -> Vec<Op> {
    match name {
        "create" => vec![
            create("a", 0),
            Op::Create { path: "b".into(), flags: O_CREAT | O_EXCL | RDWR, mode: 0o444, fd: 1 },
            Op::Create { path: "b".into(), flags: O_CREAT | O_EXCL | RDWR, mode: 0o444, fd: 2 },
            Op::Create { path: "a".into(), flags: O_CREAT | O_TRUNC | RDWR, mode: 0o600, fd: 2 },
            write(1, 0, "xyz"),
            Op::Close(1),
            stat("b"),
        ],
        "mkdir" => vec![
            mkdir("d"),
            mkdir("d"),
            mkdir("d/e"),
            Op::Mknod("d/p".into()),
            Op::Symlink("d/s".into(), "target".into()),
            Op::Readlink("d/s".into()),
            stat("d/e"),
        ],
        "links" => vec![
            create("f", 0),
            write(0, 0, "one"),
            link("f", "g"),
            link("f", "g"),
            Op::Close(0),
            Op::Shrink(100),
            stat("g"),
            stat("f"),
            unlink("f"),
            stat("g"),
        ],
        "unlink" => vec![
            create("f", 0),
            Op::Close(0),
            unlink("f"),
            unlink("f"),
            create("f", 0),
            Op::Fstat(0),
        ],
        "rmdir" => vec![
            mkdir("d"),
            mkdir("d/e"),
            Op::Rmdir("d".into()),
            Op::Rmdir("d/e".into()),
            Op::Rmdir("d".into()),
            mkdir("d"),
        ],
        "rename_plain" => vec![
            mkdir("d"),
            create("d/f", 0),
            rename("d/f", "d/g"),
            rename("d", "e"),
            write(0, 0, "x"),
            stat("e/g"),
            rename("e/g", "g"),
            read(0),
            Op::Rename("g".into(), "e".into(), NOREPLACE),
        ],
        "rename_over" => vec![
            create("a", 0),
            write(0, 0, "a"),
            create("b", 1),
            Op::Close(0),
            Op::Close(1),
            rename("a", "b"),
            stat("b"),
            open("b", 0, 0),
            read(0),
            mkdir("d"),
            mkdir("e"),
            rename("d", "e"),
        ],
        "rename_over_open" => vec![
            create("a", 0),
            create("b", 1),
            write(1, 0, "b"),
            rename("a", "b"),
            read(1),
            Op::Fstat(1),
            write(1, 1, "c"),
            stat("b"),
            read(1),
            Op::Close(1),
            stat("b"),
        ],
        "rename_fails" => vec![
            mkdir("d"),
            create("d/a", 0),
            create("b", 1),
            Op::Rename("b".into(), "d/a".into(), NOREPLACE),
            rename("d", "b"),
            Op::Fstat(0),
            Op::Fstat(1),
            Op::Close(1),
            stat("b"),
        ],
        "exchange" => vec![
            mkdir("d"),
            create("d/a", 0),
            write(0, 0, "a"),
            create("b", 1),
            Op::Rename("d/a".into(), "b".into(), EXCHANGE),
            Op::Fstat(0),
            stat("b"),
            stat("d/a"),
            Op::Rename("d".into(), "b".into(), EXCHANGE),
            stat("b/a"),
            read(0),
        ],
        "unlink_open" => vec![
            mkdir("d"),
            create("d/f", 0),
            write(0, 0, "abc"),
            unlink("d/f"),
            read(0),
            Op::Fstat(0),
            write(0, 3, "def"),
            create("d/f", 1),
            read(0),
            Op::Ftruncate(0, 2),
            Op::Close(0),
            stat("d/f"),
        ],
        "unlink_open_linked" => vec![
            create("f", 0),
            link("f", "g"),
            unlink("f"),
            Op::Fstat(0),
            write(0, 0, "x"),
            unlink("g"),
            read(0),
            Op::Fstat(0),
            Op::Close(0),
        ],
        "rmdir_hidden" => vec![
            mkdir("d"),
            create("d/f", 0),
            write(0, 0, "abc"),
            unlink("d/f"),
            Op::Rmdir("d".into()),
            read(0),
            mkdir("d"),
            write(0, 0, "x"),
            Op::Close(0),
            Op::Rmdir("d".into()),
        ],
        "write" => vec![
            create("f", 0),
            write(0, 0, "hello"),
            write(0, 3, "world"),
            read(0),
            Op::Close(0),
            open("f", 0, 1),
            read(1),
        ],
        "append" => vec![
            Op::Create { path: "f".into(), flags: O_CREAT | O_APPEND | RDWR, mode: 0o644, fd: 0 },
            append(0, "hello"),
            append(0, "world"),
            read(0),
            open("f", 1 | O_APPEND, 1),
            append(1, "!?"),
            read(0),
        ],
        "setattr" => vec![
            create("f", 0),
            write(0, 0, "hello"),
            Op::Truncate("f".into(), 2),
            Op::Chmod("f".into(), 0o400),
            Op::Ftruncate(0, 4),
            read(0),
            stat("f"),
        ],
        "xattr" => vec![
            create("f", 0),
            setxattr("one", 1),
            setxattr("two", 1),
            Op::GetXattr("f".into(), "user.a"),
            setxattr("two", 2),
            Op::RemoveXattr("f".into(), "user.a"),
            Op::RemoveXattr("f".into(), "user.a"),
            setxattr("one", 1),
        ],
        "listing" | "listing_plus" => {
            let plus = name == "listing_plus";
            let names = ["d/a", "d/b", "d/c", "d/e", "d/f", "d/g"];
            let mut ops = vec![mkdir("d")];
            ops.extend(names.iter().map(|name| mkdir(name)));
            ops.extend([
                create("d/h", 0),
                Op::Opendir("d".into(), 0),
                list(2, plus),
                unlink("d/h"),
                list(1, plus),
                Op::Rmdir("d/a".into()),
                list(9, plus),
                Op::ListRest { dd: 0, room: 400, plus },
                Op::Rewind(0),
                Op::ListRest { dd: 0, room: 400, plus },
                Op::Closedir(0),
            ]);
            ops
        }
        "locks" => vec![
            create("f", 0),
            lock(0, 0, 0, 9, 1),
            lock(0, 1, 5, 7, 1),
            lock(0, 0, 4, 6, 2),
            lock(0, 1, 4, 6, 0),
            lock(0, 2, 6, 6, 0),
            lock(0, 2, 6, 6, 1),
            open("f", RDWR, 1),
            Op::Flock { fd: 0, kind: 1 },
            Op::Flock { fd: 1, kind: 0 },
            Op::Close(0),
            Op::Flock { fd: 1, kind: 0 },
            lock(1, 2, 0, 9, 1),
        ],
        "forget" => vec![
            mkdir("d"),
            mkdir("d/e"),
            create("d/e/f", 0),
            Op::Close(0),
            Op::Shrink(100),
            stat("d/e/f"),
            Op::Shrink(100),
            Op::Shrink(100),
            stat("d"),
            stat("d/e"),
            rename("d/e", "e"),
            Op::Shrink(100),
            stat("e/f"),
        ],
        "poll" => vec![
            create("f", 0),
            Op::Poll(0),
            write(0, 0, "x"),
            Op::Poll(0),
            Op::Shrink(100),
            Op::Poll(0),
        ],
        "modes" => vec![
            create("f", 0),
            write(0, 0, "secret"),
            Op::Chmod("f".into(), 0),
            read(0),
            write(0, 1, "E"),
            Op::Fstat(0),
            stat("f"),
            open("f", 0, 1),
            Op::Close(0),
            stat("f"),
        ],
        other => panic!("no script {other}"),
    }
}
