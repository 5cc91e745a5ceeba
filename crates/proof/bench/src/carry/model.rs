//! What `belay-bench carry` writes.

use serde::{Deserialize, Serialize};

use crate::stats::Spread;

/// Results of `carry`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CarryRun {
    /// Messages in one sample.
    pub count: u32,
    /// Samples of each way.
    pub rounds: usize,
    /// One entry for each kind and length of message.
    pub cases: Vec<CarryCase>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// A daemon's reply to a READ, on its way to the device.
    Reply,
    /// The kernel's WRITE, on its way to the daemon.
    Request,
}

impl Direction {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Request => "request",
        }
    }

    /// Bytes before the data.
    pub const fn head(self) -> usize {
        match self {
            Self::Reply => 16,
            Self::Request => 80,
        }
    }
}

/// How a message is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Read into memory, and written from there.
    Copied,
    /// By splice(2), through a pipe.
    Spliced,
}

/// Messages of one kind and length.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CarryCase {
    /// What they are.
    pub direction: Direction,
    /// Bytes of data.
    pub bytes: usize,
    /// Microseconds a message, copied.
    pub copied_us: Spread,
    /// Microseconds a message, spliced.
    pub spliced_us: Spread,
    /// Spliced by copied, of pairs of samples.
    pub ratio: Spread,
    /// In how many pieces one arrives that was spliced.
    pub pieces: usize,
}
