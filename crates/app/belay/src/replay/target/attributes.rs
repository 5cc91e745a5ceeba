//! Owner, mode and times of what an operation made or changed.

use super::{Outcome, at, told};
use belay_oplog::kept::Nanoseconds;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};

pub(super) const NOBODY_ELSE: u32 = 0o7777;

pub(super) fn chown(node: &OwnedFd, uid: Option<u32>, gid: Option<u32>) -> Outcome<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(node, "", uid, gid, AtFlags::EMPTY_PATH).map_err(told("set its owner"))
}

pub(super) fn chmod(node: &OwnedFd, mode: u32) -> Outcome<()> {
    let mode = Mode::from_raw_mode(mode & NOBODY_ELSE);
    rustix::fs::chmodat(CWD, at(node), mode, AtFlags::empty()).map_err(told("set its mode"))
}

pub(super) fn set_mtime(node: &impl AsFd, time: Nanoseconds) -> Outcome<()> {
    set_times(node, None, Some(time))
}

pub(super) fn set_times(
    node: &impl AsFd,
    atime: Option<Nanoseconds>,
    mtime: Option<Nanoseconds>,
) -> Outcome<()> {
    const SECOND: Nanoseconds = 1_000_000_000;
    let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let timespec = |time: Option<Nanoseconds>| -> Outcome<Timespec> {
        let Some(time) = time else { return Ok(omitted) };
        let tv_sec = i64::try_from(time.div_euclid(SECOND)).map_err(|why| why.to_string())?;
        let tv_nsec = i64::try_from(time.rem_euclid(SECOND)).map_err(|why| why.to_string())?;
        Ok(Timespec { tv_sec, tv_nsec })
    };
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    let times = Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
    let fd = node.as_fd();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).map_err(told("set its times"))
}

/// A device's number, as the protocol has it (`new_encode_dev`).
pub(super) fn old_device(device: u32) -> u64 {
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0xfff00);
    rustix::fs::makedev(major, minor)
}
