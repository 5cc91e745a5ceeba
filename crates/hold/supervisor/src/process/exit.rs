//! How processes have ended, and what signals are called.

use super::pid_of;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};
use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal of this number killed it.
    Signal(i32),
    /// Nobody who could know is left.
    Unknown,
}

impl Exit {
    fn from_wait(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }

    /// As a shell would report it.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Unknown => 0,
        }
    }

    /// For people: `killed by SIGSEGV`, `exited with code 3`.
    pub fn show(self) -> String {
        match self {
            Self::Code(code) => format!("exited with code {code}"),
            Self::Signal(signal) => format!("killed by {}", signal_name(signal)),
            Self::Unknown => "ended, nobody saw how".to_owned(),
        }
    }

    /// The same behind a subject: it `was killed by SIGSEGV`, `exited with code 3`.
    pub fn told(self) -> String {
        let shown = self.show();
        if matches!(self, Self::Signal(_)) { format!("was {shown}") } else { shown }
    }
}

/// A process that was reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
}

/// A signal's name, `SIGSEGV`, or `signal 40`.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// The signal of a name (`KILL`, `sigkill`, `SIGKILL`) or number.
pub fn parse_signal(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return Signal::from_named_raw(number).map(Signal::as_raw);
    }
    let upper = text.to_ascii_uppercase();
    let wanted = upper.strip_prefix("SIG").unwrap_or(&upper);
    (1..32).find(|n| signal_name(*n).strip_prefix("SIG") == Some(wanted))
}

/// How child `pid` has ended; `None` if it has not, or is nobody's child here. Its status is left
/// for [`reap`]: taking it removes the process from /proc, and if its last thread is just doing the
/// same for itself and does not have the processor, the kernel tries again and again
/// (d_invalidate), for as long as the scheduler lets it: milliseconds in which nothing else
/// happens.
pub fn ended_child(pid: u32) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid_of(pid)?), options).ok()??;
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Takes the status of every child that has ended, of whatever process group.
pub fn reap() -> Vec<Exited> {
    let mut ended = Vec::new();
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let (Some(exit), Ok(pid)) =
            (Exit::from_wait(status), u32::try_from(pid.as_raw_nonzero().get()))
        {
            ended.push(Exited { pid, exit });
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_names_have_signals() {
        assert_eq!(parse_signal("KILL"), Some(9));
        assert_eq!(parse_signal("sigsegv"), Some(11));
        assert_eq!(parse_signal("6"), Some(6));
        assert_eq!(parse_signal("NOPE"), None);
        assert_eq!(parse_signal("-1"), None);
        assert_eq!(Exit::Signal(11).show(), "killed by SIGSEGV");
        assert_eq!(Exit::Signal(6).told(), "was killed by SIGABRT");
        assert_eq!(Exit::Code(3).told(), "exited with code 3");
        assert_eq!(Exit::Signal(9).shell_code(), 137);
    }
}
