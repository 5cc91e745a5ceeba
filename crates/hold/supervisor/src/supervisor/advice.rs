//! First starts that come to nothing: what belay knows of why, beside what the daemon says itself.

use super::Supervisor;
use crate::allow_other;
use crate::fusermount::may_mount;
use crate::process::Exit;

/// How the line begins in which the shim says that it has ended what would not be held.
const NOT_HELD: &str = "belay: what was started is not the daemon";

impl Supervisor {
    /// The first daemon ended without a mount.
    pub(super) fn came_to_nothing(&mut self, exit: Exit, code: i32, explain: bool) {
        self.drain_stderr();
        let words = self.words.lines();
        if words.iter().any(|line| line.starts_with(NOT_HELD)) {
            // It was belay that ended it, and has said why.
            tracing::error!("{}: {}", self.config.command_line(), self.not_held());
            self.finish(code);
            return;
        }
        self.never_mounted(exit, code, explain);
        self.advise(&words);
    }

    /// The first daemon had mounted, and ended before anybody was served.
    pub(super) fn served_nobody(&mut self, exit: Exit) {
        self.drain_stderr();
        let words = self.words.lines();
        self.never_served(exit);
        self.advise(&words);
    }

    fn not_held(&self) -> String {
        match &self.config.doubt {
            Some(doubt) => format!("nothing is mounted. {doubt}"),
            None => "nothing is mounted, for the reason above".to_owned(),
        }
    }

    fn advise(&self, words: &[String]) {
        let command = self.config.command.iter().map(|word| &word.0);
        let asks = || allow_other::is_asked_for(command) && !allow_other::is_allowed();
        if let Some(hint) = allow_other::hint(words) {
            tracing::error!("{hint}");
        } else if !may_mount() && asks() {
            tracing::error!("{}: {}", allow_other::MISSING, allow_other::REMEDY);
        }
        if let Some(doubt) = &self.config.doubt {
            tracing::error!("{doubt}");
        }
    }
}
