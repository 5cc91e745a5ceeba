//! When the event loop acts without being told: one queue of deadlines.
//!
//! Each deadline is set where its cause arises, and dispatched in one place (`Supervisor::act`). It
//! is in the queue at most once, and leaves it when it is taken: whoever looks again and again sets
//! it again. A deadline whose cause has vanished is cancelled, or finds nothing to do.

use std::collections::BTreeMap;

/// What is due at some time. Of several that are due together, the one that stands first here comes
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A recovery that has come to its end is concluded.
    Conclusion,
    /// The next start.
    Launch,
    /// A new keeper, in the place of one that died.
    Keeper,
    /// The next step towards the end that was asked for.
    StopStep,
    /// Another try to start a committer.
    Committer,
    /// A look whether a commit hangs. Nothing announces that.
    CommitLook,
    /// The daemon is asked for a checkpoint, if one is called for.
    Checkpoint,
    /// The daemon was to end for a checkpoint, and has had its time.
    Retiring,
    /// The daemon's standard error is read though nobody listens to it.
    Words,
    /// A successor that should have begun is woken.
    Nudge,
    /// A look whether anybody takes what a nudge asks.
    NudgeLook,
    /// A look whether what was started has loaded the shim.
    Unheld,
    /// A daemon that was started is to be ready.
    Ready,
    /// A look for the mount in the mount table.
    Place,
    /// A look whether another program has mounted.
    Stray,
    /// A look at what the daemon has open.
    Opened,
    /// A look at the recorder's memory and the daemon's process. Nothing announces what may be
    /// found.
    Look,
    /// Limits that nothing announces, connections and the mount are looked at, each second.
    Tick,
    /// The process of the next generation is started.
    Standby,
    /// Another try to unmount, for which there was no thread.
    Unmount,
    /// Clients that have asked again before they were answered.
    Lines,
}

/// The queue. It has no clock: times are nanoseconds of whatever clock the caller has.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeMap<Due, u64>);

impl Deadlines {
    /// Sets `due` to the time `at`, whatever it was before.
    pub fn set(&mut self, due: Due, at: u64) {
        self.0.insert(due, at);
    }

    /// Sets `due` to the time `at` unless it is set already.
    pub fn set_first(&mut self, due: Due, at: u64) {
        self.0.entry(due).or_insert(at);
    }

    /// Takes `due` out of the queue.
    pub fn cancel(&mut self, due: Due) {
        self.0.remove(&due);
    }

    /// When that is due; `None` if it is not in the queue.
    pub fn at(&self, due: Due) -> Option<u64> {
        self.0.get(&due).copied()
    }

    /// The earliest time at which something is due.
    pub fn next(&self) -> Option<u64> {
        self.0.values().copied().min()
    }

    /// Takes the first that is due by `now` and stands behind `after`. A caller that hands in what
    /// it got last goes through the queue once, however often the work on one deadline sets the
    /// same again.
    pub fn take_due(&mut self, now: u64, after: Option<Due>) -> Option<Due> {
        let is_next = |due: Due| after.is_none_or(|after| due > after);
        let mut all = self.0.iter();
        let due = all.find_map(|(due, at)| (*at <= now && is_next(*due)).then_some(*due))?;
        self.0.remove(&due);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is due by `now`, in one round.
    fn round(queue: &mut Deadlines, now: u64) -> Vec<Due> {
        let mut taken: Vec<Due> = Vec::new();
        while let Some(due) = queue.take_due(now, taken.last().copied()) {
            taken.push(due);
        }
        taken
    }

    #[test]
    fn the_earliest_is_next() {
        let mut queue = Deadlines::default();
        assert_eq!(queue.next(), None);
        queue.set(Due::Tick, 30);
        queue.set(Due::Launch, 20);
        assert_eq!(queue.next(), Some(20));
        queue.cancel(Due::Launch);
        assert_eq!(queue.next(), Some(30));
        queue.cancel(Due::Launch);
        assert_eq!((queue.at(Due::Launch), queue.at(Due::Tick)), (None, Some(30)));
    }

    #[test]
    fn what_is_due_is_taken_once_in_its_order() {
        let mut queue = Deadlines::default();
        for (due, at) in [(Due::Lines, 0), (Due::Launch, 7), (Due::Conclusion, 9), (Due::Tick, 10)]
        {
            queue.set(due, at);
        }
        assert_eq!(round(&mut queue, 9), [Due::Conclusion, Due::Launch, Due::Lines]);
        assert_eq!(round(&mut queue, 9), []);
        assert_eq!(queue.next(), Some(10));
    }

    #[test]
    fn a_later_time_replaces_an_earlier_one_unless_the_first_is_to_stay() {
        let mut queue = Deadlines::default();
        queue.set(Due::Nudge, 5);
        queue.set_first(Due::Nudge, 3);
        assert_eq!(queue.at(Due::Nudge), Some(5));
        queue.set(Due::Nudge, 8);
        assert_eq!(round(&mut queue, 7), []);
        assert_eq!(round(&mut queue, 8), [Due::Nudge]);
        queue.set_first(Due::Nudge, 3);
        assert_eq!(queue.at(Due::Nudge), Some(3));
    }

    #[test]
    fn what_is_set_again_while_it_is_worked_on_waits_for_the_next_round() {
        let mut queue = Deadlines::default();
        queue.set(Due::Words, 0);
        let (mut last, mut taken) = (None, 0);
        while let Some(due) = queue.take_due(1, last) {
            last = Some(due);
            taken += 1;
            queue.set(Due::Words, 0);
            queue.set(Due::Conclusion, 0); // stands before
            queue.set(Due::Unmount, 0); // stands behind
        }
        assert_eq!(taken, 2);
        assert_eq!(round(&mut queue, 1), [Due::Conclusion, Due::Words, Due::Unmount]);
    }

    #[test]
    fn what_is_cancelled_by_work_on_another_is_not_done() {
        let mut queue = Deadlines::default();
        queue.set(Due::StopStep, 1);
        queue.set(Due::Launch, 1);
        assert_eq!(queue.take_due(1, None), Some(Due::Launch));
        queue.cancel(Due::StopStep);
        assert_eq!(queue.take_due(1, Some(Due::Launch)), None);
    }
}
