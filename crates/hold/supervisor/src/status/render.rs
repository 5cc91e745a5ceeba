//! The status for people.

use super::{State, Status, Wait};
use crate::text::{self, count};
use std::fmt::Write as _;
use std::time::Duration;

impl Status {
    /// The status for people, in some lines.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.render_to(&mut out);
        out
    }

    fn render_to(&self, out: &mut String) -> std::fmt::Result {
        let shown = self.shown();
        let place = if shown.is_empty() { "(not mounted)" } else { &shown };
        let b = &self.blackout_us;
        let r = &self.requests;
        let pid = self.daemon.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let uptime = span(self.uptime_seconds);
        writeln!(out, "{place}")?;
        writeln!(out, "  state       {}, generation {}", self.state.name(), self.generation)?;
        // A restart that was asked for is no crash to people.
        let crashes = self.crashes.saturating_sub(self.restarts);
        let planned = self.planned.saturating_sub(self.restarts);
        write!(out, "  crashes     {crashes} ({planned} asked for)")?;
        match self.restarts {
            0 => writeln!(out)?,
            restarts => writeln!(out, ", besides {}", count(restarts, "restart"))?,
        }
        writeln!(
            out,
            "  blackout    median {} us, p99 {} us, max {} us, last {} us",
            b.median, b.p99, b.max, b.last
        )?;
        writeln!(
            out,
            "  requests    {} in flight, {} in all, {} reissued, {} reconciled, {} answered from \
             record, {} failed",
            r.in_flight, r.total, r.reissued, r.reconciled, r.recorded, r.failed
        )?;
        writeln!(
            out,
            "  restored    {}, {}, {}, {}",
            count(self.restored.nodes, "node"),
            count(self.restored.handles, "handle"),
            count(self.restored.locks, "lock"),
            count(self.restored.streams, "directory stream")
        )?;
        if self.restored.renumbered > 0 {
            writeln!(
                out,
                "  numbers     {} had other inode numbers, and were known by files in them",
                text::counted(self.restored.renumbered, "directory", "directories")
            )?;
        }
        writeln!(
            out,
            "  held        {}, {}",
            count(self.nodes_cached, "node"),
            count(self.open_handles, "open handle")
        )?;
        writeln!(out, "  daemon      {} (process {pid})", self.daemon.command)?;
        if let Some(exit) = self.daemon.exit {
            writeln!(out, "  last end    {}", exit.show())?;
        }
        writeln!(
            out,
            "  belay       supervisor {}, keeper {}, up {uptime}",
            self.supervisor.pid, self.keeper.pid
        )?;
        for one in &self.companions {
            let process = one.pid.map_or("no process".to_owned(), |pid| format!("process {pid}"));
            let again = text::counted(one.restarts, "restart", "restarts");
            let last = one.exit.map(|exit| format!("; the last one {}", exit.told()));
            let last = last.unwrap_or_default();
            writeln!(out, "  beside      {} ({process}), {again}{last}", one.role)?;
        }
        writeln!(
            out,
            "  policy      {} ({}), {}",
            self.policy,
            self.policy_reason,
            if self.resend { "kernel resends" } else { "belay keeps copies" }
        )?;
        let e = &self.effects;
        if self.policy == "journal" {
            writeln!(
                out,
                "  journal     {} replayed, {} probed, {} diverged, {} by unknown threads",
                count(e.replayed, "call"),
                e.probed,
                count(e.diverged, "request"),
                e.untagged + e.handed_over
            )?;
        }
        if self.policy == "transaction" {
            writeln!(
                out,
                "  image       {}, {} of them finished after a crash, {} too long",
                count(e.committed, "transaction"),
                e.finished,
                e.torn
            )?;
        }
        if let Some(image) = &self.image {
            writeln!(
                out,
                "  image       {} at checkpoint {}, epoch {} under way; journal {}, at start {}",
                image.path,
                image.committed,
                image.epoch,
                image.journal,
                image.at_start.name()
            )?;
        }
        if let Some(e) = &self.epoch {
            let last = e
                .last_commit_seconds
                .map_or_else(|| "none yet".to_owned(), |seconds| format!("{} ago", span(seconds)));
            writeln!(
                out,
                "  epoch       {} dirty, {} ({}) in the op-log; by {}, last commit {last}, {} failed",
                text::bytes(e.dirty_bytes),
                count(e.log_records, "request"),
                text::bytes(e.log_bytes),
                e.flush,
                e.failed
            )?;
        }
        if let Some(forward) = self.epoch.as_ref().and_then(|epoch| epoch.rolling_forward) {
            writeln!(
                out,
                "              rolling forward: {} of {}",
                forward.record,
                count(forward.of, "request")
            )?;
        }
        let failed = match self.reports_failed {
            0 => String::new(),
            n => format!(", {n} more could not be written"),
        };
        writeln!(out, "  reports     {} in {}{failed}", self.reports, self.report_dir)?;
        if let Some(log) = &self.log {
            writeln!(out, "  log         {log}")?;
        }
        match self.state {
            State::Dead => writeln!(
                out,
                "  DEAD        belay and the daemon were killed, and all requests fail: `belay stop {place}` takes the mount \
                 away; so does a new `belay run` there"
            )?,
            State::Unheld if self.daemon.pid.is_none() => writeln!(
                out,
                "  UNHELD      belay was killed, and no process is seen that serves the mount; what is asked of it may wait for \
                 ever: `belay stop {place}`, then `belay run`"
            )?,
            State::Unheld => writeln!(
                out,
                "  UNHELD      belay was killed; the daemon serves on, and its next crash ends the mount: start anew soon \
                 (`belay stop {place}`, then `belay run`)"
            )?,
            _ => {}
        }
        if let Some(wait) = &self.waiting {
            wait.render_to(out, place)?;
        }
        if let Some(stalled) = &self.stalled {
            stalled.render_to(out)?;
        }
        if let Some(read_only) = &self.read_only {
            writeln!(out, "  READ-ONLY   as at the last checkpoint: {}", read_only.reason)?;
            match &read_only.oplog {
                Some(path) => writeln!(
                    out,
                    "              {} in {path}: see `belay replay --help`",
                    text::acknowledged_since(read_only.operations)
                )?,
                None => writeln!(out, "              what was acknowledged since is not kept")?,
            }
        }
        for reason in &self.degraded_reasons {
            writeln!(out, "  DEGRADED    since {}: {}", reason.since, reason.what)?;
        }
        if self.degraded_unlisted > 0 {
            writeln!(out, "              and {} more", self.degraded_unlisted)?;
        }
        Ok(())
    }
}

fn span(seconds: u64) -> String {
    text::span(Duration::from_secs(seconds))
}

impl Wait {
    fn render_to(&self, out: &mut String, place: &str) -> std::fmt::Result {
        writeln!(out, "  WAITING     the daemon does not start: {}", self.reason)?;
        for line in &self.words {
            writeln!(out, "              it says: {line}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(out, "              {hint}")?;
        }
        let next = match self.next_seconds {
            Some(seconds) => format!("the next is in {}", span(seconds)),
            None => "the next is under way".to_owned(),
        };
        writeln!(
            out,
            "              {} failed in {}, {next}; gives up in {}; `belay restart {place}` tries at once",
            count(self.tries.into(), "start"),
            span(self.since_seconds),
            span(self.left_seconds)
        )
    }
}
