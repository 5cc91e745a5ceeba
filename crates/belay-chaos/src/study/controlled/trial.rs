//! One experiment: prepare, crash at the point, look.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_faults::{Fault, Plan, Report, Tracer};
use belay_testbed::process::wait_for_exit;
use belay_testbed::{Bed, BedOptions, Kind, mounts};

use super::image;
use super::model::{Application, Column, Outcome};
use super::ops::{self, Operation, User};
use super::snapshot::{Look, Snapshot};

/// How long a server may go on after the daemon is gone; and a released file with being released.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Runs something that may hang; nothing if it does. It then stays behind, until the mount goes.
fn limited<T: Send + 'static>(
    limit: Duration,
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(what()));
    told.recv_timeout(limit).ok()
}

/// A bed, and where in it an experiment is made.
pub struct Place<'a> {
    pub bed: &'a Bed,
    pub name: String,
    pub limit: Duration,
}

/// What an operation does if nothing disturbs it.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    pub outcome: Outcome,
    /// The tree afterwards, by the mount.
    pub front: Snapshot,
    /// The tree behind the mount, before and after.
    pub before: Snapshot,
    pub after: Snapshot,
    /// The same when the file system was used after that: an image has its own ways.
    pub used: Snapshot,
}

/// What is found after a crash.
#[derive(Debug)]
pub struct Findings {
    pub report: Report,
    pub outcome: Outcome,
    pub application: Application,
    pub differences: String,
    pub trouble: String,
}

impl Findings {
    /// Whether the bed can serve the next experiment.
    pub fn is_all_right(&self) -> bool {
        self.application == Application::Ok
            && self.differences.is_empty()
            && self.trouble.is_empty()
    }
}

/// Options of all beds of the study.
pub fn options(workdir: Option<&Path>) -> BedOptions {
    BedOptions {
        workdir: workdir.map(Path::to_path_buf),
        repeatable: true,
        // Small, as it is made anew for each experiment.
        image_mib: 24,
        ..BedOptions::default()
    }
}

/// Who does the work. sshfs and avfs do everything as the user that they run as.
fn user_of(kind: Kind) -> User {
    if matches!(kind, Kind::Sshfs | Kind::Avfs) { User::Root } else { User::Ordinary }
}

/// Whether a bed can be used for several experiments. The image must be looked at without its daemon.
pub fn can_be_reused(kind: Kind) -> bool {
    kind != Kind::Ntfs3g
}

impl Place<'_> {
    fn front(&self) -> PathBuf {
        self.bed.root().join(&self.name)
    }

    /// By the mount.
    fn look_in_front(&self, op: &Operation) -> Result<Snapshot> {
        let links = self.bed.kind().numbers_tell_links();
        let (dir, look) = (self.front(), Look { links, time: op.sets_time, free: false });
        limited(self.limit, move || Snapshot::read(&dir, look)).context("looking did not end")?
    }

    /// Behind the mount. For an image that is the end of the mount: another daemon tells what is on it, and how much is
    /// free, of which a daemon that has written to it has a view of its own.
    fn look_behind(&self, op: &Operation) -> Result<Snapshot> {
        let look = Look { links: true, time: op.sets_time, free: self.is_image() };
        let backing = self.bed.backing();
        if !self.is_image() {
            return Snapshot::read(&backing.join(&self.name), look);
        }
        // What becomes of it is seen in the image.
        let last = self.bed.belay_pid().or_else(|| self.bed.daemon_pid().ok());
        let _ = mounts::unmount_clean(self.bed.mountpoint(), self.limit);
        mounts::unmount_by_force(self.bed.mountpoint());
        if let Some(pid) = last {
            ensure!(wait_for_exit(pid, self.limit)?, "process {pid} does not end");
        }
        if let Some(complaint) = image::complaint(backing) {
            bail!("{complaint}");
        }
        image::look_into(backing, &self.name, look)
    }

    fn is_image(&self) -> bool {
        !self.bed.kind().backed_by_directory()
    }

    /// Makes the tree and waits until the daemon has nothing left to do.
    fn prepare(&self) -> Result<()> {
        let (dir, user) = (self.front(), user_of(self.bed.kind()));
        limited(self.limit, move || ops::prepare(&dir, user))
            .context("it did not end")
            .and_then(|result| result.map_err(Into::into))
            .context("making the tree")?;
        self.settle();
        Ok(())
    }

    /// Files are released after their `close` has returned.
    fn settle(&self) {
        let deadline = Instant::now() + AFTERMATH;
        while Instant::now() < deadline
            && mounts::requests_waiting(self.bed.mountpoint()).is_ok_and(|n| n > 0)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn act(&self, op: &'static Operation) -> Outcome {
        let (dir, user) = (self.front(), user_of(self.bed.kind()));
        let outcome = Outcome::of(limited(self.limit, move || {
            user.assume();
            (op.act)(&dir)
        }));
        if outcome == Outcome::Hung {
            // Lets the caller go, and everything else that waits.
            mounts::unmount_by_force(self.bed.mountpoint());
        }
        outcome
    }

    /// The tree behind the mount before any operation.
    pub fn untouched(&self, op: &Operation) -> Result<Snapshot> {
        self.prepare()?;
        self.look_behind(op)
    }

    /// What the operation does on a bare daemon that is left alone: the result, and the tree by the mount and behind it.
    pub fn undisturbed(
        &self,
        op: &'static Operation,
        used: bool,
    ) -> Result<(Outcome, Snapshot, Snapshot)> {
        self.prepare()?;
        let outcome = self.act(op);
        self.settle();
        let front = self.look_in_front(op)?;
        if used {
            let trouble = self.trouble();
            ensure!(trouble.is_empty(), "using it: {trouble}");
        }
        Ok((outcome, front, self.look_behind(op)?))
    }

    fn traced(&self, op: &'static Operation, fault: Option<Fault>) -> Result<(Outcome, Report)> {
        self.prepare()?;
        let pid = self.bed.daemon_pid()?;
        let tracer = Tracer::attach(pid, Plan { target: op.target(), fault })?;
        let outcome = self.act(op);
        let report = tracer.finish()?;
        Ok((outcome, report))
    }

    /// The same, observed: what was seen, and what is not as it should be.
    pub fn observed(
        &self,
        op: &'static Operation,
        expected: &Undisturbed,
    ) -> Result<(Report, String)> {
        let (outcome, report) = self.traced(op, None)?;
        self.settle();
        let mut text = self.look_in_front(op)?.difference(&expected.front);
        text += &self.trouble();
        text += &self.look_behind(op)?.difference(&expected.used);
        if outcome != expected.outcome {
            text += &format!("it came to: {outcome}, expected: {}\n", expected.outcome);
        }
        Ok((report, text))
    }

    /// The daemon dies.
    pub fn disturbed(
        &self,
        op: &'static Operation,
        fault: Fault,
        expected: &Undisturbed,
        column: Column,
    ) -> Result<Findings> {
        let (outcome, report) = self.traced(op, Some(fault))?;
        let application = outcome.judge(&expected.outcome);
        let text = |error: anyhow::Error| format!("{error:#}\n");
        let (differences, trouble);
        if column == Column::Bare {
            trouble = self.trouble();
            differences = self.differences_of_bare(op, application, expected).unwrap_or_else(text);
        } else {
            self.settle();
            let found = self.look_in_front(op).map(|s| s.difference(&expected.front));
            let front = found.unwrap_or_else(text);
            trouble = self.trouble();
            let behind = self.look_behind(op).map(|s| s.difference(&expected.used));
            let behind = behind.unwrap_or_else(text);
            let told = behind.is_empty() || behind == front;
            differences = if told { front } else { format!("{front}behind the mount:\n{behind}") };
        }
        Ok(Findings { report, outcome, application, differences, trouble })
    }

    /// Why the mount cannot be used; empty if it can.
    fn trouble(&self) -> String {
        let dir = self.bed.root().join(format!("{}.use", self.name));
        match limited(self.limit, move || ops::use_it(&dir)) {
            Some(Ok(())) => String::new(),
            Some(Err(error)) => error.to_string(),
            None => "it hangs".to_owned(),
        }
    }

    /// What a bare daemon left behind, compared with what it may leave: the tree after, and also the tree before if the
    /// application was told that it failed.
    fn differences_of_bare(
        &self,
        op: &'static Operation,
        application: Application,
        expected: &Undisturbed,
    ) -> Result<String> {
        let differences = |found: &Snapshot| {
            if application != Application::Ok && *found == expected.before {
                return String::new();
            }
            found.difference(&expected.after)
        };
        // A server carries out what it was sent, whether or not the daemon still lives.
        let deadline = Instant::now() + AFTERMATH;
        loop {
            let text = self.look_behind(op).map(|found| differences(&found));
            let done = text.as_ref().is_ok_and(String::is_empty)
                || self.bed.kind() != Kind::Sshfs
                || Instant::now() > deadline;
            if done {
                return text;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

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
        assert_eq!(
            ops::use_it(Path::new("/proc/none")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
