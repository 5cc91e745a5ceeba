//! What is said of an op-log, and of what comes of it: a line for each operation, or JSON.

use super::File;
use crate::messages::Out;
use anyhow::Result;
use belay_oplog::kept::{State, Step, Text};
use belay_supervisor::text::{bytes, count};
use serde_json::json;
use std::io::Write;
use std::path::Path;

fn text(words: &str) -> String {
    Text(words.to_owned().into_bytes()).show()
}

fn operations(number: usize) -> String {
    count(number as u64, "operation")
}

/// An operation in a few words.
pub fn words_of(step: &Step) -> String {
    let (path, from) = step.operation.paths();
    let path = path.map(Text::show).unwrap_or_default();
    let from = from.map_or_else(String::new, |from| format!("{} -> ", from.show()));
    let data = match step.data.len() {
        0 => String::new(),
        number => format!(", {}", bytes(number as u64)),
    };
    format!("{} {from}{path}{data}", step.operation.name())
}

/// What has come of the operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Applied or left out before.
    pub before: usize,
    /// Applied now.
    pub applied: usize,
    /// Left out now.
    pub skipped: usize,
    /// Failed now.
    pub failed: usize,
}

/// How it is said.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// As JSON.
    pub json: bool,
}

impl Show {
    /// What is about to be done, or with `dry` would be.
    pub fn begin(&self, file: &File, mount: &Path, dry: bool) -> Result<()> {
        let (head, left) = (&file.kept.head, file.left());
        if self.json {
            return Ok(());
        }
        let (shown, of) = (file.path.display(), operations(file.kept.steps.len()));
        if left == 0 {
            writeln!(Out, "{shown}: nothing is left to do: {of} applied or left out before")?;
            return Ok(());
        }
        let is = if dry { "would be applied" } else { "are applied" };
        writeln!(
            Out,
            "{shown}: of {of}, which `{}` had acknowledged on {} before {}, {left} {is} to {}",
            text(&head.command),
            text(&head.mountpoint),
            text(&head.time),
            mount.display()
        )?;
        Ok(())
    }

    /// What is in the file.
    pub fn list(&self, file: &File) -> Result<()> {
        let head = &file.kept.head;
        if self.json {
            writeln!(Out, "{}", json!({ "schema_version": 1, "head": head }))?;
        } else {
            writeln!(
                Out,
                "{}: {} of image {}, acknowledged before {} and not on it, as {}; {} left to do",
                file.path.display(),
                operations(file.kept.steps.len()),
                head.image.show(),
                text(&head.time),
                text(&head.reason),
                file.left()
            )?;
        }
        for (number, (step, state)) in file.kept.steps.iter().zip(&file.kept.states).enumerate() {
            self.step(number, step, *state, name(*state))?;
        }
        Ok(())
    }

    /// What has come of one operation.
    pub fn step(&self, number: usize, step: &Step, state: State, outcome: &str) -> Result<()> {
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
        writeln!(out, "{number} {}: {outcome}", words_of(step))?;
        Ok(())
    }

    /// What has come of all.
    pub fn end(&self, file: &File, counts: &Counts, left: usize) -> Result<()> {
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
                "{applied} applied, {failed} failed, {skipped} left out, {before} done before, {left} left"
            )?;
            if left == 0 {
                let shown = file.path.display();
                writeln!(out, "nothing is left to do: {shown} is not needed any more")?;
            }
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
