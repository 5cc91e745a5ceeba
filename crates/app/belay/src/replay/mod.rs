//! `belay replay`: an op-log that was kept in a file is applied to a mounted file system.
//!
//! | module | answers |
//! | --- | --- |
//! | [`mod@file`] | what is in the file, and how far it has come |
//! | [`mod@show`] | what is said |
//! | [`target`] | how an operation is carried out, below a mountpoint and nowhere else |
//!
//! Invariant: an operation is marked begun before it is carried out, and applied after that. So one
//! that was applied is not applied again; of one that was begun when a run came to its end, this
//! one finds out what it has done.

mod file;
mod show;
mod target;

use crate::cli::Replay;
use crate::messages::say;
use anyhow::{Context, Result, anyhow, bail};
use belay_oplog::kept::{Operation, State, Step, Text};
use belay_supervisor::text::{command_line, counted};
pub use file::File;
use show::{Counts, Show, words_of};
use std::collections::BTreeSet;
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
    let Some(mount) = &options.mount else { bail!("name the mountpoint behind the file") };
    let target = Target::open(mount, options.anywhere)?;
    show.begin(&file, mount, options.dry_run)?;
    let mut counts = Counts::default();
    let mut skip = options.skip;
    let mut stopped = None;
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
                let words = if options.json { why.clone() } else { format!("failed: {why}") };
                show.step(number, &step, State::Failed, &words)?;
                if !options.keep_going {
                    stopped = Some(format!("{number} ({}), which failed: {why}", words_of(&step)));
                    break;
                }
            }
        }
    }
    if skip {
        say("belay: --skip left nothing out: the last run stopped at no operation\n");
    }
    if options.dry_run {
        return Ok(0);
    }
    if file.left() == 0 && counts.applied > 0 {
        for path in hidden_left(&file.kept.steps) {
            target.remove(&path).map_err(|why| {
                let (path, place) = (path.show(), mount.display());
                anyhow!("{path} below {place}, a removed file that belay had kept for who had it open: {why}; remove it")
            })?;
        }
    }
    target.settle().with_context(|| {
        format!(
            "cannot make durable what was applied to {}: begin again with a copy of the image and of {} from before",
            mount.display(),
            file.path.display()
        )
    })?;
    file.settle()?;
    let left = file.left();
    show.end(&file, &counts, left)?;
    let again = || {
        let words = [file.path.as_os_str(), mount.as_os_str()];
        let anywhere = if options.anywhere { " --anywhere" } else { "" };
        format!("belay replay{anywhere} {}", command_line(words))
    };
    if let Some(stopped) = stopped {
        bail!(
            "stopped at operation {stopped}. {} not applied: put right what is in its way, and run `{again}` again; or leave it \
             out (`{again} --skip`), or all that fail (`{again} --keep-going`)",
            counted(left as u64, "operation is", "operations are"),
            again = again()
        );
    }
    if left > 0 {
        bail!(
            "{} not applied: put right what is in the way of those that failed, and run `{}` again",
            counted(left as u64, "operation is", "operations are"),
            again()
        );
    }
    Ok(0)
}

/// Files that were removed while somebody had them open, and that belay had kept under such names:
/// nobody has them open any more.
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
