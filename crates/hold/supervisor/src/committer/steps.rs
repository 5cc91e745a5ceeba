//! What a commit is at: a step that does not come back is a disk that gives no answer.

use super::Failing;
use crate::clock;
use std::sync::{Arc, Mutex, PoisonError};

/// What a step asks for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The image.
    Image,
    /// Its journal.
    Journal,
}

/// A step that is under way.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Since when, CLOCK_MONOTONIC nanoseconds.
    since: u64,
    /// The same for people.
    wall_ms: u64,
    on: On,
}

/// The step that is under way, if there is one. The committer notes it, and the supervisor looks.
#[derive(Clone, Debug)]
pub struct Steps {
    image: String,
    journal: String,
    step: Arc<Mutex<Option<Step>>>,
}

impl Steps {
    /// None yet. The names are for people.
    pub fn new(image: String, journal: String) -> Self {
        Self { image, journal, step: Arc::default() }
    }

    /// One begins, and what came before has been answered.
    pub fn begin(&self, on: On) {
        let step = Step { since: clock::now(), wall_ms: clock::wall_ms(), on };
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }

    /// The last one has been answered.
    pub fn end(&self) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn step(&self) -> Option<Step> {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has given no answer for `limit` nanoseconds by `now`. Each further such time is another
    /// try, as those who have come meanwhile are to be told as well.
    pub fn hanging(&self, now: u64, limit: u64) -> Option<Failing> {
        let step = self.step()?;
        let times = now.saturating_sub(step.since) / limit.max(1);
        let name = match step.on {
            On::Image => &self.image,
            On::Journal => &self.journal,
        };
        (times > 0).then(|| Failing {
            since: step.since,
            tries: u32::try_from(times).unwrap_or(u32::MAX),
            why: format!("{name} has given no answer since {}", clock::rfc3339(step.wall_ms)),
            corrupt: false,
            hangs: true,
        })
    }

    /// When that is to be looked at next.
    pub fn next_look(&self, now: u64, limit: u64) -> Option<u64> {
        let (step, limit) = (self.step()?, limit.max(1));
        let times = now.saturating_sub(step.since) / limit;
        Some(step.since.saturating_add(limit.saturating_mul(times.saturating_add(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_come_back_hangs_and_one_that_gets_on_does_not() {
        let steps = Steps::new("image".to_owned(), "journal".to_owned());
        assert!(steps.hanging(clock::now(), 0).is_none() && steps.next_look(0, 10).is_none());
        steps.begin(On::Journal);
        let since = steps.step().expect("a step").since;
        assert!(steps.hanging(since + 9, 10).is_none());
        assert_eq!(steps.next_look(since + 9, 10), Some(since + 10));
        let hanging = steps.hanging(since + 10, 10).expect("it hangs");
        assert!(hanging.hangs && hanging.why.starts_with("journal has given no answer since "));
        assert_eq!((hanging.since, hanging.tries), (since, 1));
        // Whoever has come since then is told at the next multiple.
        assert_eq!(steps.next_look(since + 10, 10), Some(since + 20));
        assert_eq!(steps.hanging(since + 20, 10).expect("still").tries, 2);
        steps.begin(On::Image);
        let later = steps.step().expect("a step").since;
        assert!(steps.hanging(later + 9, 10).is_none(), "it has got on");
        assert!(steps.hanging(later + 10, 10).expect("it hangs").why.starts_with("image "));
        steps.end();
        assert!(steps.hanging(later + 10, 10).is_none());
    }
}
