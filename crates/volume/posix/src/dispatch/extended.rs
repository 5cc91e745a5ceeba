//! Messages about extended attributes.

use crate::error::Result;
use crate::namespace::{Namespace, Set};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::abi::{GetxattrIn, GetxattrOut, SetxattrInShort};
use belay_wire::{Opcode, Request};
use rustix::io::Errno;
use zerocopy::IntoBytes;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Answers a request that is about them.
pub(super) fn answer<M: Memory, B: Lower>(
    namespace: &mut Namespace<'_, '_, M, B>,
    request: &Request<'_>,
    node: ObjectId,
) -> Result<Vec<u8>, B::Error> {
    // The long form of SETXATTR is not negotiated.
    let name = request.names_with(false).first.ok_or(Errno::INVAL);
    match request.opcode() {
        Opcode::SETXATTR => {
            let asked = request.body_as::<SetxattrInShort>().ok_or(Errno::INVAL)?;
            let value = request.xattr_value_with(false).ok_or(Errno::INVAL)?;
            let how = match asked.flags {
                0 => Set::Any,
                CREATE => Set::Create,
                REPLACE => Set::Replace,
                _ => return Err(Errno::INVAL.into()),
            };
            namespace.set_extended(node, name?, value, how)?;
            Ok(Vec::new())
        }
        Opcode::REMOVEXATTR => {
            namespace.remove_extended(node, name?)?;
            Ok(Vec::new())
        }
        Opcode::GETXATTR => {
            let value = namespace.get_extended(node, name?)?;
            sized(request, value)
        }
        _ => {
            let sees_all = namespace.caller().uid == 0;
            let mut names = Vec::new();
            for one in namespace.extended(node)? {
                if sees_all || !one.is_trusted() {
                    names.extend_from_slice(&one.name);
                    names.push(0);
                }
            }
            sized(request, names)
        }
    }
}

/// What was asked for, or how long it is, or that this is longer than the room for it.
fn sized<E>(request: &Request<'_>, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
    let asked = request.body_as::<GetxattrIn>().ok_or(Errno::INVAL)?;
    match asked.size as usize {
        0 => {
            let out = GetxattrOut { size: bytes.len() as u32, padding: 0 };
            Ok(out.as_bytes().to_vec())
        }
        room if bytes.len() > room => Err(Errno::RANGE.into()),
        _ => Ok(bytes),
    }
}
