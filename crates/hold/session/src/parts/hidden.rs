//! Files that are open and have no name but a hidden one, and what is known of them in this life.

use super::caller::Caller;
use belay_recorder::Node;
use std::collections::HashMap;

/// What hidden names start with.
pub(crate) const PREFIX: &[u8] = b".belay-hidden-";

/// Whether a name is one of belay's hidden ones.
pub(crate) fn is_hidden_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hidden {
    /// Nodes kept open under hidden names.
    nodes: Vec<Node>,
    /// Files whose links the daemon is to count right: the latest request of the kernel when that
    /// came to be, and the name that each had.
    lone: HashMap<Node, (u64, String)>,
    /// Who may remove hidden files.
    removers: HashMap<Node, Caller>,
    /// The daemon accepted a LINK for hiding, as far as is known.
    links_work: bool,
}

impl Hidden {
    /// These nodes have hidden names already.
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        Self { nodes, lone: HashMap::new(), removers: HashMap::new(), links_work: true }
    }

    /// Whether nothing is hidden.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What is hidden.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().copied()
    }

    /// A node has no name but a hidden one from now on.
    pub(crate) fn add(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// A hidden file is removed.
    pub(crate) fn remove(&mut self, node: Node) {
        self.nodes.retain(|other| *other != node);
        self.removers.remove(&node);
    }

    /// Who may remove a hidden file, if that is known.
    pub(crate) fn remover(&self, node: Node) -> Option<Caller> {
        self.removers.get(&node).copied()
    }

    /// This one has removed the file's name.
    pub(crate) fn set_remover(&mut self, node: Node, remover: Caller) {
        self.removers.insert(node, remover);
    }

    /// The same, unless somebody else is known to have.
    pub(crate) fn guess_remover(&mut self, node: Node, remover: Caller) {
        self.removers.entry(node).or_insert(remover);
    }

    /// The file is not hidden after all.
    pub(crate) fn forget_remover(&mut self, node: Node) {
        self.removers.remove(&node);
    }

    /// Whether hiding by LINK has kept each file's node so far.
    pub(crate) fn links_work(&self) -> bool {
        self.links_work
    }

    /// A LINK has kept its file's node, or has not.
    pub(crate) fn note_link(&mut self, one_node: bool) {
        self.links_work &= one_node;
    }

    /// A file with the name at `path` has a hidden link besides, and no other.
    pub(crate) fn note_lone(&mut self, node: Node, path: String) {
        self.lone.insert(node, (0, path));
    }

    /// The name of such a file is gone: what the kernel asks behind the request `newest` is to be
    /// counted right.
    pub(crate) fn begin_lone(&mut self, node: Node, newest: u64) {
        if let Some((since, _)) = self.lone.get_mut(&node) {
            *since = newest;
        }
    }

    /// Whether the request `unique` may tell of such a file as it was before.
    pub(crate) fn is_before_lone(&self, node: Node, unique: u64) -> bool {
        self.lone.get(&node).is_some_and(|(newest, _)| unique <= *newest)
    }

    /// How many links it has is not looked at any more. Gives the name that it had, if that is
    /// known.
    pub(crate) fn end_lone(&mut self, node: Node) -> Option<String> {
        self.lone.remove(&node).map(|(_, path)| path)
    }
}
