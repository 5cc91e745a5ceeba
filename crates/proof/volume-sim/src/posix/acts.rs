//! What is done to both, at random.

use crate::Random;
use belay_posix::namespace::{Rename, Set};
use rand::Rng;

/// A device: its major and minor number.
pub type Device = (u32, u32);

/// What a time is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It is left as it is.
    Omit,
    /// The time of the call.
    Now,
    /// Seconds and nanoseconds.
    At(i64, u32),
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Act {
    /// A file is made.
    Create(String),
    /// A directory is made.
    Mkdir(String),
    /// A symbolic link is made.
    Symlink(String, String),
    /// A file gets another name.
    Link(String, String),
    /// A name is removed.
    Unlink(String),
    /// A directory is removed.
    Rmdir(String),
    /// A file is renamed.
    Rename(String, String, Rename),
    /// Data are written.
    Write(String, u64, Vec<u8>),
    /// The length is changed.
    Truncate(String, u64),
    /// Permissions are changed.
    Chmod(String, u32),
    /// A file or directory is opened, and stays so.
    Open(String),
    /// One that is open is closed: which of them.
    Close(usize),
    /// Data are written to one that is open, which need not have a name any more.
    WriteOpen(usize, u64, Vec<u8>),
    /// A file is made in a directory that is open.
    CreateIn(usize, String),
    /// A file of some kind is made: with that mode, which has the kind, and that device.
    Mknod(String, u32, Device),
    /// It belongs to others.
    Chown(String, Option<u32>, Option<u32>),
    /// Times are set: when it was read, and when it was written.
    Utimes(String, When, When),
    /// Room is made, or data are made zeros, by these flags of fallocate(2).
    Allocate(String, u64, u64, u32),
    /// An extended attribute is set.
    SetExtended(String, String, Vec<u8>, Set),
    /// An extended attribute is read.
    GetExtended(String, String),
    /// An extended attribute is removed.
    RemoveExtended(String, String),
}

/// A random one; few names, so that they meet.
pub fn random_act(random: &mut Random) -> Act {
    let path = path(random);
    let other = |random: &mut Random| self::path(random);
    match random.random_range(0..143) {
        0..16 => Act::Create(path),
        16..30 => Act::Mkdir(path),
        30..34 => Act::Symlink(target(random), path),
        34..40 => Act::Link(path, other(random)),
        40..50 => Act::Unlink(path),
        50..57 => Act::Rmdir(path),
        57..75 => {
            // As flags of renameat2(2).
            let flags = [0, 0, 0, 1, 1, 2, 2, 4, 5][random.random_range(0..9)];
            let how = Rename::from_flags(flags).unwrap_or_default();
            Act::Rename(path, other(random), how)
        }
        75..88 => Act::Write(path, random.random_range(0..30_000), data(random)),
        // Some lengths are met again.
        88..95 => Act::Truncate(
            path,
            [0, 1, 4096, 9000, random.random_range(0..30_000)][random.random_range(0..5)],
        ),
        95..100 => Act::Chmod(path, random.random_range(0..0o10000)),
        100..103 => Act::Open(path),
        103..106 => Act::Close(random.random_range(0..8)),
        106..108 => {
            Act::WriteOpen(random.random_range(0..8), random.random_range(0..30_000), data(random))
        }
        108..110 => Act::CreateIn(random.random_range(0..8), name(random)),
        110..118 => {
            let how = [Set::Any, Set::Create, Set::Replace];
            let how = how[[0, 0, 1, 2][random.random_range(0..4)]];
            let value = match random.random_range(0..40) {
                0 => Vec::new(),
                1 => vec![7; 65_536],
                2 => vec![8; 65_537],
                _ => data(random),
            };
            Act::SetExtended(path, extended(random), value, how)
        }
        118..121 => Act::GetExtended(path, extended(random)),
        121..125 => Act::RemoveExtended(path, extended(random)),
        125..130 => {
            let kinds = [0o010_000, 0o020_000, 0o060_000, 0o100_000, 0o140_000];
            let kind = kinds[random.random_range(0..5)];
            let device = match kind {
                0o020_000 | 0o060_000 => {
                    (random.random_range(0..0x1000), random.random_range(0..0x10_0000))
                }
                _ => (0, 0),
            };
            Act::Mknod(path, kind | 0o600, device)
        }
        130..134 => {
            let id =
                |random: &mut Random| random.random::<bool>().then_some(random.random_range(0..3));
            // A chown that says nothing is none.
            Act::Chown(path, Some(random.random_range(0..3)), id(random))
        }
        134..139 => Act::Utimes(path, when(random), when(random)),
        _ => {
            let flags = [0, 1, 3][random.random_range(0..3)];
            Act::Allocate(
                path,
                random.random_range(0..30_000),
                random.random_range(1..20_000),
                flags,
            )
        }
    }
}

fn when(random: &mut Random) -> When {
    match random.random_range(0..3) {
        0 => When::Omit,
        1 => When::Now,
        _ => When::At(random.random_range(-5..5), random.random_range(0..1_000_000_000)),
    }
}

/// Where a link leads: nowhere.
fn target(random: &mut Random) -> String {
    let length = match random.random_range(0..4) {
        0 => 4095,
        1 => random.random_range(1..4095),
        _ => random.random_range(1..20),
    };
    let part = "nowhere/";
    part.repeat(length / part.len() + 1)[..length].replacen('/', "_", usize::from(length < 9))
}

fn data(random: &mut Random) -> Vec<u8> {
    let length = [10, 5000, 20_000][random.random_range(0..3)];
    vec![random.random(); random.random_range(1..length)]
}

/// The name of an extended attribute, or what cannot be one.
fn extended(random: &mut Random) -> String {
    match random.random_range(0..30) {
        0 => "user.".to_owned(),
        1 => "other.a".to_owned(),
        2 => format!("user.{:0250}", 0),
        3 => format!("user.{:0251}", 0),
        _ => ["user.a", "user.b", "user.c", "user.d"][random.random_range(0..4)].to_owned(),
    }
}

/// Some names are long, so that directories have several pages; some too long.
fn name(random: &mut Random) -> String {
    match random.random_range(0..120) {
        0 => format!("{:0256}", 0),
        1 => format!("{:0255}", 0),
        2..31 => format!("{:0200}", random.random_range(0..60)),
        _ => ["a", "b", "c", "d"][random.random_range(0..4)].to_owned(),
    }
}

fn path(random: &mut Random) -> String {
    let depth = random.random_range(1..4);
    let names: Vec<String> = (0..depth).map(|_| name(random)).collect();
    names.join("/")
}
