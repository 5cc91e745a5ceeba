//! Replies that break the protocol (Membrane, section 4.2): a daemon that gives one has a fault,
//! and what it says next is worth no more than that. Such a reply is not passed on; its daemon is
//! ended by the host, as if it had crashed.

use crate::message::{Outgoing, read};
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{InFlight, Node, Slot};
use belay_wire::abi::{InHeader, LinkIn, OutHeader};
use belay_wire::rules::{broken_attr_reply, broken_entry, broken_header, broken_listing};
use belay_wire::{EntryOut, Opcode, Request, Rule, Shape, Unique};

/// Bytes of a request's body that tell what its reply may be like.
const HEAD: usize = 40;

impl<M: Memory> Session<M> {
    /// Which rule a reply breaks, if one. `body` is empty where the reply cannot be seen.
    pub(crate) fn broken(
        &self,
        slot: Slot,
        opcode: Opcode,
        header: &OutHeader,
        body: &[u8],
    ) -> Option<Rule> {
        if !body.is_empty()
            && let Some(rule) = broken_header(header, size_of::<OutHeader>() + body.len())
        {
            return Some(rule);
        }
        let mut asked = [0; HEAD];
        let asked: &[u8] = if Shape::is_in_body(opcode) || belay_wire::is_entry_reply(opcode) {
            self.store.slot_body_start(slot, &mut asked)
        } else {
            &[]
        };
        if let Some(rule) = Shape::of_body(opcode, asked).broken(header, body) {
            return Some(rule);
        }
        if header.error != 0 || body.is_empty() {
            return None;
        }
        match opcode {
            Opcode::GETATTR | Opcode::SETATTR => {
                let known = self.unchanging(self.store.slot_node(slot));
                broken_attr_reply(body, known)
            }
            Opcode::READDIR => broken_listing(body, false),
            Opcode::READDIRPLUS => broken_listing(body, true),
            _ if belay_wire::is_entry_reply(opcode) => {
                let linked = read::<LinkIn>(asked).filter(|_| opcode == Opcode::LINK);
                let linked = linked.and_then(|link| self.unchanging(link.oldnodeid));
                broken_entry(opcode, asked, &read::<EntryOut>(body)?, linked)
            }
            _ => None,
        }
    }

    /// The type of a node, if it can have no other: where nobody but the daemon changes what is
    /// behind the mount. By the path of a file on a shared disk, a daemon may well find a directory
    /// one day.
    fn unchanging(&self, key: u64) -> Option<u32> {
        if !self.life.owns_types() {
            return None;
        }
        let node = self.store.node_by_key(key).filter(|node| *node != Node::ROOT)?;
        Some(self.store.kind(node)).filter(|kind| *kind != 0)
    }

    /// A reply to what is not in hand. It may be a second one, or to INTERRUPT: the kernel knows.
    /// But to what it has not asked yet there is no answer.
    #[cold]
    pub(crate) fn on_unknown(&self, unique: u64) -> Outgoing {
        if self.slots.newest() != 0 && unique & !1 > self.slots.newest() {
            return Outgoing::Fault(Rule::Unique);
        }
        Outgoing::Pass
    }

    /// What the reply to `unique` is about, for the report.
    pub fn describe_in_hand(&self, unique: u64) -> String {
        let unique = Unique::unmarked(unique);
        if Unique::new(unique).is_own() {
            let asked = self.questions.get(unique);
            return asked.map_or_else(
                || format!("none (unique={unique})"),
                |asked| format!("{:?}, asked by belay", asked.question),
            );
        }
        let request = |slot| -> Option<(InFlight, Slot)> {
            Some((self.store.slot_request(slot)?, slot)).filter(|(r, _)| r.unique == unique)
        };
        let slot = self.slots.find(unique).map(|(_, slot)| slot).and_then(request);
        let slot = slot.or_else(|| {
            self.store.slot_requests().find(|(_, r)| r.unique == unique).map(|(s, r)| (r, s))
        });
        let Some((found, slot)) = slot else { return format!("none (unique={unique})") };
        let (body, _) = self.store.slot_body(slot);
        let header: InHeader = crate::message::header_of(&found);
        Request { header, body: &body }.describe()
    }
}

/// The beginning of a reply, for the report.
pub fn describe_reply(header: &OutHeader, total: usize, body: &[u8]) -> String {
    use std::fmt::Write as _;
    let (len, error, unique) = (header.len, header.error, header.unique);
    let mut text = format!("len={len} error={error} unique={unique}, {total} bytes");
    for (number, byte) in body.iter().take(48).enumerate() {
        let gap = if number == 0 {
            ": "
        } else if number % 8 == 0 {
            " "
        } else {
            ""
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{byte:02x}");
    }
    text
}
