//! Short ways to say what a log is given.

use super::Sim;
use belay_oplog::{Capacity, Facts, Issue, Oplog};
use belay_wire::Opcode;
use belay_wire::abi::WriteIn;
use zerocopy::IntoBytes;

pub const AT: usize = 5;
pub const EPOCH: u64 = 9;

pub fn open(memory: &Sim, capacity: Capacity) -> Oplog<Sim> {
    Oplog::open(memory.clone(), AT, capacity, EPOCH).expect("whole")
}

pub fn fresh(capacity: Capacity) -> (Sim, Oplog<Sim>) {
    let memory = Sim::new(AT + capacity.words());
    let log = open(&memory, capacity);
    (memory, log)
}

pub fn facts(opcode: Opcode, unique: u64, files: [u64; 2]) -> Facts {
    Facts { unique, opcode: opcode.0, node: 50 + files[0] % 1000, files, ..Facts::default() }
}

pub fn body(offset: u64, size: usize, write_flags: u32) -> Vec<u8> {
    let size = size as u32;
    WriteIn { offset, size, write_flags, ..WriteIn::default() }.as_bytes().to_vec()
}

/// A whole write, of one byte over and over.
pub fn write(log: &mut Oplog<Sim>, file: u64, offset: u64, length: usize, byte: u8) {
    write_with(log, file, offset, &vec![byte; length], 0);
}

pub fn write_with(log: &mut Oplog<Sim>, file: u64, offset: u64, data: &[u8], flags: u32) {
    let staged = log.stage(offset, data).expect("room");
    let size = data.len() as u64;
    let facts = Facts { size, ..facts(Opcode::WRITE, 2, [file, 0]) };
    log.append(&facts, &body(offset, data.len(), flags), &[], Some(staged)).expect("room");
}

pub fn other(log: &mut Oplog<Sim>, opcode: Opcode, files: [u64; 2]) {
    log.append(&facts(opcode, 2, files), b"body", &[], None).expect("room");
}

pub fn issues(log: &Oplog<Sim>) -> Vec<Issue> {
    log.replay(1 << 20).collect::<Result<_, _>>().expect("whole")
}

/// A run in short: file, offset, length, first and last byte.
pub type Short = (u64, u64, usize, u8, u8);

/// What is written again, by record.
pub fn runs(log: &Oplog<Sim>) -> Vec<Vec<Short>> {
    let run = |issue: &Issue| {
        let file = issue.record.facts.files[0];
        let runs = issue.data.iter();
        runs.map(|run| {
            (file, run.offset, run.bytes.len(), run.bytes[0], run.bytes[run.bytes.len() - 1])
        })
        .collect()
    };
    issues(log).iter().map(run).collect()
}
