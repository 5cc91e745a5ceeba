//! Whether an answer of the namespace module is one that belay passes on. A module that breaks a
//! rule of these is ended, and so are its next lives, if what they read makes them do the same.

use belay_wire::rules::{Shape, broken_attr_reply, broken_entry, broken_header, broken_listing};
use belay_wire::{EntryOut, Opcode, Reply, Request};
use zerocopy::FromBytes;

/// Looks at an answer.
///
/// # Errors
/// What is wrong with it.
pub fn keeps(message: &[u8], answer: &[u8]) -> Result<(), String> {
    let request = Request::parse(message).map_err(|why| format!("no request: {why:?}"))?;
    let reply = Reply::parse(answer).map_err(|why| format!("no reply: {why:?}"))?;
    let (header, body, opcode) = (reply.header, reply.body, request.opcode());
    let rule = broken_header(&header, answer.len())
        .or_else(|| Shape::of(&request).broken(&header, body))
        .or_else(|| match opcode {
            _ if header.error != 0 => None,
            Opcode::GETATTR | Opcode::SETATTR => broken_attr_reply(body, None),
            Opcode::LOOKUP
            | Opcode::MKNOD
            | Opcode::MKDIR
            | Opcode::SYMLINK
            | Opcode::LINK
            | Opcode::CREATE => {
                let (entry, _) = EntryOut::read_from_prefix(body).ok()?;
                broken_entry(opcode, request.body, &entry, None)
            }
            Opcode::READDIR | Opcode::READDIRPLUS => {
                broken_listing(body, opcode == Opcode::READDIRPLUS)
            }
            _ => None,
        });
    match rule {
        None => Ok(()),
        Some(rule) => Err(format!("{rule}: {}", request.describe())),
    }
}
