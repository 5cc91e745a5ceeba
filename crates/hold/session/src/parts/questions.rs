//! What belay has asked the daemon by itself, and what waits for the answers.
//!
//! The kernel sends no FORGET of a node that it has a request for, and knows nothing of belay's
//! requests. So the daemon is told to forget nothing before it has answered all that it may have
//! been asked about it until then.

use super::caller::Callers;
use belay_wire::{Ids, Opcode, Request, Unique, fields, get_u64, put_u64};
use std::collections::HashMap;

/// A request of belay's own that the daemon has. `Q` says what its answer means.
#[derive(Clone, Debug)]
pub(crate) struct Asked<Q> {
    /// For the sake of which task.
    pub(crate) task: u64,
    pub(crate) question: Q,
    pub(crate) opcode: Opcode,
    /// The request, and who else may ask, if the daemon refuses.
    again: Option<Box<(Vec<u8>, Callers)>>,
}

/// Lookups of the daemon's node `id` that it is to forget.
#[derive(Clone, Copy, Debug)]
struct Forget {
    id: u64,
    count: u64,
    /// The last question that it may have been asked about that node.
    asked: u64,
}

/// What becomes of an answer.
pub(crate) enum Answered<Q> {
    /// It counts.
    Final(Asked<Q>),
    /// The daemon has refused, and gets this in the name of somebody else.
    Again(Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Questions<Q> {
    asked: HashMap<u64, Asked<Q>, foldhash::fast::RandomState>,
    /// The last number that was given to a question.
    last: u64,
    /// What the daemon is to forget later.
    withheld: Vec<Forget>,
    /// Lookups (the daemon's ids) that are taken back when a request or an errand is over.
    borrowed: Vec<(u64, u64)>,
}

impl<Q> Default for Questions<Q> {
    fn default() -> Self {
        Self { asked: HashMap::default(), last: 0, withheld: Vec::new(), borrowed: Vec::new() }
    }
}

impl<Q> Questions<Q> {
    /// Header of a question about the daemon's node `id`, with a number of its own. In whose name
    /// it is asked is seen to later, see [`Self::ask`].
    pub(crate) fn ids(&mut self, id: u64) -> Ids {
        self.last += 2;
        Ids { unique: Unique::own(self.last).word(), nodeid: id, uid: 0, gid: 0, pid: 0 }
    }

    /// Notes a question that the daemon is about to get for a task, and puts into it who asks: the
    /// first of `callers`; the others if the daemon refuses; as it is if there are none.
    pub(crate) fn ask(&mut self, task: u64, question: Q, message: &mut [u8], mut callers: Callers) {
        let unique = get_u64(message, 8).unwrap_or(0);
        let opcode = Request::parse(message).map_or(Opcode(0), |request| request.opcode());
        let mut again = None;
        if !callers.is_empty() {
            callers.remove(0).sign(message);
            if !callers.is_empty() {
                again = Some(Box::new((message.to_vec(), callers)));
            }
        }
        self.asked.insert(unique, Asked { task, question, opcode, again });
    }

    /// The daemon has answered a question, and has `refused` who asked or not.
    pub(crate) fn answered(&mut self, unique: u64, refused: bool) -> Option<Answered<Q>> {
        let mut asked = self.asked.remove(&unique)?;
        let Some((mut message, mut callers)) = asked.again.take().filter(|_| refused).map(|b| *b)
        else {
            return Some(Answered::Final(asked));
        };
        let unique = self.ids(0).unique;
        let _ = put_u64(&mut message, fields::UNIQUE_OFFSET, unique);
        callers.remove(0).sign(&mut message);
        if !callers.is_empty() {
            asked.again = Some(Box::new((message.clone(), callers)));
        }
        self.asked.insert(unique, asked);
        Some(Answered::Again(message))
    }

    /// Whether nothing is asked now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// How many questions are open.
    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    /// The open question with this number.
    pub(crate) fn get(&self, unique: u64) -> Option<&Asked<Q>> {
        self.asked.get(&unique)
    }

    /// The open questions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Q> {
        self.asked.values().map(|asked| &asked.question)
    }

    /// Whether no question was ever given this number.
    pub(crate) fn is_unasked(&self, unique: u64) -> bool {
        Unique::new(unique).own_number() > self.last
    }

    /// Nodes that the daemon is to forget (its id, how many lookups): gives those that it can be
    /// told of now. The others are withheld.
    #[inline]
    pub(crate) fn withhold(&mut self, forgets: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        if self.asked.is_empty() {
            return forgets;
        }
        let asked = self.last;
        let withheld = forgets.into_iter().map(|(id, count)| Forget { id, count, asked });
        self.withheld.extend(withheld);
        Vec::new()
    }

    /// Lets go of what was withheld for questions that have been answered since.
    pub(crate) fn release(&mut self) -> Vec<(u64, u64)> {
        if self.withheld.is_empty() {
            return Vec::new();
        }
        let number = |unique: &u64| Unique::new(*unique).own_number();
        let oldest = self.asked.keys().map(number).min().unwrap_or(u64::MAX);
        let (told, kept): (Vec<_>, _) =
            std::mem::take(&mut self.withheld).into_iter().partition(|f| f.asked < oldest);
        self.withheld = kept;
        told.into_iter().map(|forget| (forget.id, forget.count)).collect()
    }

    /// A lookup of the daemon's node `id` gives it to nobody: `lender` has it until it is over.
    pub(crate) fn borrow(&mut self, lender: u64, id: u64) {
        self.borrowed.push((lender, id));
    }

    /// Whether there is something to give back.
    #[inline]
    pub(crate) fn has_borrowed(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// A lender is over: what the daemon is to forget of what was looked up for it.
    pub(crate) fn give_back(&mut self, lender: u64) -> Vec<(u64, u64)> {
        let given = self.borrowed.extract_if(.., |(other, _)| *other == lender);
        given.map(|(_, id)| (id, 1)).collect()
    }
}
