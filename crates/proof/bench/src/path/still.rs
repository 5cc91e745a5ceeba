//! What the host stands on here: a device that has nothing and takes all, and a daemon that has no
//! effects.

use std::cell::Cell;
use std::sync::Arc;

use belay_host::{Device, EffectHooks, Fault, Process, Readiness};
use belay_recorder::Slot;
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::errno::EAGAIN;

use super::step::numbers;

/// See the module.
#[derive(Debug, Default)]
pub struct Still {
    /// Of the reply that the kernel has got last, see [`numbers`].
    got: Cell<(u64, u64)>,
}

impl Still {
    /// The kernel gets this reply, unless it gets another instead.
    #[inline]
    pub fn wrote(&self, reply: &[u8]) {
        self.got.set(numbers(reply));
    }

    /// Of that the first number, and the one behind an entry.
    pub fn got(&self) -> (u64, u64) {
        self.got.get()
    }
}

impl Device for Still {
    type Buffer = Vec<u8>;

    fn buffer(&self, len: usize) -> Vec<u8> {
        vec![0; len]
    }

    fn read(&self, _buffer: &mut [u8]) -> Result<usize, i32> {
        Err(EAGAIN)
    }

    fn read_into_recorder(&self, _at: usize, _max: usize) -> Result<usize, i32> {
        Err(EAGAIN)
    }

    fn write(&self, message: &[u8]) -> i32 {
        self.wrote(message);
        0
    }

    fn readiness(&self) -> Readiness {
        Readiness::default()
    }
}

impl Process for Still {
    fn now(&self) -> u64 {
        1
    }

    fn reads_wait(&self) -> bool {
        true
    }

    fn doze(&self, _ns: i64) -> bool {
        true
    }

    fn pause(&self) {}

    fn fault(&self, fault: &Fault<'_>) -> ! {
        panic!("a sound daemon: {}", fault.rule);
    }

    fn unrecordable(&self) -> ! {
        panic!("nothing is to be logged");
    }
}

impl EffectHooks<Arc<Mapping>> for Still {
    type Turn = ();

    fn turn(&self, _message: &[u8]) {}

    fn begin(&self, _session: &Session<Arc<Mapping>>, _message: &[u8]) -> Option<Slot> {
        None
    }

    fn assign(&self, (): (), _slot: Option<Slot>) {}

    fn leave(&self, (): ()) {}

    fn replied(&self, _unique: u64, _failed: bool) -> Option<i32> {
        None
    }

    fn decided(&self, _unique: u64) {}

    fn inherit(&self, _session: &mut Session<Arc<Mapping>>) {}
}
