//! A look at the device.

use crate::start::Shim;
use rustix::event::{PollFd, PollFlags, Timespec};

impl Shim {
    /// Whether the device is readable, or gone.
    pub(crate) fn look_at_device(&self) -> PollFlags {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, Some(&none)) {
            Ok(_) => fds.first().map_or(PollFlags::empty(), PollFd::revents),
            Err(_) => PollFlags::empty(),
        }
    }
}
