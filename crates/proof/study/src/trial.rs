//! One experiment: prepare, crash at the point, look.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_faults::{Fault, Plan, Report, Scope, Tracer};
use nix::errno::Errno;

use crate::aim::{Aim, Victim};
use crate::operation::{self, Operation};
use crate::outcome::{Application, Judged, Outcome};
use crate::record::Told;
use crate::snapshot::{Look, Snapshot};
use crate::subject::Subject;

/// How long a server may go on after the daemon is gone; and a released file with being released.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Runs something that may hang; nothing if it does. It then stays behind, until the mount goes.
pub fn limited<T: Send + 'static>(
    limit: Duration,
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(what()));
    told.recv_timeout(limit).ok()
}

/// Whether an experiment could not be made because the kernel does not let this process trace the
/// daemon.
#[must_use]
pub fn is_not_permitted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref() == Some(&Errno::EPERM))
}

/// An experiment: its subject, and where in that it is made.
#[derive(Debug)]
pub struct Trial<'a, S> {
    /// The subject.
    pub subject: &'a S,
    /// The directory's name.
    pub name: String,
    /// How long anything may take.
    pub limit: Duration,
    /// Whether there are changes that nobody has asked to be made safe.
    pub unsaved: bool,
}

/// What an operation does if nothing disturbs it.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    /// What the application gets.
    pub outcome: Outcome,
    /// The tree afterwards, by the mount.
    pub front: Snapshot,
    /// The tree behind the mount before, if that can be seen.
    pub before: Option<Snapshot>,
    /// The same afterwards.
    pub after: Option<Snapshot>,
    /// The same when the file system was used after that: an image has its own ways.
    pub used: Option<Snapshot>,
}

/// What is found after a crash.
#[derive(Debug)]
pub(crate) struct Findings {
    /// What the tracer saw.
    pub report: Report,
    /// What it was worth.
    pub judged: Judged,
    /// What others have said.
    pub told: Told,
}

impl<S: Subject> Trial<'_, S> {
    fn front(&self) -> PathBuf {
        self.subject.root().join(&self.name)
    }

    /// By the mount.
    fn look_in_front(&self, op: &Operation) -> Result<Snapshot> {
        let links = self.subject.numbers_tell_links();
        let (dir, look) = (self.front(), Look { links, time: op.sets_time, free: false });
        limited(self.limit, move || Snapshot::read(&dir, look)).context("looking did not end")?
    }

    fn look_behind(&self, op: &Operation) -> Result<Option<Snapshot>> {
        self.subject.look_behind(&self.name, Look { links: true, time: op.sets_time, free: false })
    }

    /// Makes the tree and waits until the daemon has nothing left to do.
    fn prepare(&self, op: &'static Operation) -> Result<()> {
        let (dir, user, unsaved) = (self.front(), self.subject.user(), self.unsaved);
        let all = move || {
            operation::prepare(&dir, user)?;
            (op.needs)(&dir)?;
            if unsaved { operation::leave_unsaved(&dir, user) } else { Ok(()) }
        };
        limited(self.limit, all)
            .context("it did not end")
            .and_then(|result| result.map_err(Into::into))
            .context("making the tree")?;
        self.settle();
        self.subject.store().context("storing the tree")?;
        Ok(())
    }

    /// Files are released after their `close` has returned.
    fn settle(&self) {
        let deadline = Instant::now() + AFTERMATH;
        while Instant::now() < deadline && !self.subject.is_idle() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn act(&self, op: &'static Operation) -> Outcome {
        let (dir, user) = (self.front(), self.subject.user());
        let outcome = Outcome::of(limited(self.limit, move || {
            user.assume();
            (op.act)(&dir)
        }));
        if outcome == Outcome::Hung {
            // Lets the caller go, and everything else that waits.
            self.subject.abandon();
        }
        outcome
    }

    /// The tree behind the mount before any operation.
    pub(crate) fn untouched(&self, op: &'static Operation) -> Result<Option<Snapshot>> {
        self.prepare(op)?;
        self.look_behind(op)
    }

    /// What the operation does on a bare daemon that is left alone: the result, and the tree by the
    /// mount and behind it.
    pub(crate) fn undisturbed(
        &self,
        op: &'static Operation,
        used: bool,
    ) -> Result<(Outcome, Snapshot, Option<Snapshot>)> {
        self.prepare(op)?;
        let outcome = self.act(op);
        self.settle();
        let front = self.look_in_front(op)?;
        if used {
            let trouble = self.trouble();
            ensure!(trouble.is_empty(), "using it: {trouble}");
        }
        Ok((outcome, front, self.look_behind(op)?))
    }

    fn traced(
        &self,
        op: &'static Operation,
        aim: &Aim,
        fault: Option<Fault>,
    ) -> Result<(Outcome, Report)> {
        self.prepare(op)?;
        let mut target = aim.target.clone();
        let pid = match aim.victim {
            Victim::Daemon => self.subject.daemon_pid()?,
            Victim::Supervisor | Victim::Both => {
                target.scope = Scope::Files(self.subject.commit_files());
                self.subject.supervisor_pid()?
            }
        };
        if aim.victim == Victim::Both {
            target.company = Some(self.subject.daemon_pid()?);
        }
        let tracer = Tracer::attach(pid, Plan { target, fault })?;
        let outcome = self.act(op);
        if aim.comes_late() {
            self.settle();
        }
        let report = tracer.finish()?;
        Ok((outcome, report))
    }

    /// The same, observed: what was seen, and what is not as it should be.
    pub(crate) fn observed(
        &self,
        op: &'static Operation,
        aim: &Aim,
        expected: &Undisturbed,
    ) -> Result<(Report, String)> {
        let (outcome, report) = self.traced(op, aim, None)?;
        self.settle();
        let mut text = self.look_in_front(op)?.difference(&expected.front);
        text += &self.trouble();
        text += &difference(self.look_behind(op)?, expected.used.as_ref());
        if outcome != expected.outcome {
            text += &format!("it came to: {outcome}, expected: {}\n", expected.outcome);
        }
        Ok((report, text))
    }

    /// The daemon dies.
    pub(crate) fn disturbed(
        &self,
        op: &'static Operation,
        (aim, fault): (&Aim, Fault),
        expected: &Undisturbed,
        bare: bool,
    ) -> Result<Findings> {
        let (outcome, report) = self.traced(op, aim, Some(fault))?;
        let noticed = report.crashed.then(|| self.subject.noticed()).flatten();
        let application = outcome.judge(&expected.outcome);
        let text = |error: anyhow::Error| format!("{error:#}\n");
        let (differences, trouble);
        if bare {
            trouble = self.trouble();
            differences = self.differences_of_bare(op, application, expected).unwrap_or_else(text);
        } else {
            self.settle();
            let found = self.look_in_front(op).map(|s| s.difference(&expected.front));
            let front = found.unwrap_or_else(text);
            trouble = self.trouble();
            let behind = self.look_behind(op).map(|s| difference(s, expected.used.as_ref()));
            let behind = behind.unwrap_or_else(text);
            let told = behind.is_empty() || behind == front;
            differences = if told { front } else { format!("{front}behind the mount:\n{behind}") };
        }
        let judged = Judged {
            application,
            outcome: outcome.to_string(),
            expected: expected.outcome.to_string(),
            consistent: differences.is_empty(),
            unseen: bare && expected.after.is_none(),
            differences,
            usable: trouble.is_empty(),
            trouble,
        };
        let told = Told { end: report.end.clone(), noticed, checked: self.subject.checked() };
        Ok(Findings { report, judged, told })
    }

    /// Why the mount cannot be used; empty if it can.
    fn trouble(&self) -> String {
        let dir = self.subject.root().join(format!("{}.use", self.name));
        match limited(self.limit, move || operation::use_it(&dir)) {
            Some(Ok(())) => String::new(),
            Some(Err(error)) => error.to_string(),
            None => "it hangs".to_owned(),
        }
    }

    /// What a bare daemon left behind, compared with what it may leave: the tree after, and also
    /// the tree before if the application was told that it failed.
    fn differences_of_bare(
        &self,
        op: &'static Operation,
        application: Application,
        expected: &Undisturbed,
    ) -> Result<String> {
        let differences = |found: Option<Snapshot>| {
            if application != Application::Ok && found == expected.before {
                return String::new();
            }
            difference(found, expected.after.as_ref())
        };
        // A server carries out what it was sent, whether or not the daemon still lives.
        let deadline = Instant::now() + AFTERMATH;
        loop {
            let text = self.look_behind(op).map(differences);
            let done = text.as_ref().is_ok_and(String::is_empty)
                || !self.subject.has_server()
                || Instant::now() > deadline;
            if done {
                return text;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The differences of what can be seen.
fn difference(found: Option<Snapshot>, expected: Option<&Snapshot>) -> String {
    match (found, expected) {
        (Some(found), Some(expected)) => found.difference(expected),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_hangs_is_left_behind() {
        assert_eq!(limited(Duration::from_secs(60), || 5), Some(5));
        let (hold, held) = mpsc::channel::<()>();
        let result = limited(Duration::from_millis(5), move || held.recv());
        assert!(result.is_none());
        drop(hold);
    }

    #[test]
    fn errors_of_the_tree_are_io_errors() {
        let error = operation::use_it(Path::new("/proc/none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_lack_of_permission_is_told_apart() {
        let error = Err::<(), _>(Errno::EPERM).context("attaching").context("tracing").unwrap_err();
        assert!(is_not_permitted(&error));
        assert!(!is_not_permitted(&anyhow::anyhow!("EPERM")));
    }
}
