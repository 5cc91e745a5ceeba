//! What is due, and when.

use super::Supervisor;
use super::lifecycle::Event;
use super::parts::deadlines::Due;
use crate::clock::{self, SECOND};
use rustix::event::Timespec;

impl Supervisor {
    /// The time until something is due.
    pub(super) fn time_to_wait(&self) -> Timespec {
        let next = self.deadlines.next().unwrap_or(u64::MAX);
        let ns = next.saturating_sub(clock::now());
        Timespec {
            tv_sec: i64::try_from(ns / SECOND).unwrap_or(60),
            tv_nsec: i64::try_from(ns % SECOND).unwrap_or(0),
        }
    }

    /// Does what is due.
    pub(super) fn check_time(&mut self) {
        let now = clock::now();
        let mut last = None;
        while self.life.ended().is_none()
            && let Some(due) = self.deadlines.take_due(now, last)
        {
            self.act(due, now);
            last = Some(due);
        }
    }

    fn act(&mut self, due: Due, now: u64) {
        match due {
            Due::Conclusion => {
                self.conclude();
                self.pursue_stop();
            }
            Due::Launch => self.live(Event::StartIsDue),
            Due::Keeper => self.replace_keeper(),
            Due::StopStep => self.live(Event::StopIsDue(self.stop_input())),
            Due::Committer => {
                self.start_committer();
                self.look_at_commits();
            }
            Due::CommitLook => self.look_for_hanging_commit(now),
            Due::Checkpoint => self.ask_for_checkpoint(now),
            Due::Retiring => self.retiring_takes_too_long(now),
            Due::Words => self.check_words(now),
            Due::Nudge => self.nudge_in_time(now),
            Due::NudgeLook => self.end_vain_nudge(now),
            Due::Unheld => self.look_for_unheld(now),
            Due::Ready => self.check_start(now),
            Due::Place => self.look_for_mount(now),
            Due::Stray => self.look_for_stray(now),
            Due::Opened => self.look_at_opened(now),
            Due::Look => {
                self.check_record(now);
                self.look_at_process(now);
                self.look_for_retiring(now);
            }
            Due::Tick => self.tick(now),
            Due::Standby => self.start_standby(),
            // It only ends the wait: `pursue_unmount` comes at the end of each round.
            Due::Unmount => {}
            Due::Lines => self.serve_further_lines(),
        }
    }

    fn tick(&mut self, now: u64) {
        self.deadlines.set(Due::Tick, now + SECOND);
        if self.life.serves() && self.late.has_connections() {
            self.hold_connections(); // the daemon may have connected anew
        }
        self.look_for_progress();
        self.hear_companions();
        self.check_limits();
        self.look_for_unmount();
    }
}
