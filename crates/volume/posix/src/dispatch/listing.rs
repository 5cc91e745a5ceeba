//! READDIR and READDIRPLUS.

use super::{Answer, MOST, SHORT, answers};
use crate::namespace::Namespace;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::abi::ReadIn;
use belay_wire::{Opcode, Request, push_dirent, push_direntplus};
use zerocopy::FromZeros;

/// What a listing is answered, from where the last one has ended.
pub(super) fn list<M: Memory, B: Lower>(
    namespace: &mut Namespace<'_, '_, M, B>,
    request: &Request<'_>,
    node: ObjectId,
) -> Answer<B::Error> {
    let asked = request.body_as::<ReadIn>().ok_or(SHORT)?;
    let limit = asked.size.min(MOST) as usize;
    let mut out = Vec::new();
    // At least so many bytes take a name.
    for entry in namespace.list(node, asked.offset, limit / 32 + 1)? {
        let (ino, kind) = (entry.object.0, u32::from(entry.kind));
        let dots = entry.name == b"." || entry.name == b"..";
        let fits = match request.opcode() {
            Opcode::READDIRPLUS => {
                let mut known = belay_wire::EntryOut::new_zeroed();
                // The kernel does not count these as looked up. Of what cannot be read it takes the
                // name alone, and asks again when somebody wants to know more.
                if !dots && let Some(node) = namespace.listed(&entry)? {
                    known = answers::entry(&node);
                }
                push_direntplus(&mut out, limit, &known, ino, entry.key, kind, &entry.name)
            }
            _ => push_dirent(&mut out, limit, ino, entry.key, kind, &entry.name),
        };
        if !fits {
            break;
        }
    }
    Ok(out)
}
