//! Errors, each with what failed, on what, why, and what to do next.

use std::fmt;
use std::io;

/// Why keeper, supervisor or a command about them could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} {object}: {why}{}", Remedy(remedy))]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        object: String,
        /// Why it failed. Part of the message, so not a `source` besides.
        why: io::Error,
        /// What to do next; may be empty.
        remedy: &'static str,
    },
    /// Something is not as it must be.
    #[error("{what}: {why}{}", Remedy(remedy))]
    Refused {
        /// What is refused, or about what.
        what: String,
        /// Why.
        why: String,
        /// What to do next; may be empty.
        remedy: String,
    },
}

/// Whether a machine may lack that for a moment only: processes, descriptors, memory, room. It is
/// waited for by time.
pub fn passes(error: &io::Error) -> bool {
    use rustix::io::Errno;
    const LACKS: [Errno; 8] = [
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::TXTBSY,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::INTR,
    ];
    error
        .raw_os_error()
        .is_some_and(|number| LACKS.iter().any(|errno| errno.raw_os_error() == number))
}

/// A remedy as the last part of a sentence.
struct Remedy<'a, T>(&'a T);

impl<T: AsRef<str>> fmt::Display for Remedy<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_ref() {
            "" => Ok(()),
            text => write!(f, "; {text}"),
        }
    }
}

impl Error {
    /// Whether the machine may lack what it takes for a moment only.
    pub fn passes(&self) -> bool {
        matches!(self, Self::System { why, .. } if passes(why))
    }

    /// The error of the system call that failed, for those who ask for its number.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::System { why, .. } => why,
            Self::Refused { .. } => io::Error::other(self),
        }
    }

    /// An error made of a failed system call.
    pub fn system(
        action: &'static str,
        object: impl Into<String>,
        why: impl Into<io::Error>,
        remedy: &'static str,
    ) -> Self {
        let why = why.into();
        // What is wrong with the machine is wrong with any object.
        let remedy = match why.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MFILE) => "raise the limit of open files: ulimit -n 20000",
            Some(rustix::io::Errno::NFILE) => "raise the limit of open files: sysctl fs.file-max",
            _ => remedy,
        };
        Self::System { action, object: object.into(), why, remedy }
    }

    /// An error made of a finding.
    pub fn refused(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Refused { what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}

/// The result of a fallible function here.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_on_what_why_and_what_next() {
        let error = Error::system(
            "open",
            "/dev/fuse",
            io::Error::from_raw_os_error(2),
            "load the fuse module: modprobe fuse",
        );
        let text = error.to_string();
        assert!(text.starts_with("cannot open /dev/fuse: No such file"), "{text}");
        assert!(text.ends_with("; load the fuse module: modprobe fuse"), "{text}");
        assert_eq!(Error::refused("a", "b", "").to_string(), "a: b");
    }
}
