//! Having the daemon store a file, where it stores them one by one (policy `buffer`).
//!
//! | module | answers |
//! | --- | --- |
//! | [`behind`] | how a file is stored whose length was set by no handle |
//! | [`relief`] | how a file is stored early, where the room in the op-log is short |

mod behind;
mod relief;
pub(crate) mod state;

use crate::flows::store::state::Question;
use crate::session::Session;
use belay_memory::Memory;

impl<M: Memory> Session<M> {
    /// The daemon's answer to a question of this flow.
    pub(crate) fn on_store_reply(&mut self, task: u64, question: &Question, reply: &[u8]) {
        match *question {
            Question::Store { unique, .. } => self.stored(task, unique, reply),
            Question::OpenBehind { file } => self.opened_behind(task, file, reply),
            Question::CloseBehind { file, unique } => {
                self.closed_behind(task, file, unique, reply);
            }
        }
    }
}
