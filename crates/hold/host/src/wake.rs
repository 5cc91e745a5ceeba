//! Waking a thread that sleeps in the kernel's read of the device, when there is work of belay's
//! own.
//!
//! That takes a notification, which the kernel answers with a message for one reader: two system
//! calls, and a thread more that runs. A successor to which ten thousand requests are reissued
//! would spend most of its time on that. It is left out where somebody looks anyway: another thread
//! that looks again after [`LOOK`], or one that has still to take the message before this one.

use crate::environment::Environment;
use crate::head::opcode;
use crate::host::Host;
use belay_memory::Memory;
use belay_wire::{Opcode, build, get_u64};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How often a thread looks for work that waits while requests are being settled, in ns.
pub const LOOK: i64 = 1_000_000;
/// A message of which nobody has told for so long is not waited for, in ns.
const OVERDUE: u64 = 5_000_000;

/// Who is awake.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    /// Threads that look again soon. One that says so no longer either has seen in `counted_on`
    /// that somebody counted on it, or whoever wanted to has seen that it is gone: each writes the
    /// one and then reads the other, in one order for all.
    looking: AtomicU32,
    /// Somebody has been left asleep because another looks.
    counted_on: AtomicBool,
    /// When the message was asked for that nobody has taken yet; 0 if there is none.
    asked: AtomicU64,
    /// That is a request which the supervisor has somebody make: any may be it.
    nudged: AtomicBool,
}

impl Wake {
    /// Whether a thread looks soon, which is counted on then.
    fn somebody_looks(&self) -> bool {
        self.counted_on.store(true, SeqCst);
        self.looking.load(SeqCst) > 0
    }

    /// While `wait` lasts, the calling thread is one that looks for work afterwards: it must if
    /// this gives `true` besides what `wait` has given, since somebody has counted on that.
    pub(crate) fn while_looking<T>(&self, wait: impl FnOnce() -> T) -> (T, bool) {
        self.looking.fetch_add(1, SeqCst);
        let result = wait();
        self.looking.fetch_sub(1, SeqCst);
        (result, self.counted_on.swap(false, SeqCst))
    }
}

impl<M: Memory> Host<M> {
    /// There is work for whichever thread comes for it. While requests are being settled, those
    /// that have nothing to do look by themselves.
    pub(crate) fn wake(&self, env: &impl Environment<M>, settling: bool) {
        if settling && self.wake.somebody_looks() {
            return;
        }
        if env.is_polled() {
            env.ring();
            if !env.has_readers() {
                return;
            }
        }
        let at = env.now();
        let asked = self.wake.asked.load(Relaxed);
        if asked != 0 && at.saturating_sub(asked) < OVERDUE {
            return;
        }
        self.wake.asked.store(at, Relaxed);
        if self.kick(env) != 0 {
            self.wake.nudged.store(true, Relaxed);
            self.ask_for_nudge(env);
        }
    }

    /// The kernel knows no file by which a reader could be woken: the supervisor has the mount
    /// asked for something.
    #[cold]
    fn ask_for_nudge(&self, env: &impl Environment<M>) {
        self.control().ask_for_nudge();
        env.tell();
    }

    /// Wakes all who may be asleep.
    pub(crate) fn wake_all(&self, env: &impl Environment<M>) {
        env.ring();
        if self.kick(env) != 0 {
            self.ask_for_nudge(env);
        }
    }

    /// Wakes a reader in any case. Gives 0, or the errno if the kernel would not.
    fn kick(&self, env: &impl Environment<M>) -> i32 {
        let message = self.session().kick_message();
        env.write(&message)
    }

    /// Rings for who waits for the device without reading it, if what has just happened may have
    /// made work.
    pub fn ring_for_more(&self, env: &impl Environment<M>) {
        // Of checkpoints the session does not know; under `buffer` as well, which is that policy
        // without an image.
        let other = || env.keeps_epochs() && (self.look.load(Acquire) || env.is_due());
        if self.has_work() || other() {
            env.ring();
        }
    }

    /// A message of the kernel's has been taken, by a thread that looks for work before it reads
    /// again: perhaps that which was asked for.
    #[inline]
    pub(crate) fn woken(&self, message: &[u8]) {
        if self.wake.nudged.load(Relaxed) || is_kick(message) {
            self.wake.nudged.store(false, Relaxed);
            self.wake.asked.store(0, Relaxed);
        }
    }
}

fn is_kick(message: &[u8]) -> bool {
    opcode(message) == Opcode::NOTIFY_REPLY && get_u64(message, 8) == Some(build::KICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread looks, another has work for it, at the same time: if it was counted on, it is
    /// told, whatever their order.
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
