//! What is done to both, at random.

use crate::Random;
use belay_posix::namespace::{Rename, Set};
use rand::Rng;

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
    match random.random_range(0..125) {
        0..16 => Act::Create(path),
        16..30 => Act::Mkdir(path),
        30..34 => Act::Symlink(format!("target{}", random.random_range(0..100)), path),
        34..40 => Act::Link(path, other(random)),
        40..50 => Act::Unlink(path),
        50..57 => Act::Rmdir(path),
        57..75 => {
            let how = [Rename::Replace, Rename::NoReplace, Rename::Exchange];
            let how = how[[0, 0, 1, 2][random.random_range(0..4)]];
            Act::Rename(path, other(random), how)
        }
        75..88 => Act::Write(path, random.random_range(0..30_000), data(random)),
        88..95 => Act::Truncate(path, random.random_range(0..30_000)),
        95..100 => Act::Chmod(path, random.random_range(0..0o1000) & 0o777),
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
        _ => Act::RemoveExtended(path, extended(random)),
    }
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

/// Some names are long, so that directories have several pages.
fn name(random: &mut Random) -> String {
    match random.random_range(0..4) {
        0 => format!("{:0200}", random.random_range(0..60)),
        _ => ["a", "b", "c", "d"][random.random_range(0..4)].to_owned(),
    }
}

fn path(random: &mut Random) -> String {
    let depth = random.random_range(1..4);
    let names: Vec<String> = (0..depth).map(|_| name(random)).collect();
    names.join("/")
}
