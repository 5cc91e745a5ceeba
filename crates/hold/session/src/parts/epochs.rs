//! Epochs, as the session sees them, and how far the checkpoint under way is.

/// How long a checkpoint may hold up all requests before it has begun to flush, in ns. A request
/// that takes longer is none of its business: the next one will find it done.
const PATIENCE: u64 = 500_000_000;
/// How long after a failed checkpoint the next one is tried, in ns.
const PAUSE: u64 = 1_000_000_000;

/// How far the checkpoint under way is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flush {
    /// What had begun has not ended yet.
    #[default]
    No,
    /// The root directory is being opened.
    Opening,
    /// It is open by this handle.
    Open(u64),
    /// The daemon is writing what it has, for the directory that is open by this handle.
    Syncing(u64),
    /// It has written; the handle is to be closed.
    Synced(u64),
    /// It is being closed.
    Closing,
    /// The daemon is writing what it has, for a FLUSH.
    Flushing,
    /// The daemon was told that the mount has gone.
    Retiring,
    /// All is written: the epoch can end.
    Done,
    /// The daemon could not write.
    Failed(i32),
}

impl Flush {
    /// How far it is when the daemon has answered with `errno`, and by this handle if it has opened
    /// something. `nothing`: it cannot write, and holds nothing.
    fn after(self, errno: i32, fh: Option<u64>, nothing: bool) -> Self {
        match (self, errno, fh) {
            (Self::Syncing(fh), ..) if nothing => Self::Synced(fh),
            (Self::Opening | Self::Flushing, ..) if nothing => Self::Done,
            (Self::Opening, 0, Some(fh)) => Self::Open(fh),
            (Self::Syncing(fh), 0, _) => Self::Synced(fh),
            (Self::Flushing, 0, _) => Self::Done,
            // What closing says is not about what was written before.
            (Self::Closing, ..) => Self::Done,
            (_, errno, _) => Self::Failed(errno),
        }
    }

    /// Whether nothing more is asked for it.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed(_))
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Epochs {
    /// The number of the epoch that is under way.
    current: u64,
    /// The last one that outlives a power failure.
    durable: u64,
    /// An application waits for this one.
    wanted: u64,
    /// The last task that belongs to the epoch that a checkpoint ends.
    boundary: u64,
    /// When that began.
    since: u64,
    flush: Flush,
    /// The epoch of which requests that came back after a crash or restart are: nothing has been
    /// answered since. 0 if something has.
    settled: u64,
    /// A checkpoint has failed: when the next one may begin.
    again: u64,
    /// The daemon has refused to write what it holds, as it can write nothing.
    holds_nothing: bool,
}

impl Epochs {
    /// The epochs as the host finds them.
    pub(crate) fn set(&mut self, current: u64, durable: u64) {
        (self.current, self.durable) = (current, durable);
    }

    /// The epoch that is under way.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// This one is under way now.
    pub(crate) fn enter(&mut self, epoch: u64) {
        self.current = epoch;
    }

    /// The last one that outlives a power failure.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// This one does now.
    pub(crate) fn set_durable(&mut self, epoch: u64) {
        self.durable = epoch;
    }

    /// An application waits until this epoch is safe.
    pub(crate) fn want(&mut self, epoch: u64) {
        self.wanted = self.wanted.max(epoch);
    }

    /// Nobody waits any more.
    pub(crate) fn want_none(&mut self) {
        self.wanted = 0;
    }

    /// Whether somebody waits for the end of the epoch under way.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted >= self.current
    }

    /// Whether a checkpoint may begin so soon after one that has failed.
    pub(crate) fn may_begin(&self, now: u64) -> bool {
        now >= self.again
    }

    /// A checkpoint begins, to which the tasks up to `boundary` belong.
    pub(crate) fn begin(&mut self, boundary: u64, now: u64) {
        self.boundary = boundary;
        self.since = now;
        self.flush = Flush::No;
        self.holds_nothing = false;
    }

    /// A checkpoint has failed: nobody waits for it, and the next one comes later.
    pub(crate) fn fail(&mut self, now: u64) {
        self.again = now.saturating_add(PAUSE);
        self.wanted = 0;
    }

    /// Whether a task belongs to the epoch that the checkpoint ends.
    pub(crate) fn includes(&self, task: u64) -> bool {
        task <= self.boundary
    }

    /// Whether the checkpoint has held up requests for too long without having begun to flush.
    pub(crate) fn is_late(&self, now: u64) -> bool {
        now.saturating_sub(self.since) > PATIENCE
    }

    /// How far it is.
    pub(crate) fn flush(&self) -> Flush {
        self.flush
    }

    /// It is that far.
    pub(crate) fn set_flush(&mut self, flush: Flush) {
        self.flush = flush;
    }

    /// The daemon has answered what it was asked for it, see [`Flush::after`].
    pub(crate) fn flushed(&mut self, errno: i32, fh: Option<u64>, nothing: bool) {
        self.holds_nothing |= nothing;
        self.flush = self.flush.after(errno, fh, nothing);
    }

    /// Whether the daemon has not written what it holds, as it can write nothing.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.holds_nothing
    }

    /// What was answered before this life is part of the epoch before.
    pub(crate) fn note_settled(&mut self) {
        self.settled = self.current.saturating_sub(1);
    }

    /// The epoch in which a request came, which may have come back after a crash.
    pub(crate) fn came_in(&self, back: bool) -> u64 {
        if back && self.settled > 0 { self.settled } else { self.current }
    }
}
