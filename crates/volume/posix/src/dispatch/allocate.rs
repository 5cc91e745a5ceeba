//! FALLOCATE: more may be made zeros than one transaction can hold.

use super::{Answer, MOST_BEGUN, Module, SHORT};
use crate::namespace::{Caller, Namespace};
use crate::view::View;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::Request;
use belay_wire::abi::FallocateIn;
use rustix::io::Errno;

impl<M: Memory, B: Lower> Module<M, B> {
    /// In as many transactions as it takes. Each does no harm if it is done again, as the next life
    /// does: the kernel lets nobody write to the file meanwhile.
    pub(super) fn allocate(
        &mut self,
        request: &Request<'_>,
        node: ObjectId,
        caller: Caller,
    ) -> Answer<B::Error> {
        let asked = request.body_as::<FallocateIn>().ok_or(SHORT)?;
        let unique = request.header.unique;
        let end = asked.offset.checked_add(asked.length).ok_or(Errno::FBIG)?;
        let mut at = self.progress(unique).unwrap_or(asked.offset);
        loop {
            let mut view = View::new(&mut self.publisher, &mut self.below);
            let mut namespace = Namespace::new(&mut view, caller, &mut self.memo);
            let more = namespace.allocate(node, at, end.saturating_sub(at), asked.mode)?;
            // The request is done with the last of them.
            view.commit(if more.is_some() { 0 } else { unique }, b"")?;
            let Some(next) = more else {
                self.begun.remove(&unique);
                return Ok(Vec::new());
            };
            at = next;
            if self.begun.len() >= MOST_BEGUN {
                self.begun.clear();
            }
            self.begun.insert(unique, at);
        }
    }
}
