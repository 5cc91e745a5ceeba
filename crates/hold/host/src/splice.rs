//! What becomes of a message that went from the device into a pipe (splice(2)), as libfuse takes
//! requests.

use crate::after::After;
use crate::environment::Environment;
use crate::head::opcode;
use crate::host::Host;
use belay_memory::Memory;
use belay_wire::Opcode;

/// Bytes that libfuse reads first from the pipe: fuse_in_header and fuse_write_in.
pub const HEAD: usize = 80;
/// Below this libfuse reads the whole request from the pipe at once (lib/fuse_lowlevel.c,
/// fuse_session_receive_buf: header, write_in and a page).
pub const SHORT: usize = HEAD + 4096;

/// What to do with a message whose beginning was taken out of the pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spliced {
    /// Give the daemon this head. Its data are still in the pipe, and stay there.
    Head(Vec<u8>),
    /// Give it this, all of which was taken out.
    Whole(Vec<u8>),
    /// It was taken.
    Again,
}

impl<M: Memory> Host<M> {
    /// Takes a message of `got` bytes that is in a pipe, from a thread that gives it to the daemon
    /// next. Of a long WRITE of which nothing but the ids need a change, the head alone is taken
    /// out. `drain` fills its buffer from the pipe. `None` if it cannot.
    pub fn after_splice(
        &self,
        env: &impl Environment<M>,
        got: usize,
        mut drain: impl FnMut(&mut [u8]) -> bool,
    ) -> Option<Spliced> {
        let mut message = vec![0; if got < SHORT { got } else { HEAD }];
        if !drain(&mut message) {
            return None;
        }
        if got >= SHORT && opcode(&message) == Opcode::WRITE {
            let mut head = message.clone();
            set_length(&mut head, HEAD);
            if self.pass_head(env, &mut head) {
                set_length(&mut head, got);
                return Some(Spliced::Head(head));
            }
        }
        let have = message.len();
        message.resize(got, 0);
        if !drain(message.get_mut(have..).unwrap_or_default()) {
            return None;
        }
        Some(match self.after_read(env, &mut message, None) {
            After::Deliver(len) => {
                message.truncate(len);
                Spliced::Whole(message)
            }
            After::Again => Spliced::Again,
        })
    }
}

/// Has a message say that it has so many bytes.
pub fn set_length(message: &mut [u8], len: usize) {
    if let Some(word) = message.get_mut(..4) {
        word.copy_from_slice(&(len as u32).to_ne_bytes());
    }
}
