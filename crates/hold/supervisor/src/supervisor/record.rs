//! How much memory the recorder takes. A daemon maps all of it, so its mere touch makes it grow,
//! and what has grown stays when that daemon has gone, counted by no limit of its own.
//!
//! The rule: what the recorder takes is what is on record, and a bounded rest. Who is the cause of
//! more is killed, and before the next one starts, all that nothing on record lies in is given
//! back. What is on record is what the recorder itself says, so that has a limit too
//! (`--recorder-limit`): a mount that needs more is given up.

use super::Supervisor;
use super::parts::deadlines::Due;
use crate::clock;
use crate::config::RECORDER_SLACK;
use crate::detection::Detection;
use crate::text;
use belay_effects::Area;
use belay_recorder::Store;
use belay_recorder::control::Options;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use std::ops::Range;
use std::time::Duration;

impl Supervisor {
    /// Looks, as it is time to; a daemon that takes too much is killed.
    ///
    /// The looks come at the start of a daemon (what the last one has died of may come at once),
    /// after 1/16 s, 1/8 s and so on, then each second. A look is one system call, and no message
    /// stands for it: a daemon that asks for nothing may touch as well.
    pub(super) fn check_record(&mut self, now: u64) {
        self.deadlines.set(Due::Look, now.saturating_add(self.looks.record.next()));
        if self.book.stop.is_some() || self.is_being_killed() {
            return;
        }
        let bytes = self.record_bytes();
        if bytes <= RECORDER_SLACK {
            return;
        }
        let on_record = self.on_record(&self.spare_record());
        if bytes <= on_record.saturating_add(RECORDER_SLACK).min(self.config.recorder_limit) {
            return;
        }
        if self.kill_daemon() {
            self.daemon.is_to_die(Detection::Recorder { bytes, on_record }, now);
        }
    }

    /// Gives back what a dead daemon has touched and nothing on record lies in, if that is much; no
    /// other daemon may have been started. Gives why the mount cannot go on, if what is left is too
    /// much.
    pub(super) fn trim_record(&self) -> Option<String> {
        let before = self.record_bytes();
        if before <= RECORDER_SLACK {
            return None;
        }
        let spare = self.spare_record();
        if before > self.on_record(&spare).saturating_add(RECORDER_SLACK) {
            let begin = clock::now();
            for range in spare {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (at, length) = (range.start * 8, range.len() * 8);
                if let Err(error) = fallocate(&self.fds.recorder, how, at as u64, length as u64) {
                    tracing::warn!("cannot give back memory of the recorder: {error}");
                    break;
                }
            }
            tracing::warn!(
                "the recorder took {}; {} of it held no records and were given back ({})",
                text::bytes(before),
                text::bytes(before.saturating_sub(self.record_bytes())),
                text::span(Duration::from_nanos(clock::now().saturating_sub(begin)))
            );
        }
        let (bytes, limit) = (self.record_bytes(), self.config.recorder_limit);
        (bytes > limit).then(|| {
            format!(
                "what is on record takes {} MiB of memory, and may take {} MiB (--recorder-limit)",
                bytes >> 20,
                limit >> 20
            )
        })
    }

    /// Memory that the recorder takes, in bytes.
    fn record_bytes(&self) -> u64 {
        let blocks = fstat(&self.fds.recorder).map_or(0, |stat| stat.st_blocks);
        u64::try_from(blocks).unwrap_or(0).saturating_mul(512)
    }

    /// The most that what is on record can take, if these of its words are spare.
    fn on_record(&self, spare: &[Range<usize>]) -> u64 {
        let spare = spare.iter().fold(0, |sum: usize, range| sum.saturating_add(range.len()));
        (self.recorder.layout().words.saturating_sub(spare) as u64).saturating_mul(8)
    }

    /// The words that nothing on record lies in. They are found by reading the file, which fills no
    /// page of it.
    fn spare_record(&self) -> Vec<Range<usize>> {
        let view = self.requests().view();
        let store = Store::new(view, self.recorder.layout());
        let area = Area::new(&view, self.recorder.layout());
        let mut spare = store.spare(self.options().contains(Options::NO_RESEND));
        spare.extend(store.spare_of_logs(|slot| area.log(slot).wanted()));
        if !self.has_epochs() {
            spare.push(self.recorder.layout().epochs..self.recorder.layout().words);
        }
        spare
    }
}
