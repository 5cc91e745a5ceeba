//! Random operations.

use super::disk::{EXCHANGE, NOREPLACE};
use super::memory::Rng;
use super::ops::*;
use super::plain::Plain;

/// Random operations below the directory `top`.
pub fn random_ops(rng: &mut Rng, top: &str, n: usize) -> Vec<Op> {
    let mut ops = vec![Op::Mkdir(top.into()), Op::Mkdir(format!("{top}/d"))];
    let mut plain = Plain::new(1, true);
    for op in &ops {
        plain.run(op).expect("an empty tree");
    }
    for _ in 0..n {
        let mut op = random_op(rng, top);
        // Most operations should do something.
        for _ in 0..6 {
            if plain.clone().run(&op).is_ok() {
                break;
            }
            op = random_op(rng, top);
        }
        let _ = plain.run(&op);
        ops.push(op);
    }
    ops
}

fn random_op(rng: &mut Rng, top: &str) -> Op {
    let names = ["a", "b", "c", "d", "e", "d/a", "d/b", "d/e", "e/a", "e/b"];
    let path = |rng: &mut Rng| format!("{top}/{}", rng.pick(&names));
    let fd = |rng: &mut Rng| rng.below(4);
    let text = |rng: &mut Rng| "abcdefghij"[..1 + rng.below(9)].to_string();
    let mode = |rng: &mut Rng| *rng.pick(&[0o644, 0o644, 0o600, 0o444, 0o000]);
    let flags = |rng: &mut Rng| *rng.pick(&[2, 2, 0, 1, 2 | O_APPEND, 1 | O_APPEND]);
    let xattr = ["user.a", "user.b"];
    let kind = |rng: &mut Rng| *rng.pick(&[0, 1, 1, 2]);
    let room = |rng: &mut Rng| *rng.pick(&[64, 200, 4096]);
    match rng.below(100) {
        0..=11 => {
            let extra = *rng.pick(&[O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_TRUNC]);
            let flags = flags(rng) | extra;
            Op::Create { path: path(rng), flags, mode: mode(rng), fd: fd(rng) }
        }
        12..=16 => Op::Open { path: path(rng), flags: flags(rng), fd: fd(rng) },
        17..=22 => Op::Close(fd(rng)),
        23..=26 => Op::Read { fd: fd(rng), at: rng.below(6), len: 20 },
        27..=31 => Op::Write { fd: fd(rng), at: rng.below(8), data: text(rng) },
        32..=36 => Op::Append { fd: fd(rng), data: text(rng) },
        37..=39 => Op::Mkdir(path(rng)),
        40 => Op::Mknod(path(rng)),
        41..=42 => Op::Symlink(path(rng), text(rng)),
        43 => Op::Readlink(path(rng)),
        44..=46 => Op::Link(path(rng), path(rng)),
        47..=52 => Op::Unlink(path(rng)),
        53..=55 => Op::Rmdir(path(rng)),
        56..=60 => Op::Rename(path(rng), path(rng), 0),
        61..=62 => Op::Rename(path(rng), path(rng), *rng.pick(&[NOREPLACE, EXCHANGE])),
        63..=65 => Op::Stat(path(rng)),
        66..=67 => Op::Fstat(fd(rng)),
        68..=69 => Op::Chmod(path(rng), mode(rng)),
        70 => Op::Truncate(path(rng), rng.below(12)),
        71 => Op::Ftruncate(fd(rng), rng.below(12)),
        72..=74 => {
            let name = *rng.pick(&xattr);
            let flags = *rng.pick(&[0, 1, 1, 2]);
            Op::SetXattr { path: path(rng), name, value: text(rng), flags }
        }
        75 => Op::GetXattr(path(rng), xattr[rng.below(2)]),
        76 => Op::RemoveXattr(path(rng), xattr[rng.below(2)]),
        77..=79 => {
            let dir = rng.pick(&["", "/d", "/e"]);
            Op::Opendir(format!("{top}{dir}"), rng.below(2))
        }
        80..=83 => {
            let (plus, take) = (rng.chance(50), rng.below(5));
            Op::List { dd: rng.below(2), room: 4 * room(rng), take, plus }
        }
        84..=85 => Op::ListRest { dd: rng.below(2), room: 4 * room(rng), plus: rng.chance(50) },
        86 => Op::Rewind(rng.below(2)),
        87 => Op::Closedir(rng.below(2)),
        88..=91 => {
            let start = rng.below(6) as u64;
            let end = start + rng.below(4) as u64;
            let owner = rng.below(3) as u64;
            Op::Lock { fd: fd(rng), owner, start, end, kind: kind(rng), wait: false }
        }
        92..=93 => Op::Flock { fd: fd(rng), kind: kind(rng) },
        94 => Op::Poll(fd(rng)),
        95 => Op::Fsync(fd(rng)),
        _ => Op::Shrink(*rng.pick(&[20, 100])),
    }
}
