//! The session's state and its way out to the shim.

use crate::asked::{Asked, Caller};
use crate::checkpoint::Epochs;
use crate::cookies::Cookies;
use crate::decision::Progress;
use crate::listing::Remainder;
use crate::logged::behind::Behind;
use crate::logged::files::Storing;
use crate::logged::relief::Relief;
use crate::logged::{Begun, Placed};
use crate::met::Met;
use crate::numbers::Numbers;
use crate::restore::Reopen;
use crate::rollforward::RollForward;
use crate::task::Task;
use crate::vouch::Doubt;
use belay_memory::{Memory, Overflow};
use belay_oplog::{InPlace, Oplog};
use belay_recorder::control::{Counter, options};
use belay_recorder::{Control, Handle, Node, Slot, SlotState, Store};
use belay_wire::{Dialect, Opcode, Shape, UNIQUE_INJECTED};
use std::collections::{HashMap, HashSet, VecDeque};

pub use belay_wire::build::KICK;
/// How long one request may hold up the others while those in flight are settled, in ns.
pub(crate) const SETTLE_LIMIT: u64 = 1_000_000_000;

/// How far this generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What was in flight at the crash is re-issued, one at a time; new work waits.
    Settling,
    /// Normal work.
    Open,
    /// A checkpoint: what had begun comes to its end; new work waits.
    Quiescing,
}

/// A request that is not settled yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) unique: u64,
    pub(crate) slot: Slot,
    /// As in the slot; here so that most replies are settled without a look at it.
    pub(crate) opcode: Opcode,
    /// Its reply is on its way to the kernel, or will be without the session: the slot may become free
    /// at any time, and belongs to whoever has the reply.
    pub(crate) sent: bool,
}

/// Lookups of the daemon's node `id` that it is to forget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forget {
    id: u64,
    count: u64,
    /// The last question that it may have been asked about that node.
    asked: u64,
}

/// Something for the shim to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Give this request to the daemon, as the result of its read.
    Deliver(Vec<u8>),
    /// The same, of a WRITE whose data are in the op-log and come behind it. Until its reply they stay there.
    DeliverWith(Vec<u8>, InPlace),
    /// Write this to the device (a reply or a notification), then call [`Session::on_delivered`].
    Answer(Vec<u8>),
    /// All that the daemon holds is on its image, and nothing is under way: end the epoch, then call
    /// [`Session::sealed`].
    Seal,
    /// Nothing is under way, and this daemon writes what it holds only at its end: tell it that the mount has gone. The
    /// supervisor ends the epoch when the daemon has ended as it should, and starts another one.
    Retire,
}

/// What the kernel believes of a mount. See the crate's documentation.
#[derive(Debug)]
pub struct Session<M> {
    pub(crate) store: Store<M>,
    pub(crate) generation: u32,
    pub(crate) options: u64,
    pub(crate) phase: Phase,
    pub(crate) free_slots: Vec<Slot>,
    pub(crate) active: Vec<Active>,
    /// The latest request of the kernel that any daemon may know of.
    pub(crate) newest: u64,
    /// The reply to what was let through last may need no session, and is to be like this.
    pub(crate) expects: Option<Shape>,
    /// The slot of the reply that is to be written now.
    pub(crate) sending: Option<Slot>,
    /// Slots of the dead generation whose requests have not come back yet.
    pub(crate) leftovers: HashMap<u64, Slot>,
    /// How far the dead generation had come with requests that it had begun, where that is known.
    pub(crate) known: HashMap<u64, Progress>,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) next_task: u64,
    pub(crate) injections: HashMap<u64, Asked, foldhash::fast::RandomState>,
    pub(crate) next_injection: u64,
    pub(crate) restoring: HashSet<Node>,
    /// Names that the daemon has been asked for, in lives after the first.
    pub(crate) met: Option<Met>,
    /// Lookups (the daemon's ids) that are taken back when a request or an errand is over.
    pub(crate) borrowed: Vec<(u64, u64)>,
    pub(crate) reopening: HashMap<Handle, Reopen>,
    pub(crate) numbers: Numbers,
    /// Directories of which it is not known whether they are what they were.
    pub(crate) doubts: HashMap<Node, Doubt>,
    /// Handles that the daemon has opened again for reading only, and by which error it refused more.
    pub(crate) read_only_handles: HashMap<Handle, i32>,
    pub(crate) outbox: VecDeque<Work>,
    /// What the daemon is to forget later, see [`Session::forget_later`].
    pub(crate) withheld: Vec<Forget>,
    /// Nodes kept open under hidden names.
    pub(crate) hidden: Vec<Node>,
    /// Files whose links the daemon is to count right: the latest request of the kernel when that came to be, and the name that each
    /// had.
    pub(crate) lone: HashMap<Node, (u64, String)>,
    /// Directory handles restored in this generation and not rewound since.
    pub(crate) restored_dirs: HashMap<Handle, Option<Remainder>>,
    /// Directories in which a compound change is under way: name requests there wait.
    pub(crate) exclusive: Vec<(u64, u64)>,
    /// Cookies up to which directory streams are recorded.
    pub(crate) cookies: Cookies,
    pub(crate) scratch: Vec<u8>,
    pub(crate) kick: bool,
    /// Something was noted that the supervisor is to say.
    pub(crate) told: bool,
    pub(crate) epochs: Epochs,
    /// What was acknowledged since the last checkpoint, under the policy `epoch`.
    pub(crate) log: Option<Oplog<M>>,
    pub(crate) placed: Placed,
    /// Nodes of which it was said that they cannot be had again.
    pub(crate) told_lost: HashSet<u64>,
    /// Files of which acknowledged data is neither stored nor on record, and what was said of each.
    pub(crate) told_unstored: HashMap<u64, String>,
    /// Files of which something could not be done again.
    pub(crate) told_undone: HashSet<u64>,
    pub(crate) storing: Storing,
    pub(crate) relief: Relief,
    pub(crate) behind: Behind,
    /// What is kept for it of requests that are not answered.
    pub(crate) begun: HashMap<u64, Begun, foldhash::fast::RandomState>,
    /// The roll-forward under way.
    pub(crate) forward: Option<Box<RollForward>>,
    /// A request is being answered without the daemon.
    pub(crate) answering: bool,
    /// CLOCK_REALTIME, see [`Session::set_time`].
    pub(crate) time: u64,
    /// What kernel and daemon speak.
    pub(crate) dialect: Dialect,
    /// The daemon's own user.
    pub(crate) owner: Caller,
    /// Who may remove hidden files.
    pub(crate) removers: HashMap<Node, Caller>,
    /// The daemon accepted a LINK for hiding, as far as is known.
    pub(crate) links_work: bool,
    pub(crate) full: bool,
}

impl<M: Memory> Session<M> {
    /// Takes over the recorder for `generation`: undoes a half-done change and sorts out what
    /// the dead generation left. Generation 0 starts open, others start settling.
    ///
    /// # Errors
    /// If a change of the dead generation is cut off and not on record as a whole.
    pub fn attach(store: Store<M>, generation: u32) -> Result<Self, Overflow> {
        Self::attach_with(store, generation, 0)
    }

    /// Like [`Session::attach`], with these [`options`].
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_with(store: Store<M>, generation: u32, options: u64) -> Result<Self, Overflow> {
        Self::attach_knowing(store, generation, options, |_| HashMap::new())
    }

    /// Like [`Session::attach_with`]. `learn` is called when the store is whole, and tells how far the dead
    /// generation had come with requests that it had begun, as far as more is known of it.
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_knowing(
        store: Store<M>,
        generation: u32,
        options: u64,
        learn: impl FnOnce(&Store<M>) -> HashMap<u64, Progress>,
    ) -> Result<Self, Overflow> {
        store.recover()?;
        let known = learn(&store);
        if store.is_blank() {
            store.format();
        }
        let mut session = Self {
            generation,
            options,
            phase: if generation == 0 { Phase::Open } else { Phase::Settling },
            free_slots: Vec::new(),
            active: Vec::new(),
            expects: None,
            newest: 0,
            sending: None,
            leftovers: HashMap::new(),
            known,
            tasks: VecDeque::new(),
            next_task: 1,
            injections: HashMap::default(),
            next_injection: 0,
            restoring: HashSet::new(),
            met: (generation > 0).then(Met::default),
            borrowed: Vec::new(),
            reopening: HashMap::new(),
            numbers: Numbers::default(),
            doubts: HashMap::new(),
            read_only_handles: HashMap::new(),
            outbox: VecDeque::new(),
            withheld: Vec::new(),
            hidden: Vec::new(),
            lone: HashMap::new(),
            restored_dirs: HashMap::new(),
            exclusive: Vec::new(),
            cookies: Cookies::default(),
            scratch: Vec::with_capacity(4096),
            kick: false,
            told: false,
            epochs: Epochs::default(),
            log: None,
            placed: Placed::default(),
            told_lost: HashSet::new(),
            told_unstored: HashMap::new(),
            told_undone: HashSet::new(),
            storing: Storing::default(),
            relief: Relief::default(),
            behind: Behind::default(),
            begun: HashMap::default(),
            forward: None,
            answering: false,
            time: 0,
            dialect: Dialect::NEWEST,
            owner: Caller::default(),
            removers: HashMap::new(),
            links_work: true,
            full: false,
            store,
        };
        session.learn_dialect();
        session.sort_slots();
        if generation > 0 {
            session.sort_handles();
        }
        // Under the policy `epoch` they come back once it is known how far the dead generation was with them.
        if session.keeps_copies() && !session.has_epochs() {
            session.requeue_copies();
        }
        Ok(session)
    }

    fn sort_slots(&mut self) {
        let used = self.store.slots_used();
        self.free_slots.extend((used..self.store.slots()).rev().map(Slot));
        for slot in (0..used).rev().map(Slot) {
            match self.store.slot_request(slot) {
                Some(request) if request.state != SlotState::Reading => {
                    self.judge(slot);
                    self.leftovers.insert(request.unique, slot);
                }
                Some(_) if self.keeps_copies() => self.sort_unfinished_read(slot),
                Some(_) => {
                    self.store.slot_advance(slot, SlotState::Free);
                    self.free_slots.push(slot);
                }
                None => self.free_slots.push(slot),
            }
        }
    }

    fn sort_handles(&mut self) {
        self.hidden = self.store.hidden();
        let widened: Vec<_> =
            self.store.live_handles().filter(|h| self.store.widened(*h).is_some()).collect();
        for handle in widened {
            self.park_narrow(handle);
        }
        for lock in self.store.locks() {
            self.park_relock(lock);
        }
    }

    /// Whether requests are copied because the kernel cannot send them again.
    pub fn keeps_copies(&self) -> bool {
        self.options & options::NO_RESEND != 0
    }

    /// INIT has shown that the kernel cannot send requests again: they are copied from now on.
    pub fn keep_copies(&mut self) {
        self.options |= options::NO_RESEND;
    }

    /// How far this generation is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a reader that sleeps in the kernel should be woken: there may be work for it.
    /// Reading it clears it.
    pub fn take_kick(&mut self) -> bool {
        std::mem::take(&mut self.kick)
    }

    /// Whether something was noted that the supervisor is to say. Reading it clears it.
    pub fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.told)
    }

    /// Whether there is nothing but normal requests: [`Session::work`] would give `None`.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.tasks.is_empty() && self.phase == Phase::Open
    }

    /// Whether something waits for a slot to become free. Readers must not sleep meanwhile: not all
    /// replies come by here.
    #[inline]
    pub fn is_starved(&self) -> bool {
        self.free_slots.is_empty() && !self.tasks.is_empty()
    }

    /// Whether the recorder overflowed, so that a further crash cannot be held exactly.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Control block of the recorder.
    pub fn control(&self) -> Control<'_, M> {
        Control::new(self.store.memory(), *self.store.layout())
    }

    /// The recorder's records.
    pub fn store(&self) -> &Store<M> {
        &self.store
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.control().count_alone(counter); // the session's lock is held
    }

    #[inline]
    pub(crate) fn slot_of(&self, unique: u64) -> Option<(usize, Slot)> {
        let index = self.active.iter().rposition(|active| active.unique == unique)?;
        self.active.get(index).map(|active| (index, active.slot))
    }

    #[inline]
    pub(crate) fn free_slot(&mut self, index: usize) {
        let active = self.active.swap_remove(index);
        self.store.slot_free(active.slot);
        self.free_slots.push(active.slot);
    }

    /// Notes that the request in a filled slot is in the daemon's hands, or about to be answered.
    pub(crate) fn activate(&mut self, unique: u64, slot: Slot) {
        let opcode = self.store.slot_request(slot).map_or(0, |request| request.opcode);
        self.active.push(Active { unique, slot, opcode: Opcode(opcode), sent: false });
    }

    /// The slot of the reply for which [`Session::on_reply`] wants to hear of the delivery. Whoever
    /// wrote that reply may free it with [`belay_recorder::free_slot`], without the session's lock,
    /// and have [`Session::reap`] called later, instead of calling [`Session::on_delivered`].
    #[inline]
    pub fn take_sending(&mut self) -> Option<Slot> {
        self.sending.take()
    }

    /// The slot of a request that the daemon has, or is about to get.
    #[inline]
    pub fn slot_in_hand(&self, unique: u64) -> Option<Slot> {
        self.slot_of(unique & !belay_wire::UNIQUE_RESEND).map(|(_, slot)| slot)
    }

    /// The opcode of a request that the daemon has.
    pub fn opcode_in_hand(&self, unique: u64) -> Option<Opcode> {
        let (index, _) = self.slot_of(unique)?;
        self.active.get(index).map(|active| active.opcode)
    }

    /// The requests that the daemon has.
    pub fn in_hand(&self) -> impl Iterator<Item = (u64, Slot, Opcode)> + '_ {
        self.active.iter().map(|active| (active.unique, active.slot, active.opcode))
    }

    /// Takes back the slots that were freed without the session.
    pub fn reap(&mut self) {
        let mut index = self.active.len();
        while let Some(before) = index.checked_sub(1) {
            index = before;
            let free = self
                .active
                .get(index)
                .is_some_and(|active| active.sent && self.store.slot_is_free(active.slot));
            if free {
                self.free_slots.push(self.active.swap_remove(index).slot);
            }
        }
    }

    /// The reply to `unique` (as the daemon gave it) was written to the kernel.
    pub fn on_delivered(&mut self, unique: u64) {
        if let Some((index, _)) = self.slot_of(unique & !belay_wire::UNIQUE_RESEND) {
            self.free_slot(index);
        }
    }

    /// Has the daemon forget nodes (its id, how many lookups), but not before it has answered what
    /// belay asks: the kernel sends no FORGET of a node that it has a request for, and knows nothing
    /// of belay's.
    pub(crate) fn forget_later(&mut self, forgets: Vec<(u64, u64)>) {
        if !self.injections.is_empty() {
            let asked = self.next_injection;
            let withheld = forgets.into_iter().map(|(id, count)| Forget { id, count, asked });
            self.withheld.extend(withheld);
            return;
        }
        self.forget_now(forgets);
    }

    /// Lets go of what was withheld for questions that have been answered since.
    pub(crate) fn forget_withheld(&mut self) {
        let number = |unique: &u64| unique & !UNIQUE_INJECTED;
        let oldest = self.injections.keys().map(number).min().unwrap_or(u64::MAX);
        let (told, kept): (Vec<_>, _) =
            std::mem::take(&mut self.withheld).into_iter().partition(|f| f.asked < oldest);
        self.withheld = kept;
        self.forget_now(told.into_iter().map(|forget| (forget.id, forget.count)).collect());
    }

    fn forget_now(&mut self, forgets: Vec<(u64, u64)>) {
        for (id, count) in forgets {
            let ids = self.injected_ids(id);
            self.outbox.push_back(Work::Deliver(belay_wire::build::forget(ids, count)));
            self.kick = true;
        }
    }

    /// Header of an injected request about the daemon's node `id`. In whose name it is asked is seen to later,
    /// see [`Session::note_asked`].
    pub(crate) fn injected_ids(&mut self, id: u64) -> belay_wire::Ids {
        self.next_injection += 2;
        let unique = UNIQUE_INJECTED | self.next_injection;
        belay_wire::Ids { unique, nodeid: id, uid: 0, gid: 0, pid: 0 }
    }
}
