//! The daemon's calls to mount and unmount, which wait until they are answered here.
//!
//! The first FUSE file system that the daemon, or what it has started for that, mounts in this life
//! is the held one: the relay mounts it, as a daemon that the shim is preloaded into would, which
//! in later lives does nothing. All others are the daemon's own.
//!
//! Nothing is believed of what lies in the daemon's memory but what it asks for, and the relay may
//! do no more than the daemon may.

use crate::fusermount;
use crate::memory::Caller;
use crate::passing::{self, Life};
use crate::standin::Standin;
use crate::view;
use belay_sys::{Call, Listener, Verdict};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{OFlags, fcntl_setfl};
use std::ffi::{CStr, CString, c_ulong};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What is mounted.
#[derive(Debug)]
struct Held {
    place: PathBuf,
    text: CString,
    /// It was mounted for a call that may have been broken off before it was told, by whoever, with
    /// this device.
    untold: Option<(u32, u32)>,
}

/// Looks at the calls of one life.
#[derive(Debug)]
pub(crate) struct Mounting {
    listener: Listener,
    life: Arc<Life>,
    standin: Option<Standin>,
    held: Option<Held>,
}

/// What a call to mount(2) asks for.
struct Wish {
    source: CString,
    place: PathBuf,
    kind: CString,
    flags: c_ulong,
    data: CString,
    /// The number of the device in the caller.
    number: u32,
    /// Its flags.
    mode: i32,
}

impl Mounting {
    /// For a daemon whose calls are told there.
    pub(crate) fn new(listener: Listener, life: Arc<Life>, standin: Option<Standin>) -> Self {
        Self { listener, life, standin, held: None }
    }

    /// Answers calls until nobody is left to make one.
    pub(crate) fn run(mut self) {
        loop {
            let call = match self.listener.next() {
                Ok(call) => call,
                // Who has made it has gone, or the relay was disturbed.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                    continue;
                }
                Err(_) => return,
            };
            let verdict = self.judge(&call);
            if self.listener.answer(&call, verdict).is_ok()
                && let Some(held) = &mut self.held
            {
                held.untold = None;
            }
        }
    }

    fn judge(&mut self, call: &Call) -> Verdict {
        let caller = Caller::new(call.thread);
        let Some(caller) = caller.filter(|_| self.listener.is_waiting(call)) else {
            return Verdict::GoesOn;
        };
        if matches!(call.number, libc::SYS_mount | libc::SYS_umount2)
            && !caller.may_mount_as_relay()
        {
            return Verdict::GoesOn; // the kernel tells it what it may
        }
        match call.number {
            libc::SYS_mount => self.mount(call, &caller),
            libc::SYS_umount2 => self.unmount(call, &caller),
            libc::SYS_ioctl => self.clone_device(call, &caller),
            // Libraries that know it take mount(2) where it is not there.
            libc::SYS_fsopen => match caller.text(argument(call, 0)) {
                Some(kind) if is_fuse(&kind) => Verdict::Fails(libc::ENOSYS),
                _ => Verdict::GoesOn,
            },
            _ => Verdict::GoesOn,
        }
    }

    fn mount(&mut self, call: &Call, caller: &Caller) -> Verdict {
        let Some(mut wish) = Wish::of(call, caller) else { return Verdict::GoesOn };
        // fusermount3 goes to the mountpoint, and mounts where it is then.
        if let Some(standin) = &self.standin
            && wish.place == standin.instead
        {
            wish.place.clone_from(&standin.mountpoint);
        }
        let again = Some((call.thread, wish.number));
        if let Some(held) = &self.held {
            // A signal has had the thread make its call once more: its device is what it was given
            // before.
            let told = held.untold == again && held.place == wish.place;
            return if told { Verdict::Gives(0) } else { Verdict::GoesOn };
        }
        match self.make(call, &wish) {
            Ok(text) => {
                self.life.mounted.store(true, Relaxed);
                self.held = Some(Held { place: wish.place, text, untold: again });
                Verdict::Gives(0)
            }
            Err(error) => Verdict::Fails(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Mounts the held device, and gives the caller its own.
    fn make(&self, call: &Call, wish: &Wish) -> io::Result<CString> {
        let mut device = File::options().read(true).write(true).open("/dev/fuse")?;
        let (ours, theirs) = passing::pair()?;
        let place = CString::new(wish.place.as_os_str().as_bytes())?;
        let data = with_device(wish.data.to_bytes(), device.as_raw_fd());
        let data = CString::new(data)?;
        match belay_sys::mount(&wish.source, &place, &wish.kind, wish.flags, &data) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                let what = (wish.source.to_bytes(), wish.kind.to_bytes());
                let options = wish.data.to_bytes();
                device = fusermount::mount(&wish.place, what, wish.flags, options)?.into();
            }
            mounted => mounted?,
        }
        if wish.mode & libc::O_NONBLOCK != 0 {
            fcntl_setfl(&theirs, OFlags::NONBLOCK)?;
        }
        view::show(&wish.place, wish.data.to_bytes());
        let closes = wish.mode & libc::O_CLOEXEC != 0;
        self.listener.replace(call, theirs.as_fd(), wish.number, closes)?;
        self.life.gone.set_device(theirs.as_fd());
        drop(theirs);
        passing::begin(device, ours, &self.life)?;
        Ok(place)
    }

    /// A device of its own for another thread of the daemon is the one that it has, as with the
    /// shim.
    fn clone_device(&self, call: &Call, caller: &Caller) -> Verdict {
        let number = u32::try_from(argument(call, 0)).ok();
        let Some((number, mode)) = number.and_then(|number| Some((number, caller.device(number)?)))
        else {
            return Verdict::GoesOn;
        };
        let source = caller.number(argument(call, 2));
        let Some(socket) = source.and_then(|source| caller.socket(source)) else {
            return Verdict::GoesOn;
        };
        let closes = mode & libc::O_CLOEXEC != 0;
        match self.listener.replace(call, socket.as_fd(), number, closes) {
            Ok(()) => Verdict::Gives(0),
            Err(error) => Verdict::Fails(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn unmount(&self, call: &Call, caller: &Caller) -> Verdict {
        let Some(held) = &self.held else { return Verdict::GoesOn };
        let place = caller.text(argument(call, 0)).and_then(|text| caller.place(text.to_bytes()));
        if place.as_ref() != Some(&held.place) {
            return Verdict::GoesOn;
        }
        let flags = i32::try_from(argument(call, 1)).unwrap_or(0);
        tell_of_unseen_signals();
        match belay_sys::unmount(&held.text, flags) {
            Ok(()) => Verdict::Gives(0),
            Err(error) => Verdict::Fails(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl Wish {
    /// `None` if it is no FUSE file system with a device of the caller's.
    fn of(call: &Call, caller: &Caller) -> Option<Self> {
        let kind = caller.text(argument(call, 2)).filter(|kind| is_fuse(kind))?;
        let data = caller.text(argument(call, 4))?;
        let number = device_in(data.to_bytes())?;
        Some(Self {
            source: caller.text(argument(call, 0)).unwrap_or_default(),
            place: caller.place(caller.text(argument(call, 1))?.to_bytes())?,
            kind,
            flags: argument(call, 3),
            mode: caller.device(number)?,
            data,
            number,
        })
    }
}

/// Somebody may have asked the daemon to end, by a signal that came past the relay: so it is no
/// giving up if it unmounts. The shim learns that as it does of all daemons whose signals it does
/// not see, which take them by a descriptor.
fn tell_of_unseen_signals() {
    let mut asking = SigSet::empty();
    asking.add(Signal::SIGTERM);
    // What the descriptor would show stays as it is: it is closed at once, and the signal is not
    // blocked.
    drop(SignalFd::with_flags(&asking, SfdFlags::SFD_CLOEXEC));
}

fn argument(call: &Call, which: usize) -> u64 {
    call.arguments.get(which).copied().unwrap_or(0)
}

fn is_fuse(kind: &CStr) -> bool {
    kind.to_bytes().starts_with(b"fuse")
}

/// The words of a mount's options.
fn words(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == b',')
}

/// The device that they name.
fn device_in(data: &[u8]) -> Option<u32> {
    let number = words(data).find_map(|word| word.strip_prefix(b"fd="))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The same options with another device.
fn with_device(data: &[u8], number: i32) -> Vec<u8> {
    let device = format!("fd={number}");
    let word = |word| if <[u8]>::starts_with(word, b"fd=") { device.as_bytes() } else { word };
    words(data).map(word).collect::<Vec<_>>().join(&b","[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_one_of_the_options() {
        let data = b"fd=7,rootmode=40000,user_id=0";
        assert_eq!(device_in(data), Some(7));
        assert_eq!(with_device(data, 12), b"fd=12,rootmode=40000,user_id=0");
        assert_eq!(with_device(b"ro,fd=7", 3), b"ro,fd=3");
        for data in [&b""[..], b"ro", b"fd=", b"fd=x", b"xfd=3", b"fd=-1"] {
            assert_eq!(device_in(data), None);
        }
    }

    #[test]
    fn fuse_has_several_names() {
        assert!(is_fuse(c"fuse") && is_fuse(c"fuseblk") && is_fuse(c"fuse.rclone"));
        assert!(!is_fuse(c"tmpfs") && !is_fuse(c""));
    }
}
