//! Waking a thread that sleeps in the kernel's read of the device, when there is work of belay's own.
//!
//! That takes a notification, which the kernel answers with a message for one reader: two system calls, and a thread more
//! that runs. A successor to which ten thousand requests are issued again would spend most of its time on that. It is left
//! out where somebody looks anyway: another thread that looks again after [`LOOK`], or one that has still to take the
//! message before this one.

use crate::device::opcode;
use crate::start::{Shim, now};
use belay_wire::{Opcode, build, get_u64};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How often a thread looks for work that waits while requests are being settled, in ns.
pub(crate) const LOOK: i64 = 1_000_000;
/// A message of which nobody has told for so long is not waited for, in ns.
const OVERDUE: u64 = 5_000_000;

/// Who is awake.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    /// Threads that look again soon. One that says so no longer either has seen in `counted_on` that somebody counted on
    /// it, or whoever wanted to has seen that it is gone: each writes the one and then reads the other, in one order for
    /// all.
    looking: AtomicU32,
    /// Somebody has been left asleep because another looks.
    counted_on: AtomicBool,
    /// When the message was asked for that nobody has taken yet; 0 if there is none.
    asked: AtomicU64,
}

impl Wake {
    /// Whether a thread looks soon, which is counted on then.
    fn somebody_looks(&self) -> bool {
        self.counted_on.store(true, SeqCst);
        self.looking.load(SeqCst) > 0
    }

    /// While `wait` lasts, the calling thread is one that looks for work afterwards: it must if this gives `true` besides
    /// what `wait` has given, since somebody has counted on that.
    pub(crate) fn while_looking<T>(&self, wait: impl FnOnce() -> T) -> (T, bool) {
        self.looking.fetch_add(1, SeqCst);
        let result = wait();
        self.looking.fetch_sub(1, SeqCst);
        (result, self.counted_on.swap(false, SeqCst))
    }
}

impl Shim {
    /// There is work for whichever thread comes for it. While requests are being settled, those that have nothing to do look
    /// by themselves.
    pub(crate) fn wake(&self, settling: bool) {
        if settling && self.wake.somebody_looks() {
            return;
        }
        if self.waiting.is_used() {
            self.ring();
            if !self.waiting.has_readers() {
                return;
            }
        }
        let at = now();
        let asked = self.wake.asked.load(Relaxed);
        if asked != 0 && at.saturating_sub(asked) < OVERDUE {
            return;
        }
        self.wake.asked.store(at, Relaxed);
        if self.kick() != 0 {
            self.wake.asked.store(0, Relaxed);
            self.ask_for_nudge();
        }
    }

    /// The kernel knows no file by which a reader could be woken: the supervisor has the mount asked for something.
    #[cold]
    fn ask_for_nudge(&self) {
        self.control().ask_for_nudge();
        self.tell();
    }

    /// Wakes all who may be asleep.
    pub(crate) fn wake_all(&self) {
        self.ring();
        if self.kick() != 0 {
            self.ask_for_nudge();
        }
    }

    /// Wakes a reader in any case. Gives 0, or the errno if the kernel would not.
    pub(crate) fn kick(&self) -> i32 {
        let message = self.session().kick_message();
        self.write(&message)
    }

    /// A message of the kernel's has been taken: perhaps that which was asked for.
    pub(crate) fn woken(&self, message: &[u8]) {
        if opcode(message) == Opcode::NOTIFY_REPLY && get_u64(message, 8) == Some(build::KICK) {
            self.wake.asked.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread looks, another has work for it, at the same time: if it was counted on, it is told, whatever their order.
    #[test]
    fn whoever_is_counted_on_is_told() {
        const ROUNDS: u32 = 100_000;
        let wake = Wake::default();
        // How often each was at the places where they wait for each other.
        let (first, second, told) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let meet = |mine: &AtomicU32, other: &AtomicU32| {
            let times = mine.fetch_add(1, SeqCst) + 1;
            let mut looks = 0;
            while other.load(SeqCst) < times {
                looks += 1;
                if looks % 64 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let (mut both, mut untold) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    meet(&first, &second);
                    let ((), counted_on) = wake.while_looking(|| spin(round % 61));
                    told.store(counted_on, SeqCst);
                    meet(&first, &second);
                }
            });
            for round in 0..ROUNDS {
                meet(&second, &first);
                spin(round % 53);
                let looks = wake.somebody_looks();
                meet(&second, &first);
                both += u32::from(looks);
                untold += u32::from(looks && !told.load(SeqCst));
                wake.counted_on.store(false, SeqCst); // the other waits for this one
            }
        });
        assert_eq!(untold, 0, "of {both} times");
        // About half of the time on idle processors; on one, or on busy ones, they take turns.
        println!("{both} of {ROUNDS} times the two met");
    }

    fn spin(times: u32) {
        for _ in 0..times {
            std::hint::spin_loop();
        }
    }
}
