//! The control files of a connection, where the file system that has them is mounted.

use super::device::connection;
use super::held::MountFact;
use rustix::fd::BorrowedFd;
use std::fs;
use std::io::Write;

/// Aborts the connection through the FUSE control file system, so that every caller gets an error
/// instead of waiting. Says whether that worked; closing the device everywhere does the same.
///
/// A connection's number is another's as soon as its file system is gone. So `is_there` is asked
/// whether it is still there once its control file is open: that leads to nothing any more when the
/// connection goes.
pub fn abort(fact: &MountFact, is_there: impl Fn() -> bool) -> bool {
    let Some(file) = control_file(&fact.device, "abort").filter(|_| fact.proven) else {
        return false;
    };
    let control = fs::File::options().write(true).open(file);
    control.is_ok_and(|mut control| is_there() && control.write_all(b"1").is_ok())
}

/// How many requests the kernel has that are not answered: those that nobody has read, and those
/// that somebody has. `None` where the FUSE control file system is not mounted, or the mount not
/// known for certain.
pub fn waiting(fact: Option<&MountFact>, device: BorrowedFd<'_>) -> Option<u64> {
    let known = || fact.filter(|fact| fact.proven).map(|fact| fact.device.clone());
    let number = connection(device).or_else(known)?;
    fs::read_to_string(control_file(&number, "waiting")?).ok()?.trim().parse().ok()
}

/// A control file of the connection of the file system `device`.
fn control_file(device: &str, name: &str) -> Option<String> {
    let (major, minor) = device.split_once(':')?;
    let number = (major.parse::<u64>().ok()? << 20) | minor.parse::<u64>().ok()?;
    Some(format!("/sys/fs/fuse/connections/{number}/{name}"))
}
