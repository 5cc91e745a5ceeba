//! Requests from the kernel: translate and pass on at once, or park as a task.

use crate::flows::restore::missing::Missing;
use crate::session::{KICK, Session};
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Handle, HandleFlags, InFlight, Node, Slot, SlotState};
use belay_wire::request::HEADER;
use belay_wire::{
    Opcode, OpcodeSet, Request, Unique, get_u64, handle_fields, node_fields, put_u64,
};

/// What the shim does with a message that it read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Give it to the daemon as it now is, as long as its header says.
    Deliver,
    /// The session has taken it; ask [`Session::work`], then read again.
    Taken,
}

/// Kernel ids to be replaced by the daemon's: byte offset and value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patches {
    items: [(usize, u64); 4],
    len: usize,
}

impl Patches {
    #[inline]
    fn push(&mut self, at: usize, value: u64) {
        if let Some(item) = self.items.get_mut(self.len) {
            *item = (at, value);
            self.len += 1;
        }
    }

    #[inline]
    pub(crate) fn apply(&self, message: &mut [u8]) {
        for (at, value) in self.items.iter().take(self.len) {
            let _ = put_u64(message, *at, *value);
        }
    }
}

/// What the usual ids become: that of the header's node, with what it is, and of one handle with
/// its offset.
struct Usual {
    node: Option<Node>,
    id: u64,
    handle: Option<(usize, u64)>,
}

/// Requests that get no reply, that may need more than translation, or that name further nodes.
const SPECIAL: OpcodeSet = OpcodeSet::new(&[
    Opcode::FORGET,
    Opcode::BATCH_FORGET,
    Opcode::INTERRUPT,
    Opcode::NOTIFY_REPLY,
    Opcode::UNLINK,
    Opcode::RMDIR,
    Opcode::RENAME,
    Opcode::RENAME2,
    Opcode::READDIR,
    Opcode::READDIRPLUS,
    Opcode::REMOVEXATTR,
    Opcode::FSYNC,
    Opcode::FSYNCDIR,
    Opcode::SYNCFS,
    Opcode::LINK,
    Opcode::COPY_FILE_RANGE,
    Opcode::COPY_FILE_RANGE_64,
    Opcode::TMPFILE,
]);

/// Byte offset of a request's node id.
const NODEID: usize = belay_wire::fields::NODEID_OFFSET;

impl<M: Memory> Session<M> {
    /// Takes a request that was read from the device, other than INIT. `slot` is the one that
    /// was claimed for it, if requests are copied. The message may be changed in place, and even
    /// become shorter.
    #[inline]
    pub fn on_request(&mut self, message: &mut [u8], slot: Option<Slot>, now: u64) -> Incoming {
        if self.life.dialect().is_whole() {
            self.on_whole_request(message, slot, now)
        } else {
            self.on_old_request(message, slot, now)
        }
    }

    /// The same for a request of the newest form.
    #[inline]
    pub(crate) fn on_whole_request(
        &mut self,
        message: &mut [u8],
        slot: Option<Slot>,
        now: u64,
    ) -> Incoming {
        let Ok(request) = Request::parse(message) else { return Incoming::Deliver };
        // Nearly all requests, nearly always: nothing but translation.
        if self.life.is_open()
            && !self.tasks.excludes_any()
            && !self.shows_wide_mode()
            && !request.is_resent()
            && !SPECIAL.has(request.opcode())
            && !self.is_throttled(&request)
            && !self.awaits_turn(&request)
            && !self.awaits_locks(&request)
            && !self.forbids()
            && !self.leads_back(&request)
            && !self.root_unmet(&request)
            && let Some(ids) = self.usual_ids(&request)
            && self.start_request(&request, slot)
        {
            self.expect_last(&request, ids.node);
            let _ = put_u64(message, NODEID, ids.id);
            if let Some((at, id)) = ids.handle {
                let _ = put_u64(message, at, id);
            }
            return Incoming::Deliver;
        }
        self.on_special_request(message, slot, now)
    }

    /// Any request.
    #[inline(never)]
    fn on_special_request(&mut self, message: &mut [u8], slot: Option<Slot>, now: u64) -> Incoming {
        let Ok(request) = Request::parse(message) else { return Incoming::Deliver };
        let opcode = request.opcode();
        if opcode != Opcode::NOTIFY_REPLY {
            self.slots.see(request.header.unique); // of that, the daemon has chosen it
        }
        match opcode {
            Opcode::FORGET | Opcode::BATCH_FORGET => {
                self.unclaim(slot);
                return self.on_forget(message);
            }
            Opcode::INTERRUPT => {
                self.unclaim(slot);
                return Incoming::Deliver;
            }
            Opcode::NOTIFY_REPLY => {
                self.unclaim(slot);
                if request.header.unique == KICK {
                    return Incoming::Taken;
                }
                let id = self
                    .store
                    .node_by_key(request.header.nodeid)
                    .and_then(|node| self.store.bound(node, self.life.ids()));
                if let Some(id) = id {
                    let _ = put_u64(message, NODEID, id);
                }
                return Incoming::Deliver;
            }
            _ => {}
        }
        let resent = request.is_resent()
            || (self.life.is_settling() && slot.is_some_and(|slot| self.slots.is_leftover(slot)));
        if resent {
            self.park_resent(message.to_vec(), slot);
            return Incoming::Taken;
        }
        if self.life.is_settling() {
            self.tick(now);
        }
        if !self.life.is_open() || self.needs_plan(&request) {
            self.park_fresh(message.to_vec(), slot);
            return Incoming::Taken;
        }
        match self.resolve(message) {
            Ok(patches) => {
                if !self.start(message, patches, slot) {
                    self.park_fresh(message.to_vec(), slot);
                    return Incoming::Taken;
                }
                Incoming::Deliver
            }
            Err(_) => {
                self.park_fresh(message.to_vec(), slot);
                Incoming::Taken
            }
        }
    }

    /// Whether [`Session::on_request`] would let a request through as it is, and need not see its
    /// data. Splicing needs to know before these leave the pipe.
    pub fn passes(&self, message: &[u8]) -> bool {
        Request::parse(message).is_ok_and(|request| {
            !request.is_resent()
                && !self.keeps_copies()
                && self.life.dialect().is_whole()
                && !self.logged.is_kept() // which has the data
                && self.life.is_open()
                && !self.needs_plan(&request)
                && !self.slots.are_exhausted()
                && self.resolve(message).is_ok()
        })
    }

    /// Gives a message that waits for nobody (FORGET, INTERRUPT) to the daemon later.
    pub fn pass_on(&mut self, message: &[u8]) {
        let len = Request::parse(message).map_or(0, |request| request.header.len as usize);
        let message = message.get(..len).unwrap_or(message).to_vec();
        self.tasks.hand_out(crate::work::Work::Deliver(message));
    }

    /// Whether a request needs more than translation.
    fn needs_plan(&self, request: &Request<'_>) -> bool {
        if self.tasks.excludes_any() && self.is_excluded(request)
            || self.shows_wide_mode()
            || self.is_throttled(request)
            || self.awaits_turn(request)
            || self.awaits_locks(request)
            || self.forbidden(request).is_some()
        {
            return true;
        }
        match request.opcode() {
            Opcode::UNLINK | Opcode::RENAME | Opcode::RENAME2 | Opcode::RMDIR => {
                self.names_unmet(request) || self.hide_needed(request)
            }
            Opcode::LOOKUP => self.leads_back(request),
            Opcode::OPENDIR => self.root_unmet(request),
            Opcode::READDIR | Opcode::READDIRPLUS => self.listing_needed(request),
            // Under the policy `epoch` nothing of it is left at a crash.
            Opcode::REMOVEXATTR => !self.knows_presence(),
            Opcode::FSYNC | Opcode::FSYNCDIR | Opcode::SYNCFS => self.holds_syncs(),
            _ => false,
        }
    }

    /// What a request's ids become in this generation.
    pub(crate) fn resolve(&self, message: &[u8]) -> Result<Patches, Missing> {
        self.resolve_ids(&Request::parse(message).map_err(|_| Missing::Lost)?)
    }

    /// The same for a request that names one node and one handle at most; `None` if something is
    /// missing.
    #[inline]
    fn usual_ids(&self, request: &Request<'_>) -> Option<Usual> {
        let (node, id) = match request.header.nodeid {
            0 => (None, 0),
            key => {
                let (node, id) = self.store.id_by_key(key, self.life.ids()).ok()?;
                (Some(node), id)
            }
        };
        let place = handle_fields(request).iter().next();
        let key = place.and_then(|at| Some((at, get_u64(request.body, at - HEADER)?)));
        let handle = match key {
            None | Some((_, 0)) => None,
            Some((at, key)) => Some((at, self.store.handle_id_by_key(key, self.life.ids()).ok()?)),
        };
        Some(Usual { node, id, handle })
    }

    fn resolve_ids(&self, request: &Request<'_>) -> Result<Patches, Missing> {
        let mut patches = Patches::default();
        self.resolve_node(NODEID, request.header.nodeid, &mut patches)?;
        for at in node_fields(request) {
            let key = get_u64(request.body, at - HEADER).unwrap_or(0);
            self.resolve_node(at, key, &mut patches)?;
        }
        for at in handle_fields(request) {
            let key = get_u64(request.body, at - HEADER).unwrap_or(0);
            if key == 0 {
                continue; // from a kernel that knows its daemon has no OPEN
            }
            match self.store.handle_id_by_key(key, self.life.ids()) {
                Ok(id) => patches.push(at, id),
                // What is not one of ours must not reach a daemon, which may take it for a pointer.
                Err(None) => return Err(Missing::Gone),
                Err(Some(handle)) => return Err(self.missing_handle(handle)),
            }
        }
        Ok(patches)
    }

    fn resolve_node(&self, at: usize, key: u64, patches: &mut Patches) -> Result<(), Missing> {
        if key != 0 {
            let id = self.store.id_by_key(key, self.life.ids());
            let (_, id) = id.map_err(|node| node.map_or(Missing::Gone, Missing::Node))?;
            patches.push(at, id);
        }
        Ok(())
    }

    #[cold]
    fn missing_handle(&self, handle: Handle) -> Missing {
        if self.store.handle_flags(handle).intersects(HandleFlags::LOST) {
            Missing::Lost
        } else {
            Missing::Handle(handle)
        }
    }

    /// Records that the daemon gets a request, and translates it. `false` without a free slot.
    pub(crate) fn start(
        &mut self,
        message: &mut [u8],
        patches: Patches,
        slot: Option<Slot>,
    ) -> bool {
        let started =
            Request::parse(message).is_ok_and(|request| self.start_request(&request, slot));
        if started {
            patches.apply(message);
        }
        started
    }

    #[inline]
    fn start_request(&mut self, request: &Request<'_>, slot: Option<Slot>) -> bool {
        let started = self.record(request, slot);
        if started {
            self.count(Counter::Requests);
            self.begin_logged(request);
        }
        started
    }

    /// Fills a slot for a request that the daemon is about to get.
    pub(crate) fn record_start(&mut self, message: &[u8], slot: Option<Slot>) -> bool {
        Request::parse(message).is_ok_and(|request| self.record(&request, slot))
    }

    #[inline]
    fn record(&mut self, request: &Request<'_>, slot: Option<Slot>) -> bool {
        let unique = Unique::unmarked(request.header.unique);
        self.slots.see(unique);
        let Some(slot) = slot.or_else(|| self.slots.take_free()) else { return false };
        self.fill(request, slot, SlotState::Started);
        if let Some((index, old)) = self.slots.find(unique) {
            if old == slot {
                return true;
            }
            self.slots.end(index, &self.store);
        }
        self.slots.begin(unique, slot, request.opcode());
        true
    }

    #[inline]
    pub(crate) fn fill(&self, request: &Request<'_>, slot: Slot, state: SlotState) {
        let header = &request.header;
        let in_flight = InFlight {
            state,
            opcode: header.opcode,
            unique: Unique::unmarked(header.unique),
            node: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            generation: self.life.generation(),
        };
        // Of written data only the header matters here; the rest is for the reply's context.
        let kept = if request.opcode() == Opcode::WRITE {
            request.body.get(..40).unwrap_or(request.body)
        } else {
            request.body
        };
        self.store.slot_fill(slot, &in_flight, kept, header.len);
    }
}
