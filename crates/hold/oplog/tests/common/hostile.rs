//! A log with some of everything, and all that a successor does with one that anybody scribbled
//! over.

use super::Sim;
use super::short::{AT, body, facts, fresh, other, write};
use belay_oplog::namespace::from_triples;
use belay_oplog::{Capacity, Facts, Issue, NameChange, Namespace, Oplog};
use belay_wire::Opcode;

/// A small log.
pub const SMALL: Capacity = Capacity { record_bytes: 8 << 10, pages: 12 };

/// Some of everything.
pub fn filled() -> (Sim, Oplog<Sim>) {
    let (memory, mut log) = fresh(SMALL);
    write(&mut log, 3, 0, 5000, b'a');
    let name = NameChange { parent: 1, name: b"a name"[..].into(), before: 0, after: 7 };
    log.append(&facts(Opcode::MKNOD, 4, [0, 0]), b"body\0", &[name], None).expect("room");
    write(&mut log, 3, 4096, 4096, b'b');
    other(&mut log, Opcode::SETATTR, [3, 0]);
    write(&mut log, 3, 10, 10, b'c');
    (memory, log)
}

/// The words that count: the head, and the records in the first half.
pub fn words(log: &Oplog<Sim>) -> Vec<usize> {
    let first = AT + 512;
    [AT].into_iter().chain(first..first + log.sizes().record_bytes / 8).collect()
}

/// All that a successor does, with all its errors.
pub fn use_it(memory: &Sim, epoch: u64) -> Option<Vec<Issue>> {
    let mut log = Oplog::open(memory.clone(), AT, SMALL, epoch).ok()?;
    let found: Result<Vec<_>, _> = log.replay(1000).collect();
    if let Ok(mut space) = Namespace::at_checkpoint(&log) {
        let now = from_triples([(1, b"x".to_vec(), 50)]);
        for record in log.records().flatten() {
            let _ = space.path(1, record.facts.node, &now);
            space.forward(&record.names);
        }
    }
    let _ = log.retract(4);
    for round in 0..40 {
        let Some(staged) = log.stage(round * 100, &[1; 5000]) else { break };
        let facts = Facts { size: 5000, ..facts(Opcode::WRITE, 2, [3, 0]) };
        let _ = log.append(&facts, &body(0, 5000, 0), &[], Some(staged));
        let _ = log.append(&facts, b"", &[], None);
    }
    let _ = (log.sizes(), log.spare(), log.replay(1000).count());
    log.restart(epoch + 1);
    found.ok()
}
