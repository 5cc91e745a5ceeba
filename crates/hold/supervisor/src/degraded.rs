//! Why a mount is DEGRADED: what was lost, or cannot be kept now. The one list of such reasons.
//!
//! The supervisor adds to it by `Supervisor::degrade` and takes away by `Supervisor::restored`; a
//! shim by `Control::lose`, which the supervisor carries over. To add a kind: a value of [`Kind`],
//! and a row in docs/status-json.md.

use belay_memory::Memory;
use belay_recorder::Control;
use belay_recorder::control::Loss;
use serde::{Deserialize, Serialize};

/// Reasons that are listed; of further ones it is only known how many.
const LISTED: usize = 32;
/// Characters of a reason's text.
const TEXT: usize = 512;

/// What helps where belay may not end a daemon.
pub const KILL_REMEDY: &str =
    "give belay that capability (in a container: --cap-add KILL), or let the daemon keep its user";

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Something is not on record: a further crash cannot be hidden exactly. For good.
    Record,
    /// A successor negotiated other options than the first daemon. For good.
    Options,
    /// Data that was acknowledged is lost. For good.
    Data,
    /// An open file or directory was not opened again. For good.
    Handle,
    /// Data of a file that was acknowledged is neither stored nor on record: it is lost if the
    /// daemon dies. Until the file is stored.
    Unstored,
    /// Checkpoints do not reach the image, or the stores of a volume.
    Commit,
    /// An image of a volume is not at its path any more. Until it is there again.
    Image,
    /// A process of a volume dies again and again. Until it has not for a while.
    Process,
    /// The daemon's program is gone, or another one that does not serve: the daemon runs on from
    /// the one that did.
    Program,
    /// Belay may not end the daemon, which has another user; or has killed it, and it does not end.
    Kill,
    /// A request went another way when it was done again after a crash, and failed; or may have
    /// been done twice. For good.
    Request,
    /// What the daemon says of the links of an open file that another was renamed over is wrong.
    /// For good.
    Links,
    /// The daemon writes on to a mount that the host has made read-only.
    Mount,
    /// The daemon was seen to work on a disk image, and its policy is not for such. For good.
    Policy,
    /// The daemon has made another mount, which is not held. For good.
    SecondMount,
}

impl From<Loss> for Kind {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Record => Self::Record,
            Loss::Options => Self::Options,
            Loss::Data => Self::Data,
            Loss::Handle => Self::Handle,
            Loss::Request => Self::Request,
            Loss::Links => Self::Links,
            Loss::Second => Self::SecondMount,
            Loss::Unstored | Loss::Stored => Self::Unstored,
        }
    }
}

/// Why a mount is degraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Of which kind.
    pub kind: Kind,
    /// What is lost or fails, and on what: one line.
    pub what: String,
    /// Since when: RFC 3339, UTC.
    pub since: String,
}

/// All reasons of a mount, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    list: Vec<Reason>,
    unlisted: u64,
    /// Losses that shims have told of, and that are in the list.
    #[serde(default)]
    heard: u64,
    /// The one after these that somebody is just telling, and since when: monotonic, in
    /// nanoseconds.
    #[serde(skip)]
    begun: Option<(u64, u64)>,
}

/// Why a mount is read-only, and what that keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOnly {
    /// Why.
    pub reason: String,
    /// Where what was acknowledged since the checkpoint is kept; `null` if nothing was, or it could
    /// not be.
    pub oplog: Option<String>,
    /// How many operations these are.
    pub operations: u64,
}

/// Who tells of a loss does so at once. One that is not told for so long was begun by somebody who
/// has died.
const TELLING: u64 = 10_000_000_000;

impl Reasons {
    /// The losses that shims have told of since this was asked last.
    pub fn hear<M: Memory>(&mut self, control: &Control<'_, M>, now: u64) -> Vec<(Loss, String)> {
        let mut heard = Vec::new();
        loop {
            let top = control.loss_top();
            if top == self.heard {
                return heard;
            }
            let (losses, next) = control.losses_since(self.heard);
            heard.extend(losses);
            self.heard = next;
            if next == top {
                return heard;
            }
            match self.begun {
                Some((index, since)) if index == next => {
                    if now.saturating_sub(since) < TELLING {
                        return heard;
                    }
                    self.heard = next.saturating_add(1);
                }
                _ => {
                    self.begun = Some((next, now));
                    return heard;
                }
            }
        }
    }

    /// Something was lost: a reason for good. One that is there already stays as it is. Gives
    /// whether it is new.
    pub fn add(&mut self, kind: Kind, what: &str, now: &str) -> bool {
        let what = one_line(what);
        if self.list.iter().any(|reason| reason.kind == kind && reason.what == what) {
            return false;
        }
        if self.list.len() >= LISTED {
            self.unlisted = self.unlisted.saturating_add(1);
            return false;
        }
        self.list.push(Reason { kind, what, since: now.to_owned() });
        true
    }

    /// Something fails now, until [`Reasons::clear`]: there is one reason of that kind, whose text
    /// may change. Gives whether it is new.
    pub fn set(&mut self, kind: Kind, what: &str, now: &str) -> bool {
        match self.list.iter_mut().find(|reason| reason.kind == kind) {
            Some(reason) => {
                reason.what = one_line(what);
                false
            }
            // What fails now must be seen, however much was lost before.
            None => {
                self.list.push(Reason { kind, what: one_line(what), since: now.to_owned() });
                true
            }
        }
    }

    /// That does not fail any more. Gives whether it did.
    pub fn clear(&mut self, kind: Kind) -> bool {
        let before = self.list.len();
        self.list.retain(|reason| reason.kind != kind);
        self.list.len() < before
    }

    /// That file is stored. Gives whether it was said that it was not.
    pub fn stored(&mut self, what: &str) -> bool {
        let (before, what) = (self.list.len(), one_line(what));
        self.list.retain(|reason| reason.kind != Kind::Unstored || reason.what != what);
        self.list.len() < before
    }

    /// The daemon has died: what would be lost then is lost.
    pub fn died(&mut self) {
        for reason in self.list.iter_mut().filter(|reason| reason.kind == Kind::Unstored) {
            reason.kind = Kind::Data;
            reason.what += "; it has died";
        }
    }

    /// The reasons.
    pub fn list(&self) -> &[Reason] {
        &self.list
    }

    /// How many more there are.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

/// One short line of it. A daemon may have had a say in it.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().take(TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn reasons_come_once_and_are_bounded() {
        let mut reasons = Reasons::default();
        assert!(reasons.add(Kind::Data, "a", "1"));
        assert!(!reasons.add(Kind::Data, "a", "2"), "the same again");
        for n in 0..100 {
            reasons.add(Kind::Data, &format!("file {n}"), "3");
        }
        assert_eq!((reasons.list().len(), reasons.unlisted()), (LISTED, 69));
        assert!(reasons.set(Kind::Commit, "no room", "4"), "listed although the list is full");
        assert!(!reasons.set(Kind::Commit, "no room, 2 tries", "5"));
        let last = reasons.list().last().expect("a reason");
        assert_eq!((last.what.as_str(), last.since.as_str()), ("no room, 2 tries", "4"));
        assert!(reasons.clear(Kind::Commit) && !reasons.clear(Kind::Commit));
        assert_eq!(reasons.list().len(), LISTED);
    }

    #[test]
    fn a_loss_whose_teller_has_died_holds_up_no_other_for_long() {
        let layout = belay_recorder::Layout::new(belay_recorder::Capacity::MOUNT);
        let file =
            crate::memfile::create_sized("belay-test", layout.bytes() as u64).expect("memfd");
        let memory = belay_sys::Mapping::new(file.as_fd(), layout.bytes()).expect("map");
        let control = Control::new(&memory, layout);
        let mut reasons = Reasons::default();
        let mut hear = |now| {
            let losses = reasons.hear(&control, now);
            losses.into_iter().map(|(_, what)| what).collect::<Vec<_>>()
        };
        control.lose(Loss::Data, "a");
        memory.add(129, 1); // as far as it had come
        control.lose(Loss::Data, "b");
        assert_eq!(hear(5), ["a"]);
        assert_eq!(hear(TELLING), [""; 0]);
        assert_eq!(hear(TELLING + 5), ["b"]);
        control.lose(Loss::Data, "c");
        assert_eq!((hear(TELLING + 6), hear(TELLING + 7)), (vec!["c".to_owned()], vec![]));
    }

    #[test]
    fn what_is_not_stored_is_lost_with_its_daemon() {
        let mut reasons = Reasons::default();
        for file in ["a", "b"] {
            assert!(reasons.add(Kind::Unstored, file, "1"));
        }
        assert!(reasons.stored("a") && !reasons.stored("a"));
        reasons.died();
        assert!(!reasons.stored("b"));
        let left: Vec<_> = reasons.list().iter().map(|r| (r.kind, r.what.as_str())).collect();
        assert_eq!(left, [(Kind::Data, "b; it has died")]);
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let mut reasons = Reasons::default();
        reasons.add(Kind::Data, &format!("a\nb\x1b[2J{}", "x".repeat(9999)), "1");
        let what = &reasons.list().first().expect("a reason").what;
        assert!(what.starts_with("a b [2Jxx") && what.chars().count() == TEXT);
    }
}
