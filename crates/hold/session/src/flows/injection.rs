//! Requests that belay puts to a daemon on its own behalf.

use crate::flows::rollforward::Forwarded;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{Handle, Lock, Node};

/// What an injected request is for, and so what its reply means.
#[derive(Clone, Debug)]
pub(crate) enum Injection {
    /// LOOKUP that brings a node back under one of its names.
    RestoreNode { node: Node, parent: Node, name: Vec<u8> },
    /// LOOKUP of a name that the daemon has not been asked for, with the node that it had and is not known.
    Meet { parent: Node, name: Vec<u8>, child: Option<Node> },
    /// GETATTR of the root, before it is opened.
    MeetRoot,
    /// LOOKUP on the way to a file below a directory that may be another.
    Vouch { node: Node },
    /// OPEN or OPENDIR that brings a handle back.
    Reopen { handle: Handle },
    /// GETATTR before a reopen that the file's mode forbids.
    ReadMode { handle: Handle, errno: i32 },
    /// SETATTR that lets the reopen through.
    WidenMode { handle: Handle, mode: u32 },
    /// SETATTR that puts the mode back.
    NarrowMode { handle: Handle },
    /// The same, where a dead generation had widened it.
    NarrowLeft { handle: Handle },
    /// SETLK that takes a lost lock again.
    Relock { lock: Lock },
    /// RENAME of a hidden file back to its name, after the rename over it failed.
    Unhide { node: Node },
    /// LOOKUP of the name that a request is about.
    ProbeName,
    /// LOOKUP of the name that a rename goes to.
    ProbeTarget,
    /// OPEN of a file whose CREATE had already happened.
    OpenCreated,
    /// SETATTR that lets that OPEN through, and the one that takes it back.
    WidenCreated,
    /// See [`Injection::WidenCreated`].
    NarrowCreated,
    /// GETATTR for the size of a file that was appended to.
    ProbeSize,
    /// SETATTR that cuts off a partial append.
    CutTail,
    /// GETXATTR of the attribute that a request is about.
    ProbeXattr,
    /// GETXATTR of the attribute that is about to be removed.
    ProbePresence,
    /// REMOVEXATTR of an attribute that is not there: what the daemon says to that.
    RemoveAbsent,
    /// RENAME of an open file to a hidden name, instead of its UNLINK.
    HideByRename { node: Node },
    /// LINK of an open file to a hidden name, before a rename over it.
    HideByLink { node: Node },
    /// RENAME of an open file to a hidden name, before a rename over it, where LINK is refused.
    HideTarget { node: Node },
    /// UNLINK of the name that such a RENAME left, because both names are links of one file.
    DropTarget,
    /// RENAME of a hidden file out of a directory that is being removed.
    MoveHidden { node: Node, from: Node, to: Node },
    /// UNLINK of a hidden file at its last release.
    RemoveHidden { node: Node },
    /// READDIR, or READDIRPLUS, of the whole directory in a successor.
    List { handle: Handle, plus: bool },
    /// What the roll-forward asks.
    Forward(Forwarded),
    /// OPENDIR, FSYNCDIR and RELEASEDIR of the root, by which a daemon writes all that it holds.
    Flush,
    /// FLUSH of a file, which makes room in the op-log; its number.
    Store { handle: Handle, unique: u64 },
    /// OPEN of a file whose length was set by no handle.
    OpenBehind { file: u64 },
    /// RELEASE of that, by which the daemon stores it; its number.
    CloseBehind { file: u64, unique: u64 },
}

impl<M: Memory> Session<M> {
    /// Takes the reply to an injected request.
    pub(crate) fn absorb(&mut self, task: u64, injection: Injection, reply: &[u8]) {
        if self.logged.is_kept() {
            self.log_injected(task, &injection, reply);
        }
        match injection {
            Injection::RestoreNode { node, parent, name } => {
                self.restored_node(task, node, parent, &name, reply);
            }
            Injection::Meet { parent, name, child } => {
                self.met_name(task, parent, &name, child, reply);
            }
            Injection::MeetRoot => self.met_root(task),
            Injection::Vouch { node } => self.vouched(task, node, reply),
            Injection::Reopen { handle } => self.reopened(task, handle, reply),
            Injection::ReadMode { handle, errno } => self.mode_read(task, handle, errno, reply),
            Injection::WidenMode { handle, mode } => self.mode_widened(task, handle, mode, reply),
            Injection::NarrowMode { handle } => self.mode_narrowed(task, handle),
            Injection::NarrowLeft { handle } => self.left_narrowed(task, handle),
            Injection::Relock { lock } => self.relocked(task, lock, reply),
            Injection::ProbeName => self.probed_name(task, reply),
            Injection::ProbeTarget => self.probed_target(task, reply),
            Injection::OpenCreated => self.opened_created(task, reply),
            Injection::WidenCreated => self.widened_created(task, reply),
            Injection::NarrowCreated => self.narrowed_created(task),
            Injection::ProbeSize => self.probed_size(task, reply),
            Injection::CutTail => self.cut_tail(task, reply),
            Injection::ProbeXattr => self.probed_xattr(task, reply),
            Injection::ProbePresence => self.probed_presence(task, reply),
            Injection::RemoveAbsent => self.refused_absent(task, reply),
            Injection::HideByRename { node } => self.hidden_by_rename(task, node, reply),
            Injection::HideByLink { node } => self.hidden_by_link(task, node, reply),
            Injection::HideTarget { node } => self.moved_target(task, node, reply),
            Injection::DropTarget => self.dropped_target(task),
            Injection::MoveHidden { node, from, to } => {
                self.moved_hidden(task, node, (from, to), reply);
            }
            Injection::RemoveHidden { node } => self.removed_hidden(task, node),
            Injection::Unhide { .. } => self.unhidden(task, reply),
            Injection::List { handle, plus } => self.listed(task, handle, plus, reply),
            Injection::Forward(what) => self.forwarded(task, what, reply),
            Injection::Flush => self.flushed(task, reply),
            Injection::Store { unique, .. } => self.stored(task, unique, reply),
            Injection::OpenBehind { file } => self.opened_behind(task, file, reply),
            Injection::CloseBehind { file, unique } => {
                self.closed_behind(task, file, unique, reply);
            }
        }
    }
}
