//! Looks at requests that nobody goes on with.

use crate::inflight::{Ages, Requests};
use crate::silence::was_held_up;

/// Since when something is so while counters stand still, and these counters.
#[derive(Debug)]
struct Still<C>(Option<(u64, C)>);

impl<C: PartialEq> Still<C> {
    /// For how long it has been so; `None` if it is not.
    fn look(&mut self, is_so: bool, counted: C, now: u64) -> Option<u64> {
        if !is_so {
            self.0 = None;
            return None;
        }
        let since = match &self.0 {
            Some((since, before)) if *before == counted => *since,
            _ => now,
        };
        self.0 = Some((since, counted));
        Some(now.saturating_sub(since))
    }
}

/// What was seen of a daemon that may hang.
#[derive(Debug)]
pub(crate) struct Hang {
    /// When all of it was looked at last.
    looked: u64,
    ages: Ages,
    /// Nobody has read the device though there was something; the counter of requests.
    unread: Still<u64>,
    /// The daemon has had a request that nobody knows of; the counters of what it was given.
    unknown: Still<(u64, u64)>,
}

impl Default for Hang {
    fn default() -> Self {
        Self { looked: 0, ages: Ages::default(), unread: Still(None), unknown: Still(None) }
    }
}

impl Hang {
    /// Another daemon has all the time again.
    pub fn clear(&mut self) {
        self.ages.clear();
        (self.unread, self.unknown) = (Still(None), Still(None));
    }

    /// All of it is looked at `now`. If that comes late, belay was stopped or held up, and the
    /// daemon may have been as well.
    pub fn begin(&mut self, now: u64) {
        if was_held_up(self.looked, now) {
            self.clear();
        }
        self.looked = now;
    }

    /// The oldest request in flight, see [`Ages::oldest_in_flight`].
    pub fn oldest(&mut self, requests: Requests<'_>, alone: Option<u32>) -> Option<(String, u64)> {
        self.ages.oldest_in_flight(requests, alone)
    }

    /// For how long the device has had something to read, which `requests` requests were read
    /// before.
    pub fn unread_for(&mut self, is_so: bool, requests: u64, now: u64) -> Option<u64> {
        self.unread.look(is_so, requests, now)
    }

    /// For how long there has been a request that nobody knows of, while no other one was begun
    /// with. `counted`: those that were.
    pub fn unknown_for(&mut self, is_so: bool, counted: (u64, u64), now: u64) -> Option<u64> {
        self.unknown.look(is_so, counted, now)
    }
}
