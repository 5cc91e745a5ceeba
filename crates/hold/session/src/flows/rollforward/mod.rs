//! Roll-forward (Membrane, section 3.6): a successor starts on the last checkpoint, and what was
//! acknowledged since is replayed from the op-log, one request at a time, before anything else.
//!
//! Nodes are found by the names that they had when the request was made, or known from a reply that
//! came here. What the daemon answers is compared with what it answered then; a difference is
//! reported, and the rest goes on.
//!
//! | module | answers |
//! | --- | --- |
//! | [`ask`] | what the daemon is asked for a record |
//! | [`answer`] | what its answer means |
//! | [`cut`] | checkpoints on the way |
//! | [`close`] | when what was opened to write to it is closed |

mod answer;
mod ask;
mod close;
mod cut;
pub(crate) mod state;

use crate::flows::flow::Flow;
use crate::flows::injection::Injection;
use crate::flows::rollforward::state::{Forwarded, Issue, Opened, RollForward, Told};
use crate::flows::step::Step;
use crate::message::read;
use crate::session::Session;
use crate::work::Work;
use belay_memory::Memory;
use belay_oplog::{Corrupt, InPlace, Namespace, Oplog, Replay};
use belay_recorder::Node;
use belay_recorder::control::Counter;
use belay_wire::abi::{IOCTL_DIR, IoctlIn};
use belay_wire::errno::EIO;
use belay_wire::{Opcode, build};
use std::collections::BTreeMap;

const O_RDWR: u32 = 2;
/// Why a WRITE cannot be replayed whose data are not on record.
const NO_ROOM: &str = "the op-log had no room for its data";
/// The longest path whose keys may all be old ones.
const MAX_DEPTH: usize = 256;
/// The most data that is given to the daemon in one WRITE, in bytes: what every kernel allows.
const MOST: usize = 128 << 10;

/// Whether a request is by the handle of a directory.
fn is_of_directory(issue: &Issue) -> bool {
    let by_directory =
        read::<IoctlIn>(&issue.record.body).is_some_and(|asked| asked.flags & IOCTL_DIR != 0);
    Opcode(issue.record.facts.opcode) == Opcode::IOCTL && by_directory
}

impl RollForward {
    /// The data of the run of the current WRITE that is issued now, which are issued once; `None`
    /// if it is something else.
    fn take_data(&mut self, what: Forwarded) -> Option<InPlace> {
        let Forwarded::Issue(run) = what else { return None };
        let writes = |issue: &&mut Issue| Opcode(issue.record.facts.opcode) == Opcode::WRITE;
        let run = self.current.as_mut().filter(writes)?.data.get_mut(run)?;
        let data = std::mem::take(&mut run.bytes);
        self.sent = data.len();
        Some(data)
    }
}

impl<M: Memory> Session<M> {
    /// Sees to it that what `log` has is replayed first.
    pub(crate) fn roll_forward_from(&mut self, log: &Oplog<M>) -> Result<(), Corrupt> {
        if log.sizes().records == 0 {
            return Ok(());
        }
        let cuts = log.cuts();
        let aim = if self.ends_for_checkpoints() { self.aim(log, &cuts) } else { None };
        self.forward = Some(Box::new(RollForward {
            replay: Replay::new(MOST),
            names: Namespace::at_checkpoint(log)?,
            ids: BTreeMap::new(),
            met: Vec::new(),
            handles: BTreeMap::new(),
            access: BTreeMap::new(),
            opened: None,
            current: None,
            run: 0,
            sent: 0,
            over: false,
            files: self.buffers_files(),
            missing: false,
            looked: 0,
            flushed: None,
            stored: Vec::new(),
            cuts,
            aim,
            wanted: false,
        }));
        self.control().set_forward_length(log.length() as u64);
        let mut task = self.tasks.make(Flow::RollForward);
        task.old = true;
        self.tasks.insert(0, task);
        Ok(())
    }

    /// Whether what was acknowledged is still being replayed.
    pub fn is_rolling_forward(&self) -> bool {
        self.forward.is_some()
    }

    /// What the daemon is to take for the time in the request `unique`: when it is replayed, that
    /// of the first time. CLOCK_REALTIME in nanoseconds.
    pub fn time_of(&self, unique: u64) -> Option<u64> {
        let asked = self.questions.get(unique)?;
        let Injection::Forward(Forwarded::Issue(_)) = asked.question else { return None };
        Some(self.forward.as_ref()?.current.as_ref()?.record.facts.time)
    }

    pub(crate) fn forward_step(&mut self) -> Step {
        let Some(mut forward) = self.forward.take() else { return Step::Done };
        let step = self.forward_one(&mut forward);
        if matches!(step, Step::Done) {
            self.end_roll_forward(*forward);
        } else {
            self.forward = Some(forward);
        }
        step
    }

    fn forward_one(&mut self, forward: &mut RollForward) -> Step {
        if let Some((id, fh, flags)) = forward.opened.take() {
            let message = build::release(self.questions.ids(id), fh, flags, false);
            return Step::ask(message, Forwarded::Close(None));
        }
        loop {
            if let Some((key, id, Opened { fh, directory })) = forward.flushed.take() {
                let message = build::release(self.questions.ids(id), fh, O_RDWR, directory);
                return Step::ask(message, Forwarded::Close(Some(key)));
            }
            let ends = forward.is_far_enough();
            if let Some((key, id, opened)) = forward.next_to_close(ends) {
                let Opened { fh, directory } = opened;
                if forward.files {
                    forward.flushed = Some((key, id, opened));
                    let message = build::flush(self.questions.ids(id), fh);
                    return Step::ask(message, Forwarded::Store(key));
                }
                let message = build::release(self.questions.ids(id), fh, O_RDWR, directory);
                return Step::ask(message, Forwarded::Close(None));
            }
            if let Some(issue) = &forward.current {
                let Some(found) = self.next_of(issue, forward) else {
                    self.next_record(forward);
                    continue;
                };
                match found {
                    Ok((message, what)) => {
                        return Step::ask(message, what);
                    }
                    Err(why) => {
                        self.diverged(issue, why);
                        self.next_record(forward);
                    }
                }
                continue;
            }
            if let Some(step) = self.cut_step(forward) {
                return step;
            }
            let next = self.logged.log().map(|log| forward.replay.next_in_place(log));
            match next {
                Some(Ok(Some(issue))) => {
                    // Should the daemon die of it, the supervisor knows.
                    self.control().set_forward(self.life.generation(), Some(issue.number as u32));
                    forward.run = 0;
                    forward.missing = false;
                    forward.looked = 0;
                    let facts = &issue.record.facts;
                    let writes = Opcode(facts.opcode) == Opcode::WRITE && facts.size > 0;
                    if writes && issue.data.is_empty() {
                        self.diverged(&issue, NO_ROOM);
                    }
                    forward.current = Some(issue);
                }
                Some(Err(Corrupt)) => {
                    let why = "the op-log is damaged: what comes behind is lost";
                    self.report_errand("RollForward", EIO, why);
                    self.count(Counter::Failed);
                    forward.over = true;
                }
                _ => forward.over = true,
            }
            if forward.over {
                self.hand_over(forward);
                if forward.handles.is_empty() {
                    return Step::Done;
                }
            }
        }
    }

    /// What the daemon gets for `message`, which is for `injection`.
    pub(crate) fn with_data(&mut self, mut message: Vec<u8>, injection: &Injection) -> Work {
        let data = match (injection, &mut self.forward) {
            (Injection::Forward(what), Some(forward)) => forward.take_data(*what),
            _ => None,
        };
        let Some(data) = data else { return Work::Deliver(message) };
        build::set_length(&mut message, data.len());
        Work::DeliverWith(message, data)
    }

    /// The current record is done with.
    fn next_record(&mut self, forward: &mut RollForward) {
        if let Some(issue) = forward.current.take() {
            forward.names.forward(&issue.record.names);
            let facts = &issue.record.facts;
            let begun = |sake| self.store.slot_requests().any(|(_, held)| held.unique == sake);
            if facts.unique == 0 && facts.opcode != 0 && begun(facts.size) {
                // By its record a successor knows what was begun of a request that is not answered.
                forward.cuts.clear();
            }
        }
    }

    /// What the daemon told on the way is known from now on; what nobody needs it is to forget.
    fn end_roll_forward(&mut self, forward: RollForward) {
        self.control().set_forward(self.life.generation(), None);
        forward.stored.iter().for_each(|file| self.drop_stored(*file));
        let mut forget: Vec<_> = forward.met.iter().map(|id| (*id, 1)).collect();
        for (key, Told { id, ino, count }) in forward.ids {
            let node = self.node_of(key, &forward.names, MAX_DEPTH).filter(|node| {
                self.store.node_by_id(self.life.ids(), id).is_none()
                    && self.store.bound(*node, self.life.ids()).is_none()
            });
            let Some(node) = node else {
                forget.push((id, count));
                continue;
            };
            self.store.begin();
            self.store.bind(node, self.life.ids(), id);
            self.store.set_daemon_count(node, count);
            // Requests that were under way together may come to other inode numbers in another
            // order; applications go on seeing the first. How many links it has was not asked: of
            // several, two nodes have one number.
            self.pin(node, (ino, u32::MAX));
            self.store.commit();
        }
        self.forget_later(forget);
    }

    /// The node with a key, or, if the kernel has forgotten that and asked anew since, the one that
    /// has its name.
    fn node_of(&self, key: u64, names: &Namespace, depth: usize) -> Option<Node> {
        let key = names.renewed(key);
        let live = self.store.node_by_key(key);
        if live.is_some() || depth == 0 {
            return live;
        }
        let now = |key: u64| self.names_now(key);
        names.names(key, &now).iter().find_map(|(parent, name)| {
            let parent = self.node_of(*parent, names, depth - 1)?;
            self.store.child(parent, name)
        })
    }
}
