//! Which nodes are kept open under hidden names: a list that survives the daemon, so that no
//! hidden file outlives its last handle.

use crate::nodes::Node;
use crate::store::{HIDDEN, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const BYTES: usize = 16;

impl<M: Memory> Store<M> {
    /// The nodes on the list.
    pub fn hidden(&self) -> Vec<Node> {
        self.hidden_items().into_iter().map(|(_, node)| node).collect()
    }

    /// Puts a node on the list, once. `false` if the store is full.
    pub fn hidden_add(&self, node: Node) -> bool {
        if self.hidden().contains(&node) {
            return true;
        }
        let Some(item) = self.alloc(BYTES) else { return false };
        self.set(self.block(item), pair(low(self.header(HIDDEN)), node.0));
        self.put(HIDDEN, u64::from(item));
        true
    }

    /// Takes a node off the list.
    pub fn hidden_remove(&self, node: Node) {
        let mut previous = None;
        for (item, listed) in self.hidden_items() {
            if listed == node {
                let next = high(self.word(self.block(item)));
                match previous {
                    None => self.put(HIDDEN, u64::from(next)),
                    Some(previous) => self.set_high(self.block(previous), next),
                }
                self.free(item, BYTES);
                return;
            }
            previous = Some(item);
        }
    }

    fn hidden_items(&self) -> Vec<(u32, Node)> {
        let mut items = Vec::new();
        let mut item = low(self.header(HIDDEN));
        while item != 0 && items.len() < 1 << 20 {
            let word = self.word(self.block(item));
            items.push((item, Node(low(word))));
            item = high(word);
        }
        items
    }
}
