//! The gate at which a process waits that is started before it is needed: a socket, through which
//! comes what it is to be.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::set_parent_process_death_signal;
use std::io;

/// What comes through the gate: two words.
const BYTES: usize = 16;

/// Makes a gate: the end of who opens it, and that of who waits. None of them outlives an exec.
///
/// # Errors
/// Those of socketpair(2).
pub fn make() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Lets who waits go on, for that generation and with these options. It is not waited for.
///
/// # Errors
/// Those of send(2): nobody waits there any more.
pub fn open(gate: &impl AsFd, generation: u32, options: u64) -> io::Result<()> {
    let words = [u64::from(generation).to_ne_bytes(), options.to_ne_bytes()];
    match send(gate, words.as_flattened(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? {
        BYTES => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Whether the gate is open, or nobody is there who could open it: who waits is not kept waiting.
pub fn is_open(gate: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(gate, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Waits until the gate is opened; gives the generation and the options. From then on this process
/// outlives who has started it. `None`: the other end is gone, and with it any use for this
/// process.
pub fn pass(gate: &impl AsFd) -> Option<(u32, u64)> {
    let mut words = [[0; 8]; 2];
    // One more byte would be there if it were another message.
    let (_, length) =
        retry_on_intr(|| recv(gate, words.as_flattened_mut(), RecvFlags::TRUNC)).ok()?;
    let [generation, options] = words.map(u64::from_ne_bytes);
    let generation = u32::try_from(generation).ok()?;
    if length != BYTES {
        return None;
    }
    let _ = set_parent_process_death_signal(None);
    Some((generation, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_through_also_when_who_said_it_is_gone() {
        let (gate, end) = make().expect("a gate");
        assert!(!is_open(&end));
        open(&gate, 7, u64::MAX).expect("open");
        assert!(is_open(&end));
        drop(gate);
        assert_eq!(pass(&end), Some((7, u64::MAX)));
        assert!(is_open(&end));
        assert_eq!(pass(&end), None);
    }

    #[test]
    fn nothing_else_is_let_through() {
        for other in [&[1_u8; BYTES - 1][..], &[0; BYTES + 1], &[0xff; BYTES]] {
            let (gate, end) = make().expect("a gate");
            send(&gate, other, SendFlags::empty()).expect("send");
            assert_eq!(pass(&end), None, "{other:?}");
        }
    }

    #[test]
    fn who_waits_no_more_cannot_be_let_through() {
        let (gate, end) = make().expect("a gate");
        drop(end);
        assert!(open(&gate, 7, 0).is_err());
    }
}
