//! Looks at the daemon's process, which may be dead while it is there, or not end when it is
//! killed.

/// What was seen of the daemon's process. Of each: the process, and since when it is so.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessLooks {
    /// It is over.
    over: Option<(u32, u64)>,
    /// It was killed.
    killed: Option<(u32, u64)>,
    /// It has SIGKILL before it.
    unheard: Option<(u32, u64)>,
    /// It does not end: what is said of that.
    stays: Option<String>,
}

impl ProcessLooks {
    /// For how long process `pid` has been over; 0 if it is not.
    pub fn over_for(&mut self, pid: u32, is_so: bool, now: u64) -> u64 {
        age(&mut self.over, pid, is_so, now)
    }

    /// For how long it has been killed.
    pub fn killed_for(&mut self, pid: u32, is_so: bool, now: u64) -> u64 {
        age(&mut self.killed, pid, is_so, now)
    }

    /// For how long it has not acted on SIGKILL.
    pub fn unheard_for(&mut self, pid: u32, is_so: bool, now: u64) -> u64 {
        age(&mut self.unheard, pid, is_so, now)
    }

    /// The process that does not act on SIGKILL.
    pub fn unheard(&self) -> Option<u32> {
        self.unheard.map(|(pid, _)| pid)
    }

    /// It does not end, of which this is said.
    pub fn note_stays(&mut self, what: String) {
        self.stays = Some(what);
    }

    /// What is said of that.
    pub fn stays(&self) -> Option<&str> {
        self.stays.as_deref()
    }

    /// It has ended.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

/// For how long `pid` has been what it is now, which `seen` keeps.
fn age(seen: &mut Option<(u32, u64)>, pid: u32, is_so: bool, now: u64) -> u64 {
    let since = seen.filter(|(of, _)| *of == pid).map_or(now, |(_, since)| since);
    *seen = is_so.then_some((pid, since));
    if is_so { now.saturating_sub(since) } else { 0 }
}
