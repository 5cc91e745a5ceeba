//! What the end of a daemon's process means: the one place where that is decided.

use crate::ledger::Detection;
use crate::process::Exit;
use belay_recorder::Blame;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

/// What is known when a daemon's process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How it ended.
    pub exit: Exit,
    /// There is, or was, a mount.
    pub mounted: bool,
    /// The connection to the kernel is gone: the mount was taken away.
    pub disconnected: bool,
    /// The daemon had begun to unmount.
    pub unmount_requested: bool,
    /// Belay was asked to stop.
    pub stopping: bool,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as it should be: end with this exit code.
    Clean {
        /// belay's exit code.
        code: i32,
    },
    /// The daemon never mounted: end with this exit code, start nothing again.
    NeverMounted {
        /// belay's exit code, never 0.
        code: i32,
        /// The daemon thought that all is well, so belay must say what is wrong.
        explain: bool,
    },
    /// A crash: start a successor.
    Crash,
}

/// Decides.
pub fn decide(facts: Facts) -> Verdict {
    let code = facts.exit.shell_code();
    if facts.stopping {
        // Whoever asks for the end does not want to hear that a signal brought it about.
        let code = if matches!(facts.exit, Exit::Code(_)) { code } else { 0 };
        return Verdict::Clean { code };
    }
    if !facts.mounted {
        let explain = matches!(facts.exit, Exit::Code(0) | Exit::Unknown);
        return Verdict::NeverMounted { code: code.max(1), explain };
    }
    if facts.disconnected || facts.unmount_requested {
        return Verdict::Clean { code };
    }
    Verdict::Crash
}

/// What a life was worth, for the crash-loop guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It answered somebody.
    Served,
    /// It was ready, and nobody asked for anything.
    Idle,
    /// It came no further than to fail a request that daemons had died of.
    SetAside,
    /// It was not ready, or did not answer what it was asked.
    Nothing,
}

/// What a death says of the request that the daemon had alone. `from_outside`: whether somebody else
/// sent the signal, if that is known.
pub fn blame(exit: Exit, detection: &Detection, from_outside: Option<bool>) -> Blame {
    match detection {
        Detection::Hang { .. } => Blame::Hang,
        Detection::Memory { .. } | Detection::StartTimeout | Detection::Violation { .. } => {
            Blame::Own
        }
        Detection::NotStarted { .. }
        | Detection::Requested { .. }
        | Detection::Restart
        | Detection::Checkpoint
        | Detection::Takeover => Blame::Unknown,
        Detection::Death => match exit {
            Exit::Code(_) => Blame::Own,
            Exit::Signal(signal) if OWN.contains(&signal) && from_outside != Some(true) => {
                Blame::Own
            }
            // SIGKILL may be the kernel's, for want of memory: then it may be the daemon's own doing.
            Exit::Signal(_) | Exit::Unknown => Blame::Unknown,
        },
    }
}

/// The signals that a program gets for what it does itself, unless somebody sends them.
const OWN: [i32; 7] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP];

/// Judges a life by whether it was open for new work, gave a first reply, and how many requests it
/// was given, and how many failed because of earlier deaths.
pub fn worth(open: bool, replied: bool, requests: u64, poisoned: u64) -> Worth {
    match (open, replied, requests) {
        // Of one request it may have died.
        (_, true, 0 | 1) if poisoned > 0 => Worth::SetAside,
        (_, true, _) => Worth::Served,
        (true, false, 0) => Worth::Idle,
        _ => Worth::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: Facts = Facts {
        exit: Exit::Code(0),
        mounted: true,
        disconnected: false,
        unmount_requested: false,
        stopping: false,
    };

    #[test]
    fn with_the_mount_in_place_any_end_is_a_crash() {
        for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(9), Exit::Signal(15), Exit::Unknown]
        {
            assert_eq!(decide(Facts { exit, ..ALIVE }), Verdict::Crash);
        }
    }

    #[test]
    fn an_unmount_is_a_clean_end_with_the_daemons_code() {
        let gone = Facts { disconnected: true, exit: Exit::Code(7), ..ALIVE };
        assert_eq!(decide(gone), Verdict::Clean { code: 7 });
        let asked = Facts { unmount_requested: true, exit: Exit::Signal(11), ..ALIVE };
        assert_eq!(decide(asked), Verdict::Clean { code: 139 });
    }

    #[test]
    fn a_daemon_that_never_mounts_is_not_started_again() {
        let none = Facts { mounted: false, disconnected: true, ..ALIVE };
        assert_eq!(decide(none), Verdict::NeverMounted { code: 1, explain: true });
        let failed = Facts { exit: Exit::Code(4), ..none };
        assert_eq!(decide(failed), Verdict::NeverMounted { code: 4, explain: false });
        let killed = Facts { exit: Exit::Signal(6), ..none };
        assert_eq!(decide(killed), Verdict::NeverMounted { code: 134, explain: false });
    }

    #[test]
    fn the_wish_to_stop_makes_any_end_clean() {
        let killed = Facts { stopping: true, exit: Exit::Signal(15), ..ALIVE };
        assert_eq!(decide(killed), Verdict::Clean { code: 0 });
        let failed = Facts { stopping: true, exit: Exit::Code(2), ..ALIVE };
        assert_eq!(decide(failed), Verdict::Clean { code: 2 });
    }

    #[test]
    fn only_work_done_counts_against_a_crash_loop() {
        assert_eq!(worth(true, true, 5, 0), Worth::Served);
        assert_eq!(worth(false, true, 5, 0), Worth::Served);
        assert_eq!(worth(true, false, 0, 0), Worth::Idle);
        assert_eq!(worth(true, false, 1, 0), Worth::Nothing);
        assert_eq!(worth(false, false, 0, 0), Worth::Nothing);
        // A reply of EIO is progress, but no service.
        assert_eq!(worth(true, true, 0, 1), Worth::SetAside);
        assert_eq!(worth(false, true, 1, 1), Worth::SetAside);
        assert_eq!(worth(true, true, 2, 1), Worth::Served);
    }

    #[test]
    fn only_deaths_of_the_daemons_own_making_are_blamed_on_a_request() {
        let death = |exit, outside| blame(exit, &Detection::Death, outside);
        for signal in [4, 5, 6, 7, 8, 11, 31] {
            assert_eq!(death(Exit::Signal(signal), None), Blame::Own, "signal {signal}");
            assert_eq!(death(Exit::Signal(signal), Some(false)), Blame::Own);
            assert_eq!(death(Exit::Signal(signal), Some(true)), Blame::Unknown);
        }
        for signal in [1, 2, 9, 13, 15] {
            for outside in [None, Some(false), Some(true)] {
                assert_eq!(death(Exit::Signal(signal), outside), Blame::Unknown);
            }
        }
        assert_eq!(death(Exit::Code(0), None), Blame::Own);
        assert_eq!(death(Exit::Code(3), None), Blame::Own);
        assert_eq!(death(Exit::Unknown, None), Blame::Unknown);
        let killed = Exit::Signal(9);
        let hang = Detection::Hang { request: String::new() };
        assert_eq!(blame(killed, &hang, None), Blame::Hang);
        assert_eq!(blame(killed, &Detection::Memory { bytes: 1 }, None), Blame::Own);
        let asked = Detection::Requested { signal: "SIGSEGV".into() };
        for planned in [asked, Detection::Restart, Detection::Checkpoint, Detection::Takeover] {
            assert_eq!(blame(Exit::Signal(11), &planned, None), Blame::Unknown);
        }
    }
}
