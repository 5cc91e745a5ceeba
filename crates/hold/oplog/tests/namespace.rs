//! Names at the checkpoint and at each point of the log.
#![allow(missing_docs)]

mod common;

use belay_oplog::namespace::from_triples;
use belay_oplog::{Capacity, NameChange, Names, Namespace, Oplog};
use belay_wire::Opcode;
use common::Sim;
use common::short::{facts, fresh};

type Change = (u64, &'static str, u64, u64);

fn log_of(records: &[&[Change]]) -> Oplog<Sim> {
    let (_, mut log) = fresh(Capacity::SMALL);
    for changes in records {
        let names: Vec<_> = changes
            .iter()
            .map(|(parent, name, before, after)| NameChange {
                parent: *parent,
                name: name.as_bytes().into(),
                before: *before,
                after: *after,
            })
            .collect();
        log.append(&facts(Opcode::RENAME2, 2, [0, 0]), &[], &names, None).expect("room");
    }
    log
}

fn triples(now: &[(u64, &str, u64)]) -> impl Names {
    from_triples(
        now.iter().map(|(parent, name, child)| (*parent, name.as_bytes().to_vec(), *child)),
    )
}

fn path(space: &Namespace, key: u64, now: &impl Names) -> Option<String> {
    let links = space.path(1, key, now)?;
    assert_eq!(links.first().map_or(key, |link| link.parent), if key == 1 { key } else { 1 });
    assert!(links.windows(2).all(|pair| pair[0].key == pair[1].parent));
    assert!(links.last().is_none_or(|link| link.key == key));
    let names: Vec<_> = links.iter().map(|link| String::from_utf8_lossy(&link.name)).collect();
    Some(names.join("/"))
}

/// At the checkpoint: /a/b/f, /c/g. Then b goes to /c/d, g and f change places, f goes, and d with
/// it.
#[test]
fn names_go_back_and_forth() {
    let log = log_of(&[
        &[(4, "d", 0, 3), (2, "b", 3, 0)],
        &[(3, "f", 5, 6), (4, "g", 6, 5)],
        &[(4, "g", 5, 0)],
        &[(2, "new", 0, 7)],
        &[(4, "d", 3, 7), (2, "new", 7, 0)],
        &[(7, "x", 0, 8)],
    ]);
    let now =
        triples(&[(1, "a", 2), (1, "c", 4), (4, "d", 7), (3, "f", 6), (7, "x", 8), (1, "h", 9)]);
    let mut space = Namespace::at_checkpoint(&log).expect("whole");
    let keys = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut seen = vec![keys.map(|key| path(&space, key, &now))];
    for record in log.records() {
        space.forward(&record.expect("whole").names);
        seen.push(keys.map(|key| path(&space, key, &now)));
    }
    let expected = [
        ["", "a", "a/b", "c", "a/b/f", "c/g", "-", "-", "h"],
        ["", "a", "c/d", "c", "c/d/f", "c/g", "-", "-", "h"],
        ["", "a", "c/d", "c", "c/g", "c/d/f", "-", "-", "h"],
        ["", "a", "c/d", "c", "-", "c/d/f", "-", "-", "h"],
        ["", "a", "c/d", "c", "-", "c/d/f", "a/new", "-", "h"],
        ["", "a", "-", "c", "-", "-", "c/d", "-", "h"],
        ["", "a", "-", "c", "-", "-", "c/d", "c/d/x", "h"],
    ];
    let expected = expected.map(|row| row.map(|path| (path != "-").then(|| path.to_owned())));
    assert_eq!(seen, expected);
}

#[test]
fn a_link_that_was_removed_is_no_way() {
    let log = log_of(&[&[(2, "f", 5, 0)], &[(1, "a", 2, 0)]]);
    let now = triples(&[(1, "g", 5)]);
    let mut space = Namespace::at_checkpoint(&log).expect("whole");
    let mut names = space.names(5, &now);
    names.sort();
    assert_eq!(names, [(1, b"g".to_vec()), (2, b"f".to_vec())]);
    for record in log.records() {
        space.forward(&record.expect("whole").names);
    }
    assert_eq!(path(&space, 5, &now), Some("g".to_owned()));
    assert_eq!(path(&space, 2, &now), None);
}

#[test]
fn a_name_now_that_the_log_knows_better_does_not_count() {
    // The file was made since; another node's name now is what the kernel has of the new one.
    let log = log_of(&[&[(1, "f", 5, 0)], &[(1, "f", 0, 6)]]);
    let now = triples(&[(1, "f", 6)]);
    let space = Namespace::at_checkpoint(&log).expect("whole");
    assert_eq!(path(&space, 5, &now), Some("f".to_owned()));
    assert_eq!(path(&space, 6, &now), None);
}

#[test]
fn names_in_a_circle_lead_nowhere() {
    let log = log_of(&[&[(2, "a", 3, 0), (3, "b", 2, 0)]]);
    let now = |key: u64| vec![(key ^ 1, b"c".to_vec())];
    let space = Namespace::at_checkpoint(&log).expect("whole");
    assert_eq!(space.path(1, 2, &now), None);
    assert_eq!(space.path(1, 4, &now), None);
}

/// The kernel forgets /d (2) and what is in it, a file f (3), and asks again: 12, and 13 for the
/// file once that is called g. What the log says of d's old key it says of the new one.
#[test]
fn nodes_that_the_kernel_has_forgotten_and_asked_for_anew() {
    let log = log_of(&[
        &[(1, "d", 0, 2)],
        &[(2, "f", 0, 3), (2, "h", 0, 4)],
        &[(2, "g", 0, 3), (2, "f", 3, 0)],
        &[(12, "x", 0, 5), (1, "d", 12, 12)],
        &[(1, "y", 0, 13), (12, "g", 13, 0)],
    ]);
    let mut space = Namespace::at_checkpoint(&log).expect("whole");
    let mut seen = Vec::new();
    for record in log.records() {
        space.forward(&record.expect("whole").names);
        let name = |key| path(&space, space.renewed(key), &triples(&[])).unwrap_or_default();
        seen.push([2, 3, 4, 12, 13].map(|key| format!("{}:{}", space.renewed(key), name(key))));
    }
    assert_eq!(seen[0], ["2:d", "3:", "4:", "12:", "13:"]);
    assert_eq!(seen[1], ["2:d", "3:d/f", "4:d/h", "12:", "13:"]);
    assert_eq!(seen[2], ["2:d", "3:d/g", "4:d/h", "12:", "13:"]);
    assert_eq!(seen[3], ["12:d", "13:d/g", "4:d/h", "12:d", "13:d/g"]);
    assert_eq!(seen[4], ["12:d", "13:y", "4:d/h", "12:d", "13:y"]);
}
