//! Drives both sides through rounds and compares what they answer.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, Kind};

use crate::compare::Rules;
use crate::exec::listing::is_hidden;
use crate::ops::{Batch, Op, Outcome, RenameHow, Round};
use crate::pool::Pool;
use belay_study::tree::Tree;

/// So many operations before a divergence are told.
const MEMORY: usize = 24;

/// What was not the same.
#[derive(Debug)]
pub struct Mismatch {
    pub index: u64,
    pub worker: Option<usize>,
    pub what: String,
    pub oracle: String,
    pub subject: String,
    pub before: Vec<String>,
}

impl Mismatch {
    /// Something other than an operation went wrong.
    pub fn broken(index: u64, what: &str, how: &str) -> Self {
        Self {
            index,
            worker: None,
            what: what.to_owned(),
            oracle: "nothing of the kind".to_owned(),
            subject: how.to_owned(),
            before: Vec::new(),
        }
    }
}

/// Both sides' workers, and what was seen of them.
pub struct Driver<'a> {
    rules: Rules,
    /// The bare mounts' trees.
    bare: Vec<&'a Path>,
    oracle: &'a mut Pool,
    subject: &'a mut Pool,
    ops: u64,
    errors: u64,
    slowest: u64,
    refused: u64,
    void: u64,
    memory: HashMap<usize, VecDeque<String>>,
}

impl<'a> Driver<'a> {
    pub fn new(
        rules: Rules,
        bare: Vec<&'a Path>,
        oracle: &'a mut Pool,
        subject: &'a mut Pool,
    ) -> Self {
        Self {
            rules,
            bare,
            oracle,
            subject,
            ops: 0,
            errors: 0,
            slowest: 0,
            refused: 0,
            void: 0,
            memory: HashMap::new(),
        }
    }

    /// Operations compared so far.
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// Outages among the subject's results.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The subject's slowest operation in microseconds.
    pub fn slowest(&self) -> u64 {
        self.slowest
    }

    /// Operations that both sides refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Operations that had nothing to work on.
    pub fn void(&self) -> u64 {
        self.void
    }

    /// Does a round on both sides; the first difference, if any.
    pub fn round(&mut self, round: &Round) -> Option<Mismatch> {
        if let Some(mismatch) = self.batches(&round.own, false) {
            return Some(mismatch);
        }
        round.shared.iter().find_map(|batch| self.batches(std::slice::from_ref(batch), true))
    }

    /// Batches of different workers, at the same time, up to the next operations that need a look
    /// first.
    fn batches(&mut self, batches: &[Batch], shared: bool) -> Option<Mismatch> {
        let mut rest = batches.to_vec();
        while !rest.is_empty() {
            let mut now = Vec::with_capacity(rest.len());
            for batch in &mut rest {
                let later = batch.ops.iter().skip(1).position(|op| victim(op).is_some());
                let later = batch.ops.split_off(later.map_or(batch.ops.len(), |at| at + 1));
                let mut ops = std::mem::replace(&mut batch.ops, later);
                if let Some(first) = ops.first_mut()
                    && let Some(path) = victim(first).filter(|path| self.has_hidden(path))
                {
                    let path = path.to_owned();
                    *first = Op::Stat { path, follow: false };
                }
                now.push(Batch { worker: batch.worker, ops });
            }
            rest.retain(|batch| !batch.ops.is_empty());
            if let Some(mismatch) = self.part(&now, shared) {
                return Some(mismatch);
            }
        }
        None
    }

    /// Whether a directory of a bare mount holds files that its daemon has hidden there because
    /// they are open: for bare high-level daemons it is not empty then, whereas belay moves its own
    /// hidden files out of the way.
    fn has_hidden(&self, path: &str) -> bool {
        self.bare.iter().any(|root| {
            std::fs::read_dir(root.join(path)).is_ok_and(|entries| {
                entries.flatten().any(|entry| is_hidden(&entry.file_name().to_string_lossy()))
            })
        })
    }

    /// Batches of different workers, at the same time.
    fn part(&mut self, batches: &[Batch], shared: bool) -> Option<Mismatch> {
        for batch in batches {
            let sent =
                self.subject.order(batch, shared).and_then(|()| self.oracle.order(batch, shared));
            if let Err(error) = sent {
                return Some(Mismatch::broken(self.ops, "giving out work", &format!("{error:#}")));
            }
        }
        batches.iter().find_map(|batch| self.collect(batch))
    }

    fn collect(&mut self, batch: &Batch) -> Option<Mismatch> {
        for op in &batch.ops {
            let index = self.ops;
            self.ops += 1;
            let subject = self.subject.answer(batch.worker, op);
            let oracle = self.oracle.answer(batch.worker, op);
            let memory = self.memory.entry(batch.worker).or_default();
            let mismatch = |oracle: String, subject: String, memory: &VecDeque<String>| Mismatch {
                index,
                worker: Some(batch.worker),
                what: format!("{op:?}"),
                oracle,
                subject,
                before: memory.iter().cloned().collect(),
            };
            let (subject, oracle) = match (subject, oracle) {
                (Ok(subject), Ok(oracle)) => (subject, oracle),
                (subject, oracle) => {
                    let tell = |answer: Result<crate::worker::Answer>| match answer {
                        Ok(answer) => answer.outcome.to_string(),
                        Err(error) => format!("{error:#}"),
                    };
                    return Some(mismatch(tell(oracle), tell(subject), memory));
                }
            };
            self.slowest = self.slowest.max(subject.micros);
            self.refused += u64::from(matches!(subject.outcome, Outcome::Err(_)));
            self.void += u64::from(subject.outcome == Outcome::Void);
            self.errors += u64::from(subject.outcome.is_outage());
            if !self.rules.agree(&oracle.outcome, &subject.outcome) {
                return Some(mismatch(
                    oracle.outcome.to_string(),
                    subject.outcome.to_string(),
                    memory,
                ));
            }
            if memory.len() == MEMORY {
                memory.pop_front();
            }
            memory.push_back(format!("{index}: {op:?} -> {}", subject.outcome));
        }
        None
    }
}

/// The directory that an operation may remove or replace.
fn victim(op: &Op) -> Option<&str> {
    match op {
        Op::Rmdir { path } => Some(path),
        Op::Rename { from, to, how: RenameHow::Plain | RenameHow::NoReplace }
            if [from, to]
                .iter()
                .all(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with('d'))) =>
        {
            Some(to)
        }
        _ => None,
    }
}

/// What a mount shows, without what a bare daemon may rightly have forgotten in it.
fn look(fixture: &Fixture, links: bool) -> Result<Tree> {
    let mut tree = Tree::read(fixture.root(), links)?;
    if !fixture.is_held() && fixture.kind().leaves_hidden_files() {
        tree.0.retain(|path, _| !path.rsplit('/').next().is_some_and(is_hidden));
    }
    if !fixture.kind().keeps_directory_modes() {
        let directories = tree.0.values_mut().filter(|node| node.is_directory());
        directories.for_each(|node| node.mode &= !0o777);
    }
    let own = fixture.kind().own_names();
    tree.0.retain(|path, _| !own.iter().any(|name| path.split('/').next() == Some(name)));
    Ok(tree)
}

/// Compares the two sides' trees, as the mounts show them and as they are behind.
pub fn trees(oracle: &Fixture, subject: &Fixture, index: u64) -> Result<Option<Mismatch>> {
    let links = subject.kind().numbers_tell_links();
    let deadline = Instant::now() + Duration::from_secs(3);
    // Hidden files go when the kernel has released them, a moment after the last close.
    let found = loop {
        let theirs = look(oracle, links).context("reading the oracle's tree")?;
        let found = match look(subject, links) {
            Ok(ours) => theirs.differences(&ours, "oracle", "subject"),
            Err(error) => format!("{error:#}"),
        };
        if found.is_empty() || Instant::now() > deadline {
            break found;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if !found.is_empty() {
        return Ok(Some(Mismatch::broken(index, "the trees at the end", &found)));
    }
    let behind = |fixture: &Fixture| fixture.kind().backed_by_directory();
    if behind(oracle) && behind(subject) && subject.kind() != Kind::Dir {
        let theirs = Tree::read(oracle.backing(), true).context("reading behind the oracle")?;
        let ours = Tree::read(subject.backing(), true).context("reading behind the subject")?;
        let found = theirs.differences(&ours, "oracle", "subject");
        if !found.is_empty() {
            return Ok(Some(Mismatch::broken(index, "the backing trees at the end", &found)));
        }
    }
    Ok(None)
}
