//! What is crashed, and during what.

use anyhow::{Context, Result};
use belay_faults::Point;
use belay_fixtures::Kind;
use belay_fixtures::zoo::Work;
use belay_study::{Aim, FURTHER, OPERATIONS, Operation, Victim};
use belay_wire::Opcode;
use serde::Serialize;

use crate::study::column::Column;

/// The library of belay's in the daemon.
const SHIM: &str = "libbelay_shim.so";

/// Where the points of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// At the system calls of an operation's request.
    Calls,
    /// At its accesses to the image, which are no system calls where belay keeps writes back.
    Accesses,
    /// At those of a request by which belay has the daemon write all that it holds.
    Flush,
    /// At the steps by which belay brings a checkpoint to the image.
    Commit,
}

/// A row: an operation, and the work that somebody dies in meanwhile.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub group: Group,
    pub op: &'static Operation,
    pub aim: Aim,
}

impl Row {
    /// All of them, in the order of the tables.
    pub fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        for op in OPERATIONS.iter().chain(FURTHER) {
            rows.push(Self { name: op.name.to_owned(), group: Group::Calls, op, aim: Aim::of(op) });
            rows.push(Self {
                name: format!("{}:accesses", op.name),
                group: Group::Accesses,
                op,
                aim: Aim::by_functions(op, SHIM),
            });
        }
        // It has a checkpoint made, and waits for it.
        let Ok(fsync) = Operation::parse("fsync") else { return rows };
        for opcode in [Opcode::OPENDIR, Opcode::FSYNCDIR, Opcode::RELEASEDIR, Opcode::FLUSH] {
            rows.push(Self {
                name: format!("flush:{opcode}"),
                group: Group::Flush,
                op: fsync,
                aim: Aim::injected(opcode, SHIM),
            });
        }
        for (who, victim) in [("supervisor", Victim::Supervisor), ("both", Victim::Both)] {
            rows.push(Self {
                name: format!("commit:{who}"),
                group: Group::Commit,
                op: fsync,
                aim: Aim::commit(victim),
            });
        }
        rows
    }

    /// Reads a name.
    pub fn parse(name: &str) -> Result<Self> {
        Self::all().into_iter().find(|row| row.name == name).with_context(|| {
            format!("there is no row {name:?}: `belay-chaos study membrane --list` names them")
        })
    }

    /// Whether this file system can do it at all. Over full directories that are moved fusefat
    /// loses what is in them, its files have no owners, and where a pipe is asked for it makes a
    /// file: an answer that is not passed on.
    pub fn is_for(&self, kind: Kind) -> bool {
        kind.work() != Work::WholeFiles
            || !matches!(self.op.name, "move-directory" | "truncate" | "mknod")
    }

    /// Whether there is something to be crashed in this column.
    pub fn is_in(&self, column: Column) -> bool {
        self.group == Group::Calls || column == Column::Belay
    }

    /// Whether it has this point.
    pub fn has(&self, point: Point) -> bool {
        // A commit is no request.
        self.group != Group::Commit
            || matches!(point, Point::BeforeEffect(_) | Point::AfterEffect(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rows_have_names() {
        let rows = Row::all();
        let names: HashSet<_> = rows.iter().map(|row| row.name.clone()).collect();
        assert_eq!(names.len(), rows.len());
        for name in &names {
            assert_eq!(Row::parse(name).unwrap().name, *name);
        }
        assert!(names.contains("flush:FSYNCDIR") && names.contains("commit:both"), "{names:?}");
        assert!(Row::parse("sync").unwrap_err().to_string().contains("--list"));
        let bare = rows.iter().filter(|row| row.is_in(Column::Bare)).count();
        assert_eq!(bare, OPERATIONS.len() + FURTHER.len());
    }
}
