//! Notifications from the daemon speak of its own node ids; the kernel knows others.

use crate::message::Outgoing;
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::abi::{NotifyPollWakeupOut, notify};
use belay_wire::errno::{ENOENT, ENOSYS};
use belay_wire::{build, get_u64, put_u64, record};
use zerocopy::IntoBytes;

impl<M: Memory> Session<M> {
    /// Translates a notification.
    pub(crate) fn on_notification(&mut self, code: i32, mut message: Vec<u8>) -> Outgoing {
        // Byte offsets, from the start of the message, of node ids.
        let ids: &[usize] = match code {
            notify::INVAL_INODE | notify::INVAL_ENTRY | notify::STORE => &[16],
            notify::RETRIEVE => &[24],
            notify::DELETE => &[16, 24],
            // What the kernel has forgotten is not on record any more.
            record::IS_KNOWN if self.life.keeps_records() => {
                let id = get_u64(&message, 16).unwrap_or(0);
                return match self.store.node_by_id(self.life.ids(), id) {
                    Some(_) => Outgoing::Swallow,
                    None => Outgoing::Refuse(ENOENT),
                };
            }
            notify::RESEND => return Outgoing::Refuse(ENOENT), // belay's alone to send
            // Its list of node ids would need translation; libfuse does not send it yet.
            notify::PRUNE => return Outgoing::Refuse(ENOSYS),
            _ => return Outgoing::Pass,
        };
        let mut patches = [(0, 0); 2];
        let mut changed = false;
        for (place, at) in patches.iter_mut().zip(ids) {
            let id = get_u64(&message, *at).unwrap_or(0);
            let Some(node) = self.store.node_by_id(self.life.ids(), id) else {
                return Outgoing::Refuse(ENOENT); // the kernel would say the same
            };
            let key = self.store.key(node);
            changed |= key != id;
            *place = (*at, key);
        }
        if !changed {
            return Outgoing::Pass;
        }
        for (at, key) in patches.iter().take(ids.len()) {
            let _ = put_u64(&mut message, *at, *key);
        }
        Outgoing::ReplaceLong(message)
    }

    /// A notification that makes the kernel wake one reader, see [`build::kick`].
    pub fn kick_message(&self) -> Vec<u8> {
        build::kick(self.store.some_file())
    }

    /// A notification that makes the kernel poll a file again.
    pub(crate) fn poll_wakeup(kh: u64) -> Vec<u8> {
        build::notify(notify::POLL, NotifyPollWakeupOut { kh }.as_bytes())
    }
}
