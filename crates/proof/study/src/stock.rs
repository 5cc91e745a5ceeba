//! On which subject an experiment is made: one that was all right before, or a new one.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_faults::Fault;

use crate::aim::Aim;
use crate::operation::Operation;
use crate::record::{Crash, DryRun};
use crate::subject::Source;
use crate::trial::{Trial, Undisturbed};

/// How often a point that was not reached is tried.
const ATTEMPTS: u32 = 5;

/// Names of directories that no experiment has been in. Clones count on together.
#[derive(Clone, Debug, Default)]
pub struct Names(Rc<Cell<u32>>);

impl Names {
    fn next(&self) -> String {
        self.0.set(self.0.get() + 1);
        format!("t{:06}", self.0.get())
    }
}

/// Subjects of one source, at most one at a time.
#[derive(Debug)]
pub struct Stock<S: Source> {
    source: S,
    /// One that was all right.
    ready: Option<S::Subject>,
    names: Names,
    /// How long an operation may take.
    limit: Duration,
    unsaved: bool,
}

impl<S: Source> Stock<S> {
    /// An empty stock.
    pub fn new(source: S, names: Names, limit: Duration) -> Self {
        Self { source, ready: None, names, limit, unsaved: false }
    }

    /// From now on each tree has changes that nobody has asked to be made safe.
    #[must_use]
    pub fn with_unsaved_changes(mut self) -> Self {
        self.unsaved = true;
        self
    }

    /// Where its subjects come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    fn take(&mut self) -> Result<S::Subject> {
        self.ready.take().map_or_else(|| self.source.start(), Ok)
    }

    /// Takes a subject back, if it can be used again.
    fn put(&mut self, subject: S::Subject) {
        if self.source.is_reusable() {
            self.ready = Some(subject);
        }
    }

    /// Takes what is ready away in order.
    ///
    /// # Errors
    /// If it does not go.
    pub fn close(&mut self) -> Result<()> {
        self.ready.take().map_or(Ok(()), |subject| self.source.stop(subject))
    }

    /// Does something where nothing was done before.
    fn at<T>(&mut self, what: impl FnOnce(&Trial<'_, S::Subject>) -> Result<T>) -> Result<T> {
        let subject = self.take()?;
        let name = self.names.next();
        let (limit, unsaved) = (self.limit, self.unsaved);
        let result = what(&Trial { subject: &subject, name, limit, unsaved })?;
        self.put(subject);
        Ok(result)
    }

    /// Learns what an operation does on a bare daemon, each part of it in a place of its own. The
    /// tree `before` matters only to the judgement of crashes of bare daemons.
    ///
    /// # Errors
    /// If it cannot be done, or does something else each time.
    pub fn undisturbed(&mut self, op: &'static Operation, before: bool) -> Result<Undisturbed> {
        let before = if before { self.at(|trial| trial.untouched(op))? } else { None };
        let (outcome, front, after) = self.at(|trial| trial.undisturbed(op, false))?;
        let (again, second, used) = self.at(|trial| trial.undisturbed(op, true))?;
        ensure!(outcome == again, "it came to {outcome}, and another time to {again}");
        let differences = second.difference(&front);
        ensure!(differences.is_empty(), "the tree is not the same each time:\n{differences}");
        Ok(Undisturbed { outcome, front, before, after, used })
    }

    /// Observes an operation: what was seen, and what is not as it should be.
    ///
    /// # Errors
    /// If it cannot be done.
    pub fn observed(&mut self, op: &'static Operation, expected: &Undisturbed) -> Result<DryRun> {
        self.observed_at(op, &Aim::of(op), expected)
    }

    /// The same, with another aim than the operation's own request.
    ///
    /// # Errors
    /// If it cannot be done.
    pub fn observed_at(
        &mut self,
        op: &'static Operation,
        aim: &Aim,
        expected: &Undisturbed,
    ) -> Result<DryRun> {
        let mut attempts = 1;
        loop {
            let fresh = self.ready.is_none();
            let (report, differences) = self.at(|trial| trial.observed(op, aim, expected))?;
            // What is followed by functions may be missed.
            let again = aim.may_miss() && attempts < ATTEMPTS;
            attempts += 1;
            if report.request.is_some() || (fresh && !again) {
                return Ok(DryRun::new(report, differences));
            }
            // The kernel may have learnt in that mount's life that the daemon does not know such
            // requests.
            self.close()?;
        }
    }

    /// Crashes the daemon. `call` is the one at the point of the fault.
    ///
    /// # Errors
    /// If the experiment cannot be made. Whatever the crash brings about is no error.
    pub fn disturbed(
        &mut self,
        op: &'static Operation,
        fault: Fault,
        call: Option<Cow<'static, str>>,
        expected: &Undisturbed,
    ) -> Result<Crash> {
        self.disturbed_at(op, &Aim::of(op), (fault, call), expected)
    }

    /// The same, with another aim than the operation's own request.
    ///
    /// # Errors
    /// If the experiment cannot be made.
    pub fn disturbed_at(
        &mut self,
        op: &'static Operation,
        aim: &Aim,
        (fault, call): (Fault, Option<Cow<'static, str>>),
        expected: &Undisturbed,
    ) -> Result<Crash> {
        let began = Instant::now();
        let bare = self.source.is_bare();
        let mut attempts = 1;
        loop {
            let subject = self.take()?;
            let (limit, unsaved) = (self.limit, self.unsaved);
            let trial = Trial { subject: &subject, name: self.names.next(), limit, unsaved };
            let findings = trial
                .disturbed(op, (aim, fault), expected, bare)
                .with_context(|| format!("{} {}", fault.point, fault.signal))?;
            // One that something was wrong with is taken away as it is.
            if !bare && findings.judged.is_all_right() {
                self.put(subject);
            }
            let reached = findings.report.crashed;
            if reached || attempts == ATTEMPTS {
                let seconds = began.elapsed().as_secs_f64();
                let (point, signal) = (fault.point.to_string(), fault.signal);
                return Ok(Crash {
                    point,
                    call,
                    signal,
                    reached,
                    judged: findings.judged,
                    told: findings.told,
                    seconds,
                });
            }
            // The kernel may know the answer by now, in this mount's life.
            self.close()?;
            attempts += 1;
        }
    }
}
