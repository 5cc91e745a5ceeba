//! How a process is asked to end.

use rustix::fd::OwnedFd;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io;
use std::os::unix::net::UnixStream;

/// Gives what can be read when SIGTERM has come. The terminal's signals are for whoever started the mount, who ends it in its order:
/// here they end nobody.
///
/// # Errors
/// Those of the system calls.
pub fn asked_to_end() -> io::Result<OwnedFd> {
    let (end, signalled) = UnixStream::pair()?;
    pipe::register(SIGTERM, signalled)?;
    for ignored in [SIGINT, SIGHUP] {
        let (heard, unheard) = UnixStream::pair()?;
        pipe::register(ignored, unheard)?;
        // What nobody reads is dropped when its room is full.
        drop(heard);
    }
    Ok(end.into())
}
