//! The decision table: what becomes of a request that was in flight when its daemon died.
//!
//! One row applies to every combination of how far the dead generation had come with the request,
//! what kind of request it is, and what the successor says about it. A test enumerates them all.

/// How far the dead generation had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The daemon never got it.
    Unseen,
    /// The daemon had it and had not replied.
    Started,
    /// The daemon had it, and had done nothing of it that outlives it.
    Untouched,
    /// The daemon had it, and what it had done of it is on record, step by step.
    Logged,
    /// Its reply is in the recorder; the kernel did not get it.
    Replied,
    /// Daemons died of it: more than one, see [`belay_recorder::Solo`].
    Poison,
}

/// What a request does, as far as doing it twice is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Twice is as good as once.
    Idempotent,
    /// Makes a name that the kernel knew to be absent.
    Create,
    /// Removes a name that the kernel knew to be present.
    Remove,
    /// Moves a name.
    Rename,
    /// Swaps two names.
    Exchange,
    /// Writes at the end of a file, wherever that is.
    Append,
    /// Sets an extended attribute that must not exist.
    XattrCreate,
    /// Removes an extended attribute.
    XattrRemove,
    /// Closes a handle of the dead generation.
    Release,
    /// Changes something, at a daemon that keeps records of that and of its answers.
    Recorded,
}

/// What the successor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// It was not asked.
    NotAsked,
    /// The state is as before the request.
    NotDone,
    /// The state is as after the request.
    Done,
    /// Part of it was done.
    Partial,
    /// Neither: something else did this.
    Foreign,
}

/// What recovery does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask the successor, and look here again.
    Ask,
    /// Give the request to the successor.
    Reissue,
    /// Send the reply that is in the recorder.
    AnswerRecorded,
    /// Answer that it is done, from what was found.
    AnswerDone,
    /// Undo the part that was done, then give it to the successor.
    Repair,
    /// The handle died with its generation: nothing is left to do.
    AnswerReleased,
    /// Answer EIO, and give it to nobody any more.
    Fail,
}

/// A row of the table. `None` in a condition stands for any value.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number in reports; never reused.
    pub id: u32,
    /// How far the dead generation had come.
    pub progress: Option<Progress>,
    /// Kinds of request.
    pub classes: &'static [Class],
    /// What the successor says.
    pub findings: &'static [Finding],
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: &'static str,
}

use Action::{AnswerDone, AnswerRecorded, AnswerReleased, Ask, Fail, Reissue, Repair};
use Class::{
    Append, Create, Exchange, Idempotent, Recorded, Release, Remove, Rename, XattrCreate,
    XattrRemove,
};
use Finding::{Done, Foreign, NotAsked, NotDone, Partial};

/// All classes.
pub const CLASSES: [Class; 10] = [
    Idempotent,
    Create,
    Remove,
    Rename,
    Exchange,
    Append,
    XattrCreate,
    XattrRemove,
    Release,
    Recorded,
];
/// All findings.
pub const FINDINGS: [Finding; 5] = [NotAsked, NotDone, Done, Partial, Foreign];
/// All degrees of progress.
pub const PROGRESS: [Progress; 6] = [
    Progress::Unseen,
    Progress::Started,
    Progress::Untouched,
    Progress::Logged,
    Progress::Replied,
    Progress::Poison,
];

const NOT_RELEASE: &[Class] =
    &[Idempotent, Create, Remove, Rename, Exchange, Append, XattrCreate, XattrRemove, Recorded];
/// Of which nothing but the daemon's death is known.
const UNRECORDED: &[Class] =
    &[Idempotent, Create, Remove, Rename, Exchange, Append, XattrCreate, XattrRemove];
const ASKABLE: &[Class] = &[Create, Remove, Rename, Exchange, Append, XattrCreate, XattrRemove];

/// The table. Rows exclude each other; their order does not matter.
pub const TABLE: &[Row] = &[
    Row {
        id: 1,
        progress: Some(Progress::Replied),
        classes: &CLASSES,
        findings: &FINDINGS,
        action: AnswerRecorded,
        reason: "the request took effect and its answer is recorded",
    },
    Row {
        id: 2,
        progress: Some(Progress::Unseen),
        classes: NOT_RELEASE,
        findings: &FINDINGS,
        action: Reissue,
        reason: "the dead generation never saw it",
    },
    Row {
        id: 3,
        progress: Some(Progress::Unseen),
        classes: &[Release],
        findings: &FINDINGS,
        action: AnswerReleased,
        reason: "the handle died with its generation",
    },
    Row {
        id: 4,
        progress: Some(Progress::Started),
        classes: &[Release],
        findings: &FINDINGS,
        action: AnswerReleased,
        reason: "the handle died with its generation",
    },
    Row {
        id: 5,
        progress: Some(Progress::Started),
        classes: &[Idempotent],
        findings: &FINDINGS,
        action: Reissue,
        reason: "doing it twice is as good as once",
    },
    Row {
        id: 6,
        progress: Some(Progress::Started),
        classes: ASKABLE,
        findings: &[NotAsked],
        action: Ask,
        reason: "it may or may not have taken effect",
    },
    Row {
        id: 7,
        progress: Some(Progress::Started),
        classes: ASKABLE,
        findings: &[NotDone],
        action: Reissue,
        reason: "the successor shows the state before the request",
    },
    Row {
        id: 8,
        progress: Some(Progress::Started),
        classes: ASKABLE,
        findings: &[Done],
        action: AnswerDone,
        reason: "the successor shows the state after the request",
    },
    Row {
        id: 9,
        progress: Some(Progress::Started),
        classes: ASKABLE,
        findings: &[Partial],
        action: Repair,
        reason: "a part took effect; it is taken back and the whole is reissued",
    },
    Row {
        id: 10,
        progress: Some(Progress::Started),
        classes: ASKABLE,
        findings: &[Foreign],
        action: Reissue,
        reason: "something else changed the same thing; the successor's own answer is the true one",
    },
    Row {
        id: 11,
        progress: Some(Progress::Poison),
        classes: UNRECORDED,
        findings: &FINDINGS,
        action: Fail,
        reason: "each daemon that got it died; it fails alone, so that all others go on",
    },
    Row {
        id: 12,
        progress: Some(Progress::Untouched),
        classes: NOT_RELEASE,
        findings: &FINDINGS,
        action: Reissue,
        reason: "the dead generation had not changed anything for it",
    },
    Row {
        id: 13,
        progress: Some(Progress::Logged),
        classes: NOT_RELEASE,
        findings: &FINDINGS,
        action: Reissue,
        reason: "what was done of it is on record: the successor goes on from there",
    },
    Row {
        id: 14,
        progress: Some(Progress::Untouched),
        classes: &[Release],
        findings: &FINDINGS,
        action: AnswerReleased,
        reason: "the handle died with its generation",
    },
    Row {
        id: 15,
        progress: Some(Progress::Logged),
        classes: &[Release],
        findings: &FINDINGS,
        action: AnswerReleased,
        reason: "the handle died with its generation",
    },
    Row {
        id: 16,
        progress: Some(Progress::Poison),
        classes: &[Release],
        findings: &FINDINGS,
        action: AnswerReleased,
        reason: "each daemon that got it died; a close needs no daemon",
    },
    Row {
        id: 17,
        progress: Some(Progress::Started),
        classes: &[Recorded],
        findings: &[NotAsked],
        action: Ask,
        reason: "the daemon's own records tell whether it has taken effect",
    },
    Row {
        id: 18,
        progress: Some(Progress::Started),
        classes: &[Recorded],
        findings: &[Done],
        action: AnswerDone,
        reason: "the daemon's own records have it, with its answer",
    },
    Row {
        id: 19,
        progress: Some(Progress::Started),
        classes: &[Recorded],
        findings: &[NotDone, Partial, Foreign],
        action: Reissue,
        reason: "the daemon's own records do not have it: nothing of it has happened",
    },
    Row {
        id: 20,
        progress: Some(Progress::Poison),
        classes: &[Recorded],
        findings: &[NotAsked],
        action: Ask,
        reason: "each daemon that got it died, and one may have done it before that",
    },
    Row {
        id: 21,
        progress: Some(Progress::Poison),
        classes: &[Recorded],
        findings: &[Done],
        action: AnswerDone,
        reason: "each daemon that got it died, and one had done it: it has its answer",
    },
    Row {
        id: 22,
        progress: Some(Progress::Poison),
        classes: &[Recorded],
        findings: &[NotDone, Partial, Foreign],
        action: Fail,
        reason: "each daemon that got it died, and none had done it; it fails alone",
    },
];

/// The row that applies.
pub fn decide(progress: Progress, class: Class, finding: Finding) -> Option<&'static Row> {
    TABLE.iter().find(|row| applies(row, progress, class, finding))
}

fn applies(row: &Row, progress: Progress, class: Class, finding: Finding) -> bool {
    row.progress.is_none_or(|p| p == progress)
        && row.classes.contains(&class)
        && row.findings.contains(&finding)
}

/// What the cells of a row say, for the documentation: its number, how far the dead generation
/// came, requests, what the successor says, the action, and why.
pub fn cells(row: &Row) -> [String; 6] {
    fn all<T: std::fmt::Debug>(these: &[T], every: usize, word: &str) -> String {
        if these.len() == every {
            return word.to_owned();
        }
        these.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ")
    }
    [
        row.id.to_string(),
        row.progress.map_or("any".to_owned(), |progress| format!("{progress:?}")),
        all(row.classes, CLASSES.len(), "any"),
        all(row.findings, FINDINGS.len(), "anything"),
        format!("{:?}", row.action),
        row.reason.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_exactly_one_row() {
        for progress in PROGRESS {
            for class in CLASSES {
                for finding in FINDINGS {
                    let rows: Vec<_> = TABLE
                        .iter()
                        .filter(|row| applies(row, progress, class, finding))
                        .map(|row| row.id)
                        .collect();
                    assert_eq!(rows.len(), 1, "{progress:?} {class:?} {finding:?}: rows {rows:?}");
                }
            }
        }
    }

    #[test]
    fn asking_ends() {
        // `Ask` is only ever the answer to `NotAsked`, so one question settles a request.
        for row in TABLE.iter().filter(|row| row.action == Ask) {
            assert_eq!(row.findings, &[NotAsked]);
        }
    }
}
