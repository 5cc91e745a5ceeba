//! How a daemon is led to its stand-in: until it has mounted, the relay traces it (ptrace(2)), and
//! puts another path into each call that would look at the held mount. From then on it is not
//! traced any more, and costs nothing.
//!
//! The other path needs a place in the memory of the daemon, and what is below its stack may be
//! somebody's: Go has many stacks in one piece of memory. So a thread that has none first makes
//! another call in the place of its own, one for a page; then the call itself, with the path in
//! that page; and at its end the register that had the path has it again. The page stays, for its
//! next such call.
//!
//! Where a path leads is looked for by another thread (`finding.rs`): it may lead over file systems
//! whose servers do not answer.
//!
//! Invariant: all else is done by the one thread that waits for the daemon, as a tracer has to.

use crate::ending::{Tracing, signal_before};
use crate::finding::Finder;
use crate::registers::{At, Registers, stopped_at};
use crate::standin::{Named, Paths};
use belay_sys::GoesOn;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use rustix::process::WaitStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;

/// A page of the daemon's. A path that does not fit into it is left to the kernel, which takes none
/// as long.
const PAGE: u64 = 4096;

/// What is under way for a thread.
#[derive(Debug)]
enum Step {
    /// It asks for a page: the end of that comes next. Then its own call, as its registers had it,
    /// gets this path as its argument of that number.
    Page(Box<Registers>, usize, CString),
    /// It makes its own call, with the page as its argument of that number: at the end it gets back
    /// what it had there. A signal may come first, and with it other calls.
    Call { which: usize, page: u64, before: u64 },
}

/// The tracing of a daemon that has not mounted yet.
#[derive(Debug)]
pub(crate) struct Leading {
    finder: Finder,
    /// Threads that have stopped before.
    known: BTreeSet<Pid>,
    steps: BTreeMap<Pid, Step>,
    /// The pages that threads have.
    pages: BTreeMap<Pid, u64>,
}

impl Leading {
    pub(crate) fn new(paths: Paths) -> Self {
        Self {
            finder: Finder::new(paths),
            known: BTreeSet::new(),
            steps: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    /// A thread has ended: its number may be another's.
    pub(crate) fn ended(&mut self, thread: Pid) {
        self.known.remove(&thread);
        self.forget(thread);
    }

    /// Nothing is under way for it any more, and what it had is not there.
    fn forget(&mut self, thread: Pid) {
        self.steps.remove(&thread);
        self.pages.remove(&thread);
    }

    /// The thread has stopped, at a call or elsewhere. `over`: the daemon has mounted. `tracing`:
    /// and its mount has gone.
    pub(crate) fn stopped(
        &mut self,
        thread: Pid,
        status: WaitStatus,
        over: bool,
        tracing: Option<&Tracing>,
    ) {
        let new = self.known.insert(thread);
        if new {
            // Those that it starts are traced in the same way.
            let options = Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_TRACEEXEC;
            let _ = ptrace::setoptions(thread, options);
        }
        if status.as_raw() >> 16 == libc::PTRACE_EVENT_EXEC {
            // Another program, with the number of the process: whichever thread has started it is
            // that one now.
            self.forget(thread);
            if let Ok(before) = ptrace::getevent(thread)
                && let Ok(before) = i32::try_from(before)
                && before != thread.as_raw()
            {
                self.ended(Pid::from_raw(before));
            }
        }
        if let Some(at) = stopped_at(thread) {
            self.at_call(thread, at, over);
        }
        let goes_on = match tracing {
            _ if self.steps.contains_key(&thread) => GoesOn::ToNextCall,
            Some(tracing) => tracing.answers(thread),
            None if over => GoesOn::Free,
            None => GoesOn::ToNextCall,
        };
        // A new thread stops by a signal of the kernel's.
        let signal = signal_before(status.as_raw());
        let is_kernels = new && matches!(signal, libc::SIGSTOP | libc::SIGTRAP);
        belay_sys::go_on(thread.as_raw(), goes_on, if is_kernels { 0 } else { signal });
        if goes_on == GoesOn::Free {
            self.ended(thread);
        }
    }

    fn at_call(&mut self, thread: Pid, at: At, over: bool) {
        match (at, self.steps.remove(&thread)) {
            (At::Begin, None) if !over => self.begins(thread),
            (_, None) => {}
            (At::End, Some(Step::Page(call, which, path))) => {
                self.has_page(thread, *call, which, &path);
            }
            (At::End, Some(Step::Call { which, page, before })) => {
                let Some(registers) = Registers::of(thread) else { return };
                if registers.arguments().get(which) == Some(&page) {
                    registers.with_argument(which, before).put(thread);
                } else {
                    self.steps.insert(thread, Step::Call { which, page, before });
                }
            }
            (At::Begin, Some(step)) => {
                self.steps.insert(thread, step);
            }
        }
    }

    /// A thread begins a call: if that leads to the mount, it gets another path, or asks for a page
    /// for it.
    fn begins(&mut self, thread: Pid) {
        let Some(call) = Registers::of(thread) else { return };
        let Some(named) = Named::by(call.number()) else { return };
        let number = thread.as_raw().unsigned_abs();
        let Some(path) = self.finder.instead(number, named, call.arguments()) else { return };
        if path.as_bytes_with_nul().len() as u64 > PAGE {
            return;
        }
        let which = named.path;
        let text = path.as_bytes_with_nul();
        if let Some(&page) = self.pages.get(&thread)
            && write(thread, page, text).is_ok()
        {
            let before = call.arguments().get(which).copied().unwrap_or(0);
            if call.with_argument(which, page).put(thread) {
                self.steps.insert(thread, Step::Call { which, page, before });
            }
            return;
        }
        let kept = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let own = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let page = call.with_call(libc::SYS_mmap, [0, PAGE, kept, own, u64::MAX, 0]);
        if page.put(thread) {
            self.steps.insert(thread, Step::Page(Box::new(call), which, path));
        }
    }

    /// A thread has got its page, or an error: it makes its own call.
    fn has_page(&mut self, thread: Pid, call: Registers, which: usize, path: &CString) {
        let Some(registers) = Registers::of(thread) else { return };
        let again = call.once_more();
        let before = call.arguments().get(which).copied().unwrap_or(0);
        let page = u64::try_from(registers.result()).ok();
        match page.filter(|page| write(thread, *page, path.as_bytes_with_nul()).is_ok()) {
            Some(page) => {
                self.pages.insert(thread, page);
                again.with_argument(which, page).put(thread);
                self.steps.insert(thread, Step::Call { which, page, before });
            }
            // It is not led once more, for which it has no room: it makes its call as it is, and
            // waits.
            None => {
                self.finder.stop();
                again.put(thread);
            }
        }
    }
}

/// Writes to the memory of a traced thread.
fn write(thread: Pid, address: u64, text: &[u8]) -> io::Result<()> {
    let memory = OpenOptions::new().write(true).open(format!("/proc/{thread}/mem"))?;
    memory.write_all_at(text, address)
}
