//! The study itself: every operation, every policy, every point, every signal.

use super::daemon::{Launcher, Target};
use super::model::{Experiment, Learnt, Observed, Qualification};
use super::options::{Options, Tried};
use super::replay::Replay;
use crate::messages::say;
use anyhow::Result;
use belay_faults::Fault;
use belay_study::trial::is_not_permitted;
use belay_study::{Names, Operation, Outcome, Stock, Undisturbed};
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many experiments that cannot be made are enough of a policy.
const TROUBLES: usize = 5;

/// Everything that a study has while it runs.
pub struct Lab<'a> {
    options: &'a Options,
    target: Rc<Target>,
    names: Names,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    replay: Replay<'a>,
    all: &'a mut Qualification,
    /// What could not be made under the policy that is tried now.
    troubles: Vec<String>,
}

impl<'a> Lab<'a> {
    /// Ready to begin.
    pub fn new(
        options: &'a Options,
        target: Rc<Target>,
        interrupted: Arc<AtomicBool>,
        all: &'a mut Qualification,
    ) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let replay = Replay(options);
        let (names, troubles) = (Names::default(), Vec::new());
        Self { options, target, names, bar, interrupted, replay, all, troubles }
    }

    /// Does it all; what cannot be done is among the troubles.
    ///
    /// # Errors
    /// If nothing can be done.
    pub fn run(&mut self, ops: &[&'static Operation], policies: &[Tried]) -> Result<()> {
        let known = self.learn(ops)?;
        // What was learnt says nothing of a policy.
        let learning = std::mem::take(&mut self.troubles);
        self.all.troubles.extend(learning);
        for policy in policies {
            // It costs most, so it is tried by itself only where nothing else will do.
            let dear =
                matches!(policy, Tried::Epoch | Tried::Buffer) && self.options.policies.is_empty();
            if dear && self.all.policies.iter().any(|column| column.right) {
                continue;
            }
            if self.interrupted() {
                break;
            }
            let renumbered = self.policy(*policy, &known)?;
            if renumbered && !self.target.volatile.replace(true) {
                self.tell(&format!(
                    "{}: files have other inode numbers after a crash; trying it again with --inode-numbers volatile",
                    policy.name()
                ));
                self.all.forget(*policy);
                self.policy(*policy, &known)?;
            }
        }
        self.bar.finish_and_clear();
        Ok(())
    }

    fn stock(&self, launcher: Launcher) -> Stock<Launcher> {
        Stock::new(launcher, self.names.clone(), self.options.op_timeout)
    }

    fn interrupted(&mut self) -> bool {
        let now = self.interrupted.load(Ordering::Relaxed);
        let text = "interrupted";
        if now && !self.all.troubles.iter().any(|trouble| trouble == text) {
            self.all.troubles.push(text.to_owned());
        }
        now
    }

    fn show(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// A line for those who wait, also where no progress can be drawn.
    fn tell(&self, text: &str) {
        self.bar.suspend(|| say(&format!("belay: {text}\n")));
    }

    /// What each operation does on the bare daemon; those that work.
    fn learn(
        &mut self,
        ops: &[&'static Operation],
    ) -> Result<Vec<(&'static Operation, Undisturbed)>> {
        let mut known = Vec::new();
        let mut stock = self.stock(Launcher::new(&self.target, None));
        for op in ops {
            if self.interrupted() {
                break;
            }
            self.show(format!("{} on the bare daemon", op.name));
            match stock.undisturbed(op, false) {
                Ok(expected) => {
                    let supported = matches!(expected.outcome, Outcome::Done(_));
                    let outcome = expected.outcome.to_string();
                    self.all.operations.push(Learnt { name: op.name, supported, outcome });
                    if supported {
                        known.push((*op, expected));
                    }
                }
                Err(error) => self.trouble(format!("{} on the bare daemon", op.name), error)?,
            }
            if self.is_hopeless() {
                break;
            }
        }
        if let Err(error) = stock.close() {
            self.trouble("after the bare daemon".to_owned(), error)?;
        }
        self.tell(&format!(
            "operations that work on the bare daemon: {} of {}",
            known.len(),
            ops.len()
        ));
        Ok(known)
    }

    /// Takes note of what could not be done. No reason to leave out the rest, unless nothing goes.
    fn trouble(&mut self, what: String, error: anyhow::Error) -> Result<()> {
        if is_not_permitted(&error) {
            return Err(error.context(
                "the daemon cannot be traced: run this as root, or allow it by `sysctl kernel.yama.ptrace_scope=0` (in a \
                 container: --cap-add SYS_PTRACE)",
            ));
        }
        let text = format!("{what}: {error:#}");
        self.tell(&text);
        self.troubles.push(text);
        Ok(())
    }

    /// Whether so much could not be made that the rest is not worth the time.
    fn is_hopeless(&self) -> bool {
        self.troubles.len() > TROUBLES
    }

    /// All operations under a policy. True if it is wrong, and inode numbers were seen to change.
    fn policy(
        &mut self,
        policy: Tried,
        known: &[(&'static Operation, Undisturbed)],
    ) -> Result<bool> {
        let launcher = Launcher::new(&self.target, Some(policy));
        let tallies = Rc::clone(&launcher.tallies);
        let mut stock = self.stock(launcher);
        let mut left_early = false;
        for (op, expected) in known {
            if self.interrupted() {
                break;
            }
            left_early = !self.operation(&mut stock, policy, op, expected)? || self.is_hopeless();
            if left_early {
                break;
            }
        }
        if let Err(error) = stock.close() {
            self.trouble(format!("after {}", policy.name()), error)?;
        }
        let tallies = *tallies.borrow();
        let troubles = std::mem::take(&mut self.troubles);
        let column = self.all.column(policy, tallies, left_early, troubles);
        self.tell(&format!(
            "{}: {} of {} experiments went well",
            policy.name(),
            column.all_right,
            column.experiments
        ));
        let renumbered = !column.right && tallies.renumbered > 0;
        self.all.policies.push(column);
        Ok(renumbered)
    }

    /// Crashes at every point of an operation; false if the policy need not be tried any further.
    fn operation(
        &mut self,
        stock: &mut Stock<Launcher>,
        policy: Tried,
        op: &'static Operation,
        expected: &Undisturbed,
    ) -> Result<bool> {
        let name = policy.name();
        self.show(format!("{name} {}", op.name));
        let run = match stock.observed(op, expected) {
            Ok(run) => run,
            Err(error) => {
                self.trouble(format!("{name} {}", op.name), error)?;
                return Ok(true);
            }
        };
        let (points, disturbed) = (run.points(), run.differs());
        self.all.dry_runs.push(Observed { operation: op.name, policy, run });
        if disturbed && self.options.quick {
            return Ok(false);
        }
        for (point, call) in points {
            for signal in &self.options.signals {
                let only = self.options.only.as_ref();
                if only.is_some_and(|only| (only.point, only.signal) != (point, *signal)) {
                    continue;
                }
                if self.interrupted() {
                    return Ok(true);
                }
                if self.is_hopeless() {
                    return Ok(true);
                }
                let fault = Fault { point, signal: *signal };
                let call = call.clone();
                let failed = self.experiment(stock, policy, op, fault, call, expected)?;
                if failed && self.options.quick {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One crash; true if it went wrong.
    fn experiment(
        &mut self,
        stock: &mut Stock<Launcher>,
        policy: Tried,
        op: &'static Operation,
        fault: Fault,
        call: Option<Cow<'static, str>>,
        expected: &Undisturbed,
    ) -> Result<bool> {
        let Fault { point, signal } = fault;
        let what = format!("{} {} {point} {signal}", policy.name(), op.name);
        self.show(what.clone());
        let crash = match stock.disturbed(op, fault, call, expected) {
            Ok(crash) => crash,
            Err(error) => {
                self.trouble(what, error)?;
                return Ok(false);
            }
        };
        let replay = self.replay.of(policy, op.name, point, signal);
        let experiment = Experiment { operation: op.name, policy, crash, replay };
        let failed = experiment.failed();
        if failed && self.options.only.is_some() {
            self.tell(&format!("{what}:{}", experiment.crash.judged.account()));
        }
        self.all.experiments.push(experiment);
        Ok(failed)
    }
}
