//! How the end of a generation is noticed.

use serde::{Deserialize, Serialize};

/// How the end of a generation was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Detection {
    /// Its process ended.
    Death,
    /// Its process could not be started.
    NotStarted {
        /// Why.
        why: String,
    },
    /// It runs without belay's library, so nothing that it does can be held.
    Unheld {
        /// What is known of it.
        why: String,
    },
    /// It unmounted and ended, and nobody had asked it to.
    GaveUp,
    /// A request was in flight for too long.
    Hang {
        /// Which, and how long.
        request: String,
    },
    /// A process beside the daemon did not get on.
    Stuck {
        /// For how long, in milliseconds.
        silence_ms: u64,
    },
    /// It used too much memory.
    Memory {
        /// How much, in bytes.
        bytes: u64,
        /// How much it may use (`--memory-limit`).
        #[serde(default)]
        limit: u64,
    },
    /// The memory that it shares with belay took more than what is on record there.
    Recorder {
        /// How much, in bytes.
        bytes: u64,
        /// How much of that can be on record.
        on_record: u64,
    },
    /// A successor was not ready in time.
    StartTimeout,
    /// The user asked for a signal.
    Requested {
        /// Its name.
        signal: String,
    },
    /// A planned restart.
    Restart,
    /// Its end was the checkpoint of a daemon that writes what it holds only then.
    Checkpoint,
    /// A new supervisor found the daemon gone or half started.
    Takeover,
    /// It gave a reply that breaks the protocol, and was ended for that.
    Violation {
        /// What is wrong with the reply.
        rule: String,
        /// What it answers.
        request: String,
        /// How it begins.
        reply: String,
    },
}

impl Detection {
    /// From what a shim has put on record.
    pub fn violation(text: &[u8]) -> Self {
        // Whatever is there, the daemon may have written it.
        let plain = |line: Option<&str>| -> String {
            let text = line.unwrap_or_default().chars();
            text.map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        let text = String::from_utf8_lossy(text);
        let mut lines = text.splitn(3, '\n');
        let (rule, reply) = (plain(lines.next()), plain(lines.next()));
        Self::Violation { rule, reply, request: plain(lines.next()) }
    }
}
