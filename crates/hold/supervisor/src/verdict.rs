//! What the end of a daemon's process means: the one place where that is decided.

use crate::detection::Detection;
use crate::process::Exit;
use belay_recorder::Blame;
use belay_recorder::control::ending;
use signal_hook::consts::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM,
    SIGTRAP, SIGUSR1, SIGUSR2,
};

/// What tells how a daemon came to its end: all that is known when its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// How it ended.
    pub exit: Exit,
    /// There is, or was, a mount.
    pub mounted: bool,
    /// The connection to the kernel is gone: the mount was taken away.
    pub disconnected: bool,
    /// Some daemon of this mount has come so far as to serve.
    pub served: bool,
    /// What the daemon's shim has noted of its end, see [`ending`].
    pub noted: u32,
    /// The user says that this daemon ends by itself where it is to end.
    pub ends_itself: bool,
    /// Belay was asked to stop.
    pub stopping: bool,
}

impl Evidence {
    /// Whether the daemon has begun to unmount, and nobody is known to have asked for it: it gave
    /// up by itself, as one does that cannot reach its server, or has lost it.
    pub fn gave_up(&self) -> bool {
        const WISHES: u32 = ending::ASKED | ending::UNSEEN;
        self.served
            && !self.ends_itself
            && self.noted & ending::UNMOUNTS != 0
            && self.noted & WISHES == 0
    }
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
pub fn decide(evidence: Evidence) -> Verdict {
    let code = evidence.exit.shell_code();
    if evidence.stopping {
        // Whoever asks for the end does not want to hear that a signal brought it about.
        let code = if matches!(evidence.exit, Exit::Code(_)) { code } else { 0 };
        return Verdict::Clean { code };
    }
    if !evidence.mounted {
        let explain = matches!(evidence.exit, Exit::Code(0) | Exit::Unknown);
        return Verdict::NeverMounted { code: code.max(1), explain };
    }
    let unmounts = evidence.noted & ending::UNMOUNTS != 0;
    if evidence.disconnected || (unmounts && !evidence.gave_up()) {
        return Verdict::Clean { code };
    }
    Verdict::Crash
}

/// How a successor is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once, and in vain only so many times (`--max-crashes`).
    Anew,
    /// At once, and then again and again for some time (`--retry-for`): nothing is known of why the
    /// last one did not come to serve.
    Again,
    /// After a pause, and again and again for some time: what the daemon needs is not there.
    Later,
}

/// What the end of a life says of the next start. `ready`: it had come so far as to serve.
pub fn next(ready: bool, worth: Worth, exit: Exit, detection: &Detection) -> Next {
    match detection {
        Detection::Requested { .. }
        | Detection::Restart
        | Detection::Takeover
        | Detection::Checkpoint => Next::Anew,
        Detection::NotStarted { .. } | Detection::StartTimeout | Detection::Unheld { .. } => {
            Next::Later
        }
        Detection::GaveUp if ready && worth != Worth::Served => Next::Later,
        _ if ready => Next::Anew,
        // Somebody has killed it; the kernel, for want of memory, perhaps.
        _ if matches!(exit, Exit::Signal(SIGKILL) | Exit::Unknown) => Next::Again,
        _ => Next::Later,
    }
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

/// What a death says of the request that the daemon had alone. `from_outside`: whether somebody
/// else sent the signal, if that is known.
///
/// What came from outside counts for nothing. Nobody tells who sent a signal that no handler has
/// seen; but the kernel sends some of them never, or leaves a trace, so that it can be known even
/// so, see [`NEVER_ITS_OWN`].
pub fn blame(exit: Exit, detection: &Detection, from_outside: Option<bool>) -> Blame {
    match detection {
        Detection::Hang { .. } => Blame::Hang,
        Detection::Memory { .. }
        | Detection::Recorder { .. }
        | Detection::StartTimeout
        | Detection::Violation { .. } => Blame::Own,
        Detection::NotStarted { .. }
        | Detection::Stuck { .. }
        | Detection::Unheld { .. }
        | Detection::GaveUp
        | Detection::Requested { .. }
        | Detection::Restart
        | Detection::Checkpoint => Blame::Outside,
        Detection::Takeover => Blame::Unknown,
        Detection::Death => match exit {
            Exit::Code(_) => Blame::Own,
            Exit::Signal(_) if from_outside == Some(true) => Blame::Outside,
            Exit::Signal(signal) if from_outside == Some(false) || OWN.contains(&signal) => {
                Blame::Own
            }
            Exit::Signal(signal) if NEVER_ITS_OWN.contains(&signal) => Blame::Outside,
            // SIGKILL may be the kernel's, for want of memory: then it may be the daemon's own
            // doing.
            Exit::Signal(_) | Exit::Unknown => Blame::Unknown,
        },
    }
}

/// Signals by which the kernel does not answer anything that a program does: what did not send them
/// to itself, which its shim tells, has them from somebody else.
const NEVER_ITS_OWN: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

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

    const ALIVE: Evidence = Evidence {
        exit: Exit::Code(0),
        mounted: true,
        disconnected: false,
        served: true,
        noted: 0,
        ends_itself: false,
        stopping: false,
    };

    #[test]
    fn with_the_mount_in_place_any_end_is_a_crash() {
        for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(9), Exit::Signal(15), Exit::Unknown]
        {
            assert_eq!(decide(Evidence { exit, ..ALIVE }), Verdict::Crash);
        }
    }

    #[test]
    fn an_unmount_is_a_clean_end_with_the_daemons_code() {
        let gone = Evidence { disconnected: true, exit: Exit::Code(7), ..ALIVE };
        assert_eq!(decide(gone), Verdict::Clean { code: 7 });
        let noted = ending::UNMOUNTS | ending::ASKED;
        let asked = Evidence { noted, exit: Exit::Signal(11), ..ALIVE };
        assert_eq!(decide(asked), Verdict::Clean { code: 139 });
    }

    #[test]
    fn an_unmount_that_nobody_asked_for_is_no_clean_end() {
        let alone = Evidence { noted: ending::UNMOUNTS, exit: Exit::Code(0), ..ALIVE };
        assert!(alone.gave_up());
        assert_eq!(decide(alone), Verdict::Crash);
        // Whose signals are not seen has the benefit of the doubt; so has one that ends by itself
        // by design.
        let unseen = Evidence { noted: ending::UNMOUNTS | ending::UNSEEN, ..alone };
        assert_eq!(decide(unseen), Verdict::Clean { code: 0 });
        assert_eq!(decide(Evidence { ends_itself: true, ..alone }), Verdict::Clean { code: 0 });
        // A first start that fails is not made again, whoever unmounts.
        let first = Evidence { served: false, exit: Exit::Code(1), ..alone };
        assert_eq!(decide(first), Verdict::Clean { code: 1 });
        // Asked, and not yet unmounting: the mount is in place.
        assert_eq!(decide(Evidence { noted: ending::ASKED, ..alone }), Verdict::Crash);
    }

    #[test]
    fn starts_that_fail_are_waited_for_and_not_counted() {
        let (death, alone) = (&Detection::Death, &Detection::GaveUp);
        let (nothing, failed) = (Worth::Nothing, Exit::Code(1));
        assert_eq!(next(false, nothing, failed, alone), Next::Later);
        assert_eq!(next(false, nothing, Exit::Code(0), death), Next::Later);
        assert_eq!(next(false, nothing, Exit::Signal(11), death), Next::Later);
        assert_eq!(next(false, nothing, Exit::Signal(9), death), Next::Again);
        assert_eq!(next(false, nothing, Exit::Signal(9), &Detection::StartTimeout), Next::Later);
        // One that served is replaced at once, whatever it died of.
        assert_eq!(next(true, Worth::Served, failed, alone), Next::Anew);
        assert_eq!(next(true, nothing, failed, death), Next::Anew);
        // One that gave up without having served has the same trouble as one that did not come so
        // far.
        assert_eq!(next(true, Worth::Idle, Exit::Code(0), alone), Next::Later);
        assert_eq!(next(false, nothing, failed, &Detection::Takeover), Next::Anew);
    }

    #[test]
    fn a_daemon_that_never_mounts_is_not_started_again() {
        let none = Evidence { mounted: false, disconnected: true, ..ALIVE };
        assert_eq!(decide(none), Verdict::NeverMounted { code: 1, explain: true });
        let failed = Evidence { exit: Exit::Code(4), ..none };
        assert_eq!(decide(failed), Verdict::NeverMounted { code: 4, explain: false });
        let killed = Evidence { exit: Exit::Signal(6), ..none };
        assert_eq!(decide(killed), Verdict::NeverMounted { code: 134, explain: false });
    }

    #[test]
    fn the_wish_to_stop_makes_any_end_clean() {
        let killed = Evidence { stopping: true, exit: Exit::Signal(15), ..ALIVE };
        assert_eq!(decide(killed), Verdict::Clean { code: 0 });
        let failed = Evidence { stopping: true, exit: Exit::Code(2), ..ALIVE };
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
        let death = |signal, outside| blame(Exit::Signal(signal), &Detection::Death, outside);
        for signal in [4, 5, 6, 7, 8, 11, 31] {
            assert_eq!(death(signal, None), Blame::Own, "signal {signal}");
        }
        for signal in [1, 2, 3, 10, 12, 15] {
            assert_eq!(death(signal, None), Blame::Outside, "signal {signal}");
        }
        // The kernel's, for want of memory or time, or because a pipe is broken.
        for signal in [9, 13, 24, 25] {
            assert_eq!(death(signal, None), Blame::Unknown, "signal {signal}");
        }
        for signal in [1, 6, 9, 11, 13, 15] {
            assert_eq!(death(signal, Some(true)), Blame::Outside, "signal {signal}");
            assert_eq!(death(signal, Some(false)), Blame::Own, "signal {signal}");
        }
        let death = |exit| blame(exit, &Detection::Death, None);
        assert_eq!(death(Exit::Code(0)), Blame::Own);
        assert_eq!(death(Exit::Code(3)), Blame::Own);
        assert_eq!(death(Exit::Unknown), Blame::Unknown);
        let killed = Exit::Signal(9);
        let hang = Detection::Hang { request: String::new() };
        assert_eq!(blame(killed, &hang, None), Blame::Hang);
        assert_eq!(blame(killed, &Detection::Memory { bytes: 2, limit: 1 }, None), Blame::Own);
        let touched = Detection::Recorder { bytes: 2, on_record: 1 };
        assert_eq!(blame(killed, &touched, None), Blame::Own);
        let asked = Detection::Requested { signal: "SIGSEGV".into() };
        for planned in [asked, Detection::Restart, Detection::Checkpoint] {
            assert_eq!(blame(Exit::Signal(11), &planned, None), Blame::Outside);
        }
        assert_eq!(blame(Exit::Signal(11), &Detection::Takeover, None), Blame::Unknown);
    }
}
