//! What a tracer is asked for, and what it says in the end.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use belay_wire::Opcode;
use serde::{Deserialize, Serialize};

/// By what a request, or another piece of work, is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// A request of the kernel's, by the system calls of the thread that serves it.
    #[default]
    Calls,
    /// A request as the daemon sees it, by the functions that it calls instead of the C library's:
    /// those of a library that was loaded before that. Its effects are all accesses to files, also
    /// if no system call comes of them.
    Library {
        /// The file name of the library.
        name: String,
        /// Whether a request is meant that the library has made by itself.
        injected: bool,
    },
    /// No request, but what a process does to these files, by its system calls: from the first on
    /// until it writes to the FUSE device.
    Files(Vec<PathBuf>),
}

/// Which request is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// One of these opcodes.
    pub opcodes: Vec<Opcode>,
    /// Bytes that the message must contain behind its header: a name, say.
    pub contains: Option<Vec<u8>>,
    /// How many such requests are let through before.
    pub skip: u32,
    /// How it is followed.
    pub scope: Scope,
    /// A process that is killed together with the one that is followed.
    pub company: Option<u32>,
}

impl Target {
    /// The first request with one of these opcodes.
    #[must_use]
    pub fn any(opcodes: &[Opcode]) -> Self {
        Self { opcodes: opcodes.to_vec(), ..Self::default() }
    }

    /// Only if this is in it.
    #[must_use]
    pub fn containing(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.contains = Some(bytes.into());
        self
    }

    /// Followed in this way.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }
}

/// A point in the life of a request. Effects are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The daemon has the request and has not run an instruction since.
    Received,
    /// The call that makes this effect has been entered and does nothing any more.
    BeforeEffect(u32),
    /// The call has been made; the thread has not run an instruction since.
    AfterEffect(u32),
    /// The reply is ready and is not written any more.
    BeforeReply,
    /// The kernel has the reply; the thread has not run an instruction since.
    AfterReply,
}

impl Point {
    /// All points of a request with so many effects, in order.
    #[must_use]
    pub fn all(effects: u32) -> Vec<Self> {
        let mut points = vec![Self::Received];
        points.extend((1..=effects).flat_map(|k| [Self::BeforeEffect(k), Self::AfterEffect(k)]));
        points.extend([Self::BeforeReply, Self::AfterReply]);
        points
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received => f.pad("received"),
            Self::BeforeEffect(k) => f.pad(&format!("before-{k}")),
            Self::AfterEffect(k) => f.pad(&format!("after-{k}")),
            Self::BeforeReply => f.pad("before-reply"),
            Self::AfterReply => f.pad("after-reply"),
        }
    }
}

impl FromStr for Point {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let number = |digits: &str| -> anyhow::Result<u32> {
            digits.parse().with_context(|| format!("{digits:?} is no number of an effect"))
        };
        Ok(match text.split_once('-') {
            None if text == "received" => Self::Received,
            Some(("before", "reply")) => Self::BeforeReply,
            Some(("after", "reply")) => Self::AfterReply,
            Some(("before", digits)) => Self::BeforeEffect(number(digits)?),
            Some(("after", digits)) => Self::AfterEffect(number(digits)?),
            _ => bail!(
                "unknown point {text:?}: there are received, before-N, after-N, before-reply, after-reply"
            ),
        })
    }
}

/// What the daemon dies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum FaultSignal {
    /// A wild access to memory by the thread that serves the request; the daemon's own handler
    /// runs, if it has one.
    Segv,
    /// An assertion that has failed in the thread that serves the request.
    Abrt,
    /// An end from outside, which nothing can catch.
    Kill,
}

impl fmt::Display for FaultSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Segv => "SEGV",
            Self::Abrt => "ABRT",
            Self::Kill => "KILL",
        })
    }
}

impl FromStr for FaultSignal {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let upper = text.to_ascii_uppercase();
        match upper.strip_prefix("SIG").unwrap_or(&upper) {
            "SEGV" => Ok(Self::Segv),
            "ABRT" => Ok(Self::Abrt),
            "KILL" => Ok(Self::Kill),
            _ => bail!("unknown signal {text:?}: use SEGV, ABRT or KILL"),
        }
    }
}

/// One crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub point: Point,
    /// Of what.
    pub signal: FaultSignal,
}

/// What to watch for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The request.
    pub target: Target,
    /// The crash; without one the request is only observed.
    pub fault: Option<Fault>,
}

/// A system call with an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Its name.
    pub call: Cow<'static, str>,
    /// What it returned (an error as a negative number); nothing if it was not made or not seen to
    /// end.
    pub result: Option<i64>,
}

/// A request that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Its opcode's name.
    pub opcode: String,
    /// The kernel's number for it.
    pub unique: u64,
    /// The node it is about, as the kernel numbers it.
    pub node: u64,
    /// Calls with effects, in order.
    pub effects: Vec<Effect>,
    /// Whether the reply was written.
    pub replied: bool,
}

/// What a tracer saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The request, if it came.
    pub request: Option<Request>,
    /// Whether the fault was brought about.
    pub crashed: bool,
    /// How the process ended, if it was seen to: `signal SIGSEGV`, `exit 1`.
    pub end: Option<String>,
    /// The opcodes of all requests that were read meanwhile, in order.
    pub opcodes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_names() {
        let points = Point::all(2);
        assert_eq!(points.len(), 7);
        let names: Vec<_> = points.iter().map(ToString::to_string).collect();
        assert_eq!(
            names.join(" "),
            "received before-1 after-1 before-2 after-2 before-reply after-reply"
        );
        for (point, name) in points.iter().zip(names) {
            assert_eq!(name.parse::<Point>().unwrap(), *point);
        }
        for bad in ["", "before", "before-x", "reply", "after-"] {
            assert!(bad.parse::<Point>().is_err(), "{bad}");
        }
    }

    #[test]
    fn signals_have_names() {
        assert_eq!("sigsegv".parse::<FaultSignal>().unwrap(), FaultSignal::Segv);
        for signal in [FaultSignal::Segv, FaultSignal::Abrt, FaultSignal::Kill] {
            assert_eq!(signal.to_string().parse::<FaultSignal>().unwrap(), signal);
        }
        assert!("HUP".parse::<FaultSignal>().is_err());
    }
}
