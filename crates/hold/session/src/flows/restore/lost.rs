//! What cannot be had again in a successor, which is said at once: which file, why, and what helps.

use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_recorder::control::Loss;
use belay_recorder::{Handle, HandleFlags, Node};
use belay_wire::{EntryOut, Opcode, OpcodeSet, Request};

const REMOVALS: OpcodeSet = OpcodeSet::new(&[Opcode::UNLINK, Opcode::RMDIR]);

impl<M: Memory> Session<M> {
    /// The daemon does not open a handle again, for this reason: who has it gets ESTALE.
    pub(crate) fn lose(&mut self, handle: Handle, errno: i32) {
        self.restored.lose(handle);
        self.store.begin();
        self.store.handle_flag(handle, HandleFlags::LOST, true);
        self.store.commit();
        let why = std::io::Error::from_raw_os_error(errno);
        self.tell(self.store.open_description(handle).node, |path| {
            format!(
                "{path}: the daemon does not open it again ({why}); who has it open gets ESTALE"
            )
        });
    }

    /// The daemon opens a file again for reading only.
    pub(crate) fn tell_read_only(&mut self, node: Node, errno: i32) {
        let why = std::io::Error::from_raw_os_error(errno);
        self.tell(node, |path| {
            format!("{path}: the daemon opens it again for reading only; writes by open handles fail ({why})")
        });
    }

    /// What sits at a node's name has another inode number, so that it counts as another node.
    pub(crate) fn tell_renumbered(&mut self, node: Node, entry: &EntryOut) {
        let (before, now) = (self.store.ino(node), entry.attr.ino);
        let in_use = self.store.opens(node) > 0
            || self.store.kind(node) == crate::traffic::entries::DIRECTORY;
        if before != now && in_use && self.store.kind(node) == kind_of(entry.attr.mode) {
            self.tell(node, |path| {
                format!(
                    "{path}: its inode number was {before} and is {now}, so it counts as replaced; who has it open gets \
                     ESTALE. If the daemon itself changes numbers, use --inode-numbers volatile"
                )
            });
        }
    }

    /// The last name of a node leads to nothing now, or to something of another kind.
    pub(crate) fn tell_gone(
        &mut self,
        node: Node,
        (parent, name): (Node, &[u8]),
        found: Option<&EntryOut>,
    ) {
        let other = found.is_none_or(|entry| self.store.kind(node) != kind_of(entry.attr.mode));
        let mut names = self.store.dentries(node);
        let last = names.next().is_some() && names.next().is_none();
        drop(names);
        // Whoever removes it need not hear of it.
        let key = self.store.key(parent);
        let removed = || {
            self.tasks.iter().any(|task| {
                REMOVALS.has(task.flow.opcode())
                    && Request::parse(task.flow.message()).is_ok_and(|request| {
                        request.header.nodeid == key && request.names().first == Some(name)
                    })
            })
        };
        if other && last && self.store.opens(node) > 0 && !removed() {
            self.tell(node, |path| {
                format!("{path}: it is not there any more; who has it open gets ESTALE")
            });
        }
    }

    fn tell(&mut self, node: Node, what: impl FnOnce(&str) -> String) {
        let key = self.store.key(node);
        if self.restored.tells_loss(key) {
            let path = format!("/{}", self.path_of(key));
            self.control().lose(Loss::Handle, &what(&path));
        }
    }
}
