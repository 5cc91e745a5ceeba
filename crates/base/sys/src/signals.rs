//! Signals that do not come to a thread for now. Sets are numbers here: bit `n - 1` for signal `n`.

use std::io;
use std::mem::MaybeUninit;

/// Lets all signals come to the calling thread, and so to the threads and processes that it starts.
/// Gives those that did not.
///
/// # Errors
/// Those of pthread_sigmask(3).
pub fn unblock_signals() -> io::Result<u64> {
    set_mask(0)
}

/// Makes `blocked` the signals that do not come to the calling thread; gives what these were. Does
/// nothing that may not be done between fork and exec.
pub(crate) fn set_mask(blocked: u64) -> io::Result<u64> {
    let (mut new, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: writes a set to the memory it is given, which is a set's.
    unsafe { libc::sigemptyset(new.as_mut_ptr()) };
    let numbers = || (1..=64).map(|signal| (signal, 1_u64 << (signal - 1)));
    for (signal, bit) in numbers() {
        if blocked & bit != 0 {
            // SAFETY: the set was made empty above. A number that the C library keeps for itself is
            // refused.
            unsafe { libc::sigaddset(new.as_mut_ptr(), signal) };
        }
    }
    // SAFETY: reads the set made above, and writes another to memory of that size; changes the
    // calling thread's mask only.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new.as_ptr(), old.as_mut_ptr()) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    // SAFETY: the call above has succeeded, so it has written the set.
    let old = unsafe { old.assume_init() };
    // SAFETY: looks at a set that is initialised.
    let is_in = |signal| unsafe { libc::sigismember(&raw const old, signal) } == 1;
    Ok(numbers().filter(|(signal, _)| is_in(*signal)).fold(0, |set, (_, bit)| set | bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_comes_and_is_told() {
        let set = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGUSR2 - 1) | 1 << 63;
        set_mask(set).expect("set");
        assert_eq!(unblock_signals().expect("set"), set);
        assert_eq!(unblock_signals().expect("set"), 0);
    }
}
