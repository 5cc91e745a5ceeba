//! What came of an operation, and how good that is.

use std::fmt;
use std::fmt::Write;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What an application got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What the operation says when it went well.
    Done(String),
    /// An error.
    Failed {
        /// Its number, if the kernel gave it.
        errno: Option<i32>,
        /// For people.
        text: String,
    },
    /// It did not end.
    Hung,
}

impl Outcome {
    /// What a call came to; nothing means that it did not end.
    pub fn of(result: Option<io::Result<String>>) -> Self {
        match result {
            Some(Ok(value)) => Self::Done(value),
            Some(Err(error)) => {
                Self::Failed { errno: error.raw_os_error(), text: error.to_string() }
            }
            None => Self::Hung,
        }
    }

    /// How good that is, compared with what it should be.
    #[must_use]
    pub fn judge(&self, expected: &Self) -> Application {
        let dead = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
        match self {
            _ if self == expected => Application::Ok,
            Self::Failed { errno: Some(errno), .. } if dead.contains(errno) => Application::Aborted,
            _ => Application::Wrong,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(value) => f.write_str(value),
            Self::Failed { text, .. } => f.write_str(text),
            Self::Hung => f.write_str("it did not end"),
        }
    }
}

/// What a crash was for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Application {
    /// Nothing.
    Ok,
    /// The error of a file system that has gone.
    Aborted,
    /// Another error, a wrong result, or waiting without end.
    Wrong,
}

/// The three judgements on an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// What it was for the application, ...
    pub application: Application,
    /// ... that is, what the operation came to, ...
    pub outcome: String,
    /// ... and what it should have come to.
    pub expected: String,
    /// Whether the tree is as it is without a crash, ...
    pub consistent: bool,
    /// ... or at least nobody could look at it, so that nothing is known against it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// What was not as it should be.
    pub differences: String,
    /// Whether the mount serves.
    pub usable: bool,
    /// Why it could not be used.
    pub trouble: String,
}

impl Judged {
    /// Whether nobody could tell.
    #[must_use]
    pub fn is_all_right(&self) -> bool {
        self.application == Application::Ok && self.consistent && self.usable
    }

    /// What is wrong, each on lines of its own after a line break; empty if nothing is.
    #[must_use]
    pub fn account(&self) -> String {
        let mut text = String::new();
        if self.application != Application::Ok {
            let _ = write!(text, "\n  application: {}; expected: {}", self.outcome, self.expected);
        }
        if !self.consistent {
            let _ =
                write!(text, "\n  tree: {}", self.differences.trim_end().replace('\n', "\n    "));
        }
        if !self.usable {
            let _ = write!(text, "\n  not usable: {}", self.trouble);
        }
        text
    }

    /// The first thing that is wrong, in a line; empty if nothing is.
    #[must_use]
    pub fn reason(&self) -> String {
        let first = |text: &str| text.trim().lines().next().unwrap_or_default().to_owned();
        match self {
            _ if self.application != Application::Ok => {
                format!(
                    "the application got: {}; expected: {}",
                    first(&self.outcome),
                    self.expected
                )
            }
            _ if !self.consistent => {
                let mut lines = self.differences.trim().lines();
                let (one, two) = (lines.next().unwrap_or_default(), lines.next());
                // A heading says nothing by itself.
                let two = two.filter(|_| one.ends_with(':')).unwrap_or_default().trim();
                format!("the tree differs: {one} {two}").trim_end().to_owned()
            }
            _ if !self.usable => format!("the mount cannot be used: {}", first(&self.trouble)),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_judged() {
        let of = |errno| Outcome::of(Some(Err(io::Error::from_raw_os_error(errno))));
        let done = Outcome::of(Some(Ok("done".to_owned())));
        assert_eq!(done.judge(&done), Application::Ok);
        assert_eq!(of(95).judge(&of(95)), Application::Ok);
        assert_eq!(of(103).judge(&done), Application::Aborted);
        assert_eq!(of(107).judge(&done), Application::Aborted);
        assert_eq!(of(17).judge(&done), Application::Wrong);
        assert_eq!(Outcome::of(None).judge(&done), Application::Wrong);
        assert_eq!(Outcome::Done("other".to_owned()).judge(&done), Application::Wrong);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let good = Judged {
            application: Application::Ok,
            outcome: "done".to_owned(),
            expected: "done".to_owned(),
            consistent: true,
            unseen: false,
            differences: String::new(),
            usable: true,
            trouble: String::new(),
        };
        assert!(good.is_all_right() && good.account().is_empty() && good.reason().is_empty());
        let differences = "new: only on found\nmore\n".to_owned();
        let torn = Judged { consistent: false, differences, ..good.clone() };
        assert!(!torn.is_all_right());
        assert_eq!(torn.reason(), "the tree differs: new: only on found");
        assert_eq!(torn.account(), "\n  tree: new: only on found\n    more");
        let differences = "new:\n  found: x\n  expected: y\n".to_owned();
        let other = Judged { consistent: false, differences, ..good.clone() };
        assert_eq!(other.reason(), "the tree differs: new: found: x");
        let told =
            Judged { application: Application::Wrong, outcome: "File exists".into(), ..torn };
        assert_eq!(told.reason(), "the application got: File exists; expected: done");
        let dead = Judged { usable: false, trouble: "it hangs".to_owned(), ..good };
        assert_eq!(dead.reason(), "the mount cannot be used: it hangs");
    }
}
