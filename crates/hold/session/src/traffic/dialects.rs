//! Daemons of an old minor version: the session has all messages in their newest form, see
//! [`belay_wire::dialect`].

use crate::message::{Message, Outgoing, read};
use crate::session::Session;
use crate::traffic::requests::Incoming;
use crate::work::Work;
use belay_memory::Memory;
use belay_recorder::Slot;
use belay_wire::abi::OutHeader;
use belay_wire::{Dialect, Opcode, Unique};

impl<M: Memory> Session<M> {
    /// Learns what the first daemon has answered to INIT, which counts for all that follow: the
    /// kernel goes by it.
    pub fn learn_dialect(&mut self) {
        let dialect = Dialect::of_init(&self.control().init_reply());
        self.life.speak(dialect);
    }

    /// See [`Session::on_request`].
    #[cold]
    pub(crate) fn on_old_request(
        &mut self,
        message: &mut [u8],
        slot: Option<Slot>,
        now: u64,
    ) -> Incoming {
        let Some(mut wide) = self.life.dialect().widen_request(message) else {
            return self.on_whole_request(message, slot, now);
        };
        let incoming = self.on_whole_request(&mut wide, slot, now);
        if incoming == Incoming::Deliver
            && let Some(narrow) = self.life.dialect().narrow_request(&wide)
            && let Some(place) = message.get_mut(..narrow.len())
        {
            place.copy_from_slice(&narrow);
        }
        incoming
    }

    /// See [`Session::on_reply`].
    #[cold]
    pub(crate) fn on_old_reply(&mut self, head: &[u8], body: &[u8], taken: bool) -> Outgoing {
        let whole = crate::message::whole(head, body);
        let opcode = read::<OutHeader>(head).and_then(|header| self.opcode_of(header.unique));
        // A reply that cannot be seen has no body here, and is none of these.
        let wide = opcode
            .filter(|_| !body.is_empty())
            .and_then(|opcode| self.life.dialect().widen_reply(opcode, &whole));
        let (Some(wide), Some(opcode)) = (wide, opcode) else {
            return self.on_whole_reply(head, || body.into(), taken);
        };
        let (head, body) = wide.split_at(size_of::<OutHeader>().min(wide.len()));
        match self.on_whole_reply(head, || body.into(), taken) {
            Outgoing::Replace(message) => {
                let narrow = self.life.dialect().narrow_reply(opcode, message.as_bytes());
                let narrow = narrow.and_then(|narrow| {
                    let (head, body) = narrow.split_at_checked(size_of::<OutHeader>())?;
                    Message::new(head, body)
                });
                Outgoing::Replace(narrow.unwrap_or(message))
            }
            outgoing => outgoing,
        }
    }

    fn opcode_of(&self, unique: u64) -> Option<Opcode> {
        if Unique::new(unique).is_own() {
            return self.questions.get(unique).map(|asked| asked.opcode);
        }
        self.opcode_in_hand(Unique::unmarked(unique))
    }

    /// What is for the daemon, in its dialect.
    #[cold]
    pub(crate) fn in_dialect(&self, work: Work) -> Work {
        match work {
            Work::Deliver(message) => {
                Work::Deliver(self.life.dialect().narrow_request(&message).unwrap_or(message))
            }
            Work::DeliverWith(message, data) => Work::DeliverWith(
                self.life.dialect().narrow_request(&message).unwrap_or(message),
                data,
            ),
            other => other,
        }
    }

    /// An answer that the kernel is given in the daemon's stead, as long as the daemon's would be.
    pub(crate) fn answer_in_dialect(&self, opcode: Opcode, reply: Vec<u8>) -> Vec<u8> {
        let failed = read::<OutHeader>(&reply).is_none_or(|header| header.error != 0);
        if failed {
            return reply;
        }
        self.life.dialect().narrow_reply(opcode, &reply).unwrap_or(reply)
    }
}
