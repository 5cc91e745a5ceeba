//! `belay replay`: an op-log that was kept in a file is applied to a mounted file system.
//!
//! | module | answers |
//! | --- | --- |
//! | [`mod@file`] | what is in the file, and how far it has come |
//! | [`target`] | how an operation is carried out, below a mountpoint and nowhere else |
//!
//! Invariant: an operation is marked begun before it is carried out, and applied after that. So one that was applied is
//! not applied again; of one that was begun when a run came to its end, this one finds out what it has done.

mod file;
mod target;

use crate::cli::Replay;
use crate::messages::Out;
use anyhow::{Context, Result, bail};
use belay_oplog::kept::{Operation, State, Step, Text};
pub use file::File;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use target::Target;

/// How the names begin under which belay keeps files that are open and removed.
const HIDDEN: &[u8] = b".belay-hidden-";

/// Runs it.
pub fn run(options: &Replay) -> Result<i32> {
    let mut file = File::open(&options.file, options.list || options.dry_run)?;
    let show = Show { json: options.json };
    if options.list {
        show.list(&file)?;
        return Ok(0);
    }
    let Some(mount) = &options.mount else { bail!("name the mountpoint") };
    let target = Target::open(mount, options.anywhere)?;
    show.begin(&file, mount)?;
    let mut counts = Counts::default();
    let mut skip = options.skip;
    for number in 0..file.kept.steps.len() {
        let (Some(step), Some(state)) = (file.kept.steps.get(number), file.kept.states.get(number))
        else {
            break;
        };
        let (step, state) = (step.clone(), *state);
        if matches!(state, State::Applied | State::Skipped) {
            counts.before += 1;
            continue;
        }
        if options.dry_run {
            show.step(number, &step, state, "would be applied")?;
            continue;
        }
        let stopped_here = matches!(state, State::Begun | State::Failed);
        if std::mem::take(&mut skip) && stopped_here {
            file.mark(number, State::Skipped)?;
            counts.skipped += 1;
            show.step(number, &step, State::Skipped, "left out")?;
            continue;
        }
        file.mark(number, State::Begun)?;
        match target.apply(&step, state == State::Begun) {
            Ok(()) => {
                file.mark(number, State::Applied)?;
                counts.applied += 1;
                show.step(number, &step, State::Applied, "applied")?;
            }
            Err(why) => {
                file.mark(number, State::Failed)?;
                counts.failed += 1;
                show.step(number, &step, State::Failed, &why)?;
                if !options.keep_going {
                    break;
                }
            }
        }
    }
    if options.dry_run {
        return Ok(0);
    }
    if file.left() == 0 && counts.applied > 0 {
        for path in hidden_left(&file.kept.steps) {
            target.remove(&path).map_err(|why| anyhow::anyhow!("{}: {why}", path.show()))?;
        }
    }
    target.settle().context("cannot make durable what was applied")?;
    file.settle()?;
    let left = file.left();
    show.end(&counts, left)?;
    if counts.failed > 0 && !options.keep_going {
        bail!(
            "stopped at an operation that does not come out as it did: {left} are not applied; look at it, then go on \
             with `--skip` or `--keep-going`, or again as it is"
        );
    }
    Ok(i32::from(left > 0))
}

/// Files that were removed while somebody had them open, and that belay had kept under such names: nobody has them open
/// any more.
fn hidden_left(steps: &[Step]) -> BTreeSet<Text> {
    let mut left = BTreeSet::new();
    for step in steps {
        match &step.operation {
            Operation::Rename { from, path, .. } => {
                left.remove(from);
                left.insert(path.clone());
            }
            Operation::Link { path, .. } => {
                left.insert(path.clone());
            }
            Operation::Unlink { path } => {
                left.remove(path);
            }
            _ => {}
        }
    }
    left.retain(|path| path.names().last().is_some_and(|name| name.starts_with(HIDDEN)));
    left
}

/// What has come of the operations.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    before: usize,
    applied: usize,
    skipped: usize,
    failed: usize,
}

/// What is said, and how.
struct Show {
    json: bool,
}

impl Show {
    fn begin(&self, file: &File, mount: &std::path::Path) -> Result<()> {
        let (head, left) = (&file.kept.head, file.left());
        if !self.json {
            writeln!(
                Out,
                "{left} of {} operations, acknowledged by `{}` on {} before {}, are applied to {}",
                file.kept.steps.len(),
                Text(head.command.clone().into_bytes()).show(),
                Text(head.mountpoint.clone().into_bytes()).show(),
                Text(head.time.clone().into_bytes()).show(),
                mount.display()
            )?;
        }
        Ok(())
    }

    fn list(&self, file: &File) -> Result<()> {
        let head = &file.kept.head;
        if self.json {
            writeln!(Out, "{}", json!({ "schema_version": 1, "head": head }))?;
        } else {
            writeln!(
                Out,
                "image {}, acknowledged before {}: {}",
                head.image.show(),
                Text(head.time.clone().into_bytes()).show(),
                Text(head.reason.clone().into_bytes()).show()
            )?;
        }
        for (number, (step, state)) in file.kept.steps.iter().zip(&file.kept.states).enumerate() {
            self.step(number, step, *state, name(*state))?;
        }
        Ok(())
    }

    fn step(&self, number: usize, step: &Step, state: State, outcome: &str) -> Result<()> {
        let mut out = Out;
        if self.json {
            let bytes = step.data.len();
            writeln!(
                out,
                "{}",
                json!({ "number": number, "step": step, "data_bytes": bytes, "state": state, "outcome": outcome })
            )?;
            return Ok(());
        }
        let (path, from) = step.operation.paths();
        let path = path.map(Text::show).unwrap_or_default();
        let from = from.map_or_else(String::new, |from| format!("{} -> ", from.show()));
        let data = match step.data.len() {
            0 => String::new(),
            bytes => format!(", {bytes} bytes"),
        };
        writeln!(out, "{number} {} {from}{path}{data}: {outcome}", step.operation.name())?;
        Ok(())
    }

    fn end(&self, counts: &Counts, left: usize) -> Result<()> {
        let Counts { before, applied, skipped, failed } = *counts;
        let mut out = Out;
        if self.json {
            writeln!(
                out,
                "{}",
                json!({ "schema_version": 1, "before": before, "applied": applied, "skipped": skipped,
                    "failed": failed, "left": left })
            )?;
        } else {
            writeln!(
                out,
                "{applied} applied, {failed} failed, {skipped} left out, {before} done before; {left} are left"
            )?;
        }
        Ok(())
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Waiting => "waits",
        State::Begun => "begun, outcome not known",
        State::Applied => "applied",
        State::Failed => "failed",
        State::Skipped => "left out",
    }
}
