//! The control protocol: one JSON object a line, each request answered by one line.

use crate::error::{Error, Result};
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest line that either side accepts.
pub const MAX_LINE: usize = 64 << 10;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The status, at once.
    Status,
    /// Stop the daemon; answered when it is over.
    Stop,
    /// Send a signal to the daemon; answered when it has recovered.
    Crash {
        /// The signal's number.
        signal: i32,
    },
    /// Restart the daemon; answered when it has recovered.
    Restart,
    /// Make a checkpoint; answered when it is safe.
    Checkpoint,
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
    /// A checkpoint is on the image, durably.
    Safe {
        /// The epoch that it ended.
        epoch: u64,
    },
    /// Belay ends on this mount.
    Ended {
        /// Its exit code.
        code: i32,
    },
    /// It cannot be done.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

/// A connection to a supervisor.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the supervisor of the mount whose folder is `instance`.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(instance: &Path) -> Result<Self> {
        let stream = crate::instances::connect(instance)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer, at most for `limit`.
    ///
    /// # Errors
    /// If the supervisor dies or says nothing in time, or nothing that can be understood.
    pub fn ask(&mut self, ask: &Ask, limit: Option<Duration>) -> Result<Answer> {
        let lost = |error| {
            Error::system("ask", "the supervisor", error, "see `belay status`, then try again")
        };
        let mut line = serde_json::to_vec(ask)
            .map_err(|error| Error::refused("request", error.to_string(), ""))?;
        line.push(b'\n');
        let socket = self.stream.get_mut();
        socket.set_read_timeout(limit).map_err(lost)?;
        socket.write_all(&line).map_err(lost)?;
        let mut text = String::new();
        let n = self.stream.read_line(&mut text).map_err(|error| match (error.kind(), limit) {
            // What a time-out of a socket is called.
            (std::io::ErrorKind::WouldBlock, Some(limit)) => {
                let why = format!("it has not answered within {} s", limit.as_secs());
                Error::refused("the supervisor", why, "see `belay status`, then try again")
            }
            _ => lost(error),
        })?;
        if n == 0 {
            return Err(lost(std::io::ErrorKind::ConnectionReset.into()));
        }
        serde_json::from_str(&text).map_err(|error| {
            Error::refused(
                "answer of the supervisor",
                error.to_string(),
                "use the same version of belay for both",
            )
        })
    }
}
