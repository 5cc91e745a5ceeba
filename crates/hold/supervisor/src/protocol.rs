//! The control protocol: one JSON object a line, each request answered by one line.

use crate::error::{Error, Result};
use crate::status::Status;
use crate::text;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest line that a supervisor accepts.
pub const MAX_LINE: usize = 64 << 10;
/// Longest answer that is given, and read: a status shows the longest command line
/// (`keeper::LONGEST`), and makes up to five bytes of one of it.
pub const MAX_ANSWER: usize = 8 << 20;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The status, at once.
    Status,
    /// Unmount, and end; answered when it is over, or cannot be.
    Stop {
        /// What if somebody uses the mount.
        #[serde(default)]
        how: StopHow,
    },
    /// Send a signal to the daemon; answered when it has recovered.
    Crash {
        /// The signal's number.
        signal: i32,
    },
    /// Restart the daemon; answered when it has recovered.
    Restart,
    /// Make a checkpoint; answered when it is safe.
    Checkpoint,
    /// Say when the mount serves; answered at once if it does.
    Serving,
}

/// What becomes of a mount that is in use when it is to be stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopHow {
    /// It goes on: the wish is refused.
    #[default]
    Unused,
    /// Nobody finds it any more; who has files open is served to the end.
    Lazy,
    /// It ends, with errors for those who use it.
    Force,
}

/// What the supervisor answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The status.
    Status(Box<Status>),
    /// A recovery is complete.
    Recovered {
        /// The new generation.
        generation: u32,
        /// Its blackout in microseconds.
        blackout_us: u64,
    },
    /// The mount serves.
    Serving {
        /// Where, for people.
        mountpoint: String,
    },
    /// A checkpoint is on the image, durably.
    Safe {
        /// The epoch that it ended.
        epoch: u64,
    },
    /// Belay ends on this mount.
    Ended {
        /// Its exit code.
        code: i32,
        /// What has become of data that was acknowledged, if it is not all where it is to be.
        #[serde(default)]
        lost: Option<String>,
    },
    /// Nothing is mounted there any more, but what was is still in use, and served.
    Detached {
        /// `major:minor` of the file system, if that is known: its users are found by it.
        #[serde(default)]
        device: Option<String>,
    },
    /// The mount is in use, and goes on.
    InUse,
    /// It cannot be done.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

/// A connection to a supervisor.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// What has come of the next answer.
    heard: Vec<u8>,
}

impl Client {
    /// Connects to the supervisor of the mount whose folder is `instance`.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(instance: &Path) -> Result<Self> {
        let stream = crate::instances::connect(instance)?;
        Ok(Self { stream, heard: Vec::new() })
    }

    /// Asks, and waits for the answer, at most for `limit`.
    ///
    /// # Errors
    /// If the supervisor dies or says nothing in time, or nothing that can be understood.
    pub fn ask(&mut self, ask: &Ask, limit: Option<Duration>) -> Result<Answer> {
        self.send(ask)?;
        self.wait(limit)?.ok_or_else(|| {
            let limit = text::span(limit.unwrap_or_default());
            let why = format!("it has not answered within {limit}");
            Error::refused("the supervisor", why, "see `belay status`, then try again")
        })
    }

    /// Asks; [`Client::wait`] brings the answer.
    ///
    /// # Errors
    /// If the supervisor is gone.
    pub fn send(&mut self, ask: &Ask) -> Result<()> {
        let mut line = serde_json::to_vec(ask)
            .map_err(|error| Error::refused("request", error.to_string(), ""))?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(lost)
    }

    /// Waits for the answer, at most for `limit`. `None` if it has not come by then: it may come
    /// still.
    ///
    /// # Errors
    /// If the supervisor dies, or says nothing that can be understood.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<Option<Answer>> {
        // The limit is one for all of the answer: one that comes a byte at a time, or never ends,
        // is none.
        let end = limit.map(|limit| Instant::now() + limit);
        let mut buffer = [0; 4096];
        while !self.heard.ends_with(b"\n") {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(None);
            }
            self.stream.set_read_timeout(rest).map_err(lost)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(lost(ErrorKind::ConnectionReset.into())),
                Ok(n) => self.heard.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What a time-out of a socket is called.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(lost(error)),
            }
            if self.heard.len() > MAX_ANSWER {
                let why = format!("its answer has more than {MAX_ANSWER} bytes");
                return Err(Error::refused("the supervisor", why, "see `belay status`"));
            }
        }
        let text = std::mem::take(&mut self.heard);
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::refused(
                "answer of the supervisor",
                error.to_string(),
                "use the same version of belay for both",
            )
        })
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::system("ask", "the supervisor", error, "see `belay status`, then try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_late_is_heard() {
        let (stream, mut supervisor) = UnixStream::pair().expect("sockets");
        let mut client = Client { stream, heard: Vec::new() };
        client.send(&Ask::Stop { how: StopHow::Unused }).expect("asked");
        let soon = Some(Duration::from_millis(5));
        let ended = Answer::Ended { code: 1, lost: Some("all".to_owned()) };
        let mut line = serde_json::to_vec(&ended).expect("json");
        line.push(b'\n');
        for byte in line {
            assert_eq!(client.wait(soon).expect("it lives"), None);
            supervisor.write_all(&[byte]).expect("write");
        }
        assert_eq!(client.wait(soon).expect("it lives"), Some(ended));
        drop(supervisor);
        assert!(client.wait(soon).is_err());
    }
}
