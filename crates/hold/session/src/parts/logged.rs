//! The op-log, and what is kept for it: of requests that are not answered yet, and of nodes.

use belay_memory::Memory;
use belay_oplog::{Facts, NameChange, Oplog, Staged};
use std::collections::{HashMap, HashSet};

/// What is kept of a request that changes something until it is answered.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    staged: Option<Staged>,
    /// What followed its header, if that is longer than what the recorder keeps of it.
    pub(crate) body: Option<Box<[u8]>>,
    pub(crate) time: u64,
}

impl Begun {
    /// Whether its data are kept.
    pub(crate) fn has_data(&self) -> bool {
        self.staged.is_some()
    }
}

/// Nodes of which the log says where they are.
#[derive(Debug, Default)]
struct Placed(HashSet<u64, foldhash::fast::RandomState>);

impl Placed {
    fn note(&mut self, change: &NameChange<'_>) {
        // It may have other names, which the log need not know.
        self.0.remove(&change.before);
        if change.after != 0 {
            self.0.insert(change.after);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Logged<M> {
    /// What was acknowledged since the last checkpoint, under the policy `epoch`.
    log: Option<Oplog<M>>,
    placed: Placed,
    begun: HashMap<u64, Begun, foldhash::fast::RandomState>,
    /// A request is being answered without the daemon.
    answering: bool,
    /// CLOCK_REALTIME, see `Session::set_time`.
    time: u64,
}

impl<M> Default for Logged<M> {
    fn default() -> Self {
        Self {
            log: None,
            placed: Placed::default(),
            begun: HashMap::default(),
            answering: false,
            time: 0,
        }
    }
}

impl<M: Memory> Logged<M> {
    /// Whether a log is kept.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// The log.
    #[inline]
    pub(crate) fn log(&self) -> Option<&Oplog<M>> {
        self.log.as_ref()
    }

    /// The log, where the roll-forward cuts it.
    pub(crate) fn log_mut(&mut self) -> Option<&mut Oplog<M>> {
        self.log.as_mut()
    }

    /// Keeps this log from now on.
    pub(crate) fn keep(&mut self, log: Oplog<M>) {
        self.log = Some(log);
    }

    /// The log begins anew, for this epoch.
    pub(crate) fn restart(&mut self, epoch: u64) {
        if let Some(log) = &mut self.log {
            log.restart(epoch);
            self.placed = Placed::default();
        }
    }

    /// What was said last of the time.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// It is so late now.
    pub(crate) fn set_time(&mut self, time: u64) {
        self.time = time;
    }

    /// Whether a request is being answered without the daemon, so that nothing of it goes on
    /// record.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering
    }

    /// One is, from now on, or none.
    pub(crate) fn set_answering(&mut self, answering: bool) {
        self.answering = answering;
    }

    /// Whether the log says where the node with this key is.
    pub(crate) fn has_placed(&self, key: u64) -> bool {
        self.placed.0.contains(&key)
    }

    /// The log says what became of a name.
    pub(crate) fn note_name(&mut self, change: &NameChange<'_>) {
        self.placed.note(change);
    }

    /// Whether something is kept of a request that is not answered.
    pub(crate) fn has_begun(&self, unique: u64) -> bool {
        self.begun.contains_key(&unique)
    }

    /// A request that changes something goes to the daemon: keeps its data, for which offset they
    /// are, and its body if that is `long`.
    pub(crate) fn begin(
        &mut self,
        unique: u64,
        data: Option<(u64, &[u8])>,
        long: Option<Box<[u8]>>,
    ) {
        let Some(log) = &mut self.log else { return };
        let staged = data.and_then(|(offset, data)| log.stage(offset, data));
        let begun = Begun { staged, body: long, time: self.time };
        if let Some(Begun { staged: Some(old), .. }) = self.begun.insert(unique, begun) {
            log.unstage(old);
        }
    }

    /// Nothing of a request goes on record: what is kept of it is dropped.
    pub(crate) fn drop(&mut self, unique: u64) {
        if let Some(Begun { staged: Some(staged), .. }) = self.begun.remove(&unique)
            && let Some(log) = &mut self.log
        {
            log.unstage(staged);
        }
    }

    /// What is kept of a request, to be appended; of one that is not known its time is now.
    pub(crate) fn take_begun(&mut self, unique: u64) -> Begun {
        self.begun.remove(&unique).unwrap_or(Begun { time: self.time, ..Begun::default() })
    }

    /// Whether the log has taken a record, with the data that are kept in `begun`. What that says
    /// of nodes is known only then. Without a log it has.
    pub(crate) fn append(
        &mut self,
        facts: &Facts,
        body: &[u8],
        names: &[NameChange<'_>],
        begun: Option<Begun>,
    ) -> bool {
        let Some(log) = &mut self.log else { return true };
        let staged = begun.and_then(|begun| begun.staged);
        let appended = log.append(facts, body, names, staged).is_ok();
        if appended {
            names.iter().for_each(|name| self.placed.note(name));
        }
        appended
    }
}
