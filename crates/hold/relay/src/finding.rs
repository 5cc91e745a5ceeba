//! Where a path of the daemon's leads, found by a thread apart: the way may lead over a file system
//! whose server does not answer, and the one who traces the daemon must not wait for it, as all
//! threads of the daemon would.

use crate::standin::{Named, Paths};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long an answer is waited for: so many slices, of which a standstill of the machine costs
/// one. Whoever takes longer is taken to lead over somebody who does not answer, and not to the
/// mount: the call is the daemon's own affair.
const SLICES: u32 = 30;
const SLICE: Duration = Duration::from_millis(10);
/// So many may wait for such, and no more: then nobody is led.
const MOST: u32 = 16;

/// A path that a call of this thread names.
type Question = (u32, Named, [u64; 6]);

/// Finds where paths lead.
#[derive(Debug)]
pub(crate) struct Finder {
    paths: Arc<Paths>,
    /// The thread that looks, once there is one.
    looking: Option<(Sender<Question>, Receiver<Option<CString>>)>,
    /// How many more may be started.
    left: u32,
}

impl Finder {
    pub(crate) fn new(paths: Paths) -> Self {
        Self { paths: Arc::new(paths), looking: None, left: MOST }
    }

    /// Nobody is led from now on.
    pub(crate) fn stop(&mut self) {
        (self.looking, self.left) = (None, 0);
    }

    /// What the thread is to look at instead, as [`Paths::instead`] has it.
    pub(crate) fn instead(
        &mut self,
        thread: u32,
        named: Named,
        arguments: [u64; 6],
    ) -> Option<CString> {
        if self.looking.is_none() {
            self.left = self.left.checked_sub(1)?;
            let (ask, questions) = channel::<Question>();
            let (answer, answers) = channel();
            let paths = Arc::clone(&self.paths);
            let look = move || {
                for (thread, named, arguments) in questions {
                    if answer.send(paths.instead(thread, named, &arguments)).is_err() {
                        return; // it took too long
                    }
                }
            };
            thread::Builder::new().name("paths".into()).spawn(look).ok()?;
            self.looking = Some((ask, answers));
        }
        let (ask, answers) = self.looking.as_ref()?;
        let found = ask.send((thread, named, arguments)).ok();
        let answered = |_| answers.recv_timeout(SLICE).ok();
        let found = found.and_then(|()| (0..SLICES).find_map(answered));
        if found.is_none() {
            self.looking = None; // it is left where it waits
            if self.left == 0 {
                eprintln!(
                    "belay: {MOST} paths of the daemon's lead over file systems that do not answer: from now on it finds its own mount, \
                     not what that covers, and may wait for itself"
                );
            }
        }
        found?
    }
}
