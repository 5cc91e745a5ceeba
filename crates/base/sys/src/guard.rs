//! Mappings of files that others can make shorter.
//!
//! A look behind the end of a file raises SIGBUS, which ends the process. A process that must
//! outlive those with whom it shares a file guards its mapping: at the first such signal that is
//! about a guarded mapping all of that is replaced by memory of its own, all zero, and it goes on.
//! That what it had mapped is lost is then for it to find out ([`is_lost`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Once, PoisonError, RwLock};

/// Start and length of what is guarded, 0 for nothing. A process has one recorder, and tests have a
/// few.
static GUARDED: [(AtomicUsize, AtomicUsize); 8] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 8];
static LOST: AtomicBool = AtomicBool::new(false);
/// Held while places are given out; never by the handler.
static PLACES: RwLock<()> = RwLock::new(());
static INSTALLED: Once = Once::new();

/// Whether a guarded mapping of this process was lost.
pub fn is_lost() -> bool {
    LOST.load(Relaxed)
}

/// Guards `len` bytes from `start` on. `false` if there are too many already.
pub(crate) fn add(start: usize, len: usize) -> bool {
    INSTALLED.call_once(install);
    let _alone = PLACES.write().unwrap_or_else(PoisonError::into_inner);
    let Some((at, length)) = GUARDED.iter().find(|(_, length)| length.load(Relaxed) == 0) else {
        return false;
    };
    at.store(start, Relaxed);
    length.store(len, Relaxed);
    true
}

/// Guards what starts at `start` no longer: it is about to be unmapped.
pub(crate) fn remove(start: usize) {
    let _alone = PLACES.write().unwrap_or_else(PoisonError::into_inner);
    for (at, length) in &GUARDED {
        if at.load(Relaxed) == start {
            length.store(0, Relaxed);
        }
    }
}

fn install() {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus as unsafe extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler makes only system calls and atomic loads, and touches nothing else of the
    // process.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

/// # Safety
/// It is called by the kernel alone, as the handler of a signal with SA_SIGINFO.
unsafe extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO, and it stays until
    // that returns.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    let code = info.si_code;
    // SAFETY: SIGBUS has an address.
    let address = unsafe { info.si_addr() } as usize;
    // Sent by somebody, it says nothing of an address.
    let found = GUARDED.iter().find_map(|(at, length)| {
        let (at, length) = (at.load(Relaxed), length.load(Relaxed));
        (code > 0 && address.checked_sub(at)? < length).then_some((at, length))
    });
    if let Some((at, length)) = found {
        // SAFETY: exactly the range of a mapping that its owner guards until it unmaps it, and
        // which it reaches only through atomics: memory that is all zero is as good for these as
        // any. errno is not touched where this succeeds.
        let done = unsafe {
            libc::mmap(
                at as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if done != libc::MAP_FAILED {
            LOST.store(true, Relaxed);
            return;
        }
    }
    // SAFETY: the default action for a signal that is not for this handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if code <= 0 {
        // SAFETY: sends this process the signal that it was sent, which ends it when the handler
        // returns.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(test)]
mod tests {
    use crate::Mapping;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_file_that_gets_shorter_is_lost_and_its_reader_lives() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 20).expect("ftruncate");
        let map = Mapping::new(file.as_fd(), 1 << 20).expect("map");
        assert!(map.guard());
        map.words()[70_000].store(7, Relaxed);
        map.words()[1].store(7, Relaxed);
        assert!(!super::is_lost());
        ftruncate(&file, 0).expect("ftruncate");
        assert_eq!(map.words()[70_000].load(Relaxed), 0);
        assert!(super::is_lost());
        assert_eq!(map.words()[1].load(Relaxed), 0, "it is lost as a whole");
        map.words()[1].store(8, Relaxed);
        assert_eq!(map.words()[1].load(Relaxed), 8);
        drop(map);
        let places = super::GUARDED.iter().filter(|(_, length)| length.load(Relaxed) != 0);
        assert_eq!(places.count(), 0);
        let blank = Mapping::blank(4096).expect("map");
        blank.words()[7].store(1, Relaxed);
        assert_eq!(blank.words().iter().map(|word| word.load(Relaxed)).sum::<u64>(), 1);
    }
}
