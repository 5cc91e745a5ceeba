//! A process apart that goes where one may have to wait for ever: for who serves another file
//! system, be it that this is asked for a path, or that a file of it is closed (close(2) of a file
//! of FUSE or NFS waits for the server, and no signal ends that).
//!
//! It is this very program again, with a question at its standard input and nothing else. It is
//! waited for with a limit. One that does not come back keeps nothing of a mount open but what came
//! with the question; there are never more than [`MOST`] of these.
//!
//! Invariant: what a daemon may have put somewhere (a mailbox, a number of a descriptor) is
//! received and closed here and in no other process of belay's. What is passed on is what it is to
//! be, so it can be closed without waiting.

pub mod errand;
mod finish;
mod talk;

use crate::connections::Wanted;
use crate::look::found::{Found, Links, There};
use crate::process::{Watched, readable};
use crate::text::OsText;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use talk::{Answer, Question, ROOM, receive, send};

/// Scouts that have not come back and are not given up; while there are so many, no other one is
/// sent.
const MOST: usize = 4;
/// How long one is waited for who only looks.
const LOOK: Duration = Duration::from_secs(1);
/// How long one is waited for who writes what the last daemon had committed.
const FINISH: Duration = Duration::from_secs(10);
/// What has come of sending one.
#[derive(Debug)]
pub enum Sent<T> {
    /// It is back with this.
    Back(T),
    /// It is not back yet.
    Away,
    /// None could be sent now.
    Not(io::Error),
}

/// One that is not back.
#[derive(Debug)]
struct Scout {
    question: Question,
    link: OwnedFd,
    process: Option<Watched>,
}

/// Those who are not back.
#[derive(Debug, Default)]
pub struct Scouts(Mutex<Vec<Scout>>);

impl Drop for Scout {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            let _ = process.signal(signal_hook::consts::SIGKILL);
        }
    }
}

impl Scouts {
    /// Looks for a path, as [`crate::look::look`] does.
    pub fn look(&self, folder: Option<BorrowedFd<'_>>, path: &Path, links: Links) -> Found {
        let question = Question::Look { path: path.into(), links };
        let folder: Vec<_> = folder.into_iter().collect();
        match self.ask(question, &folder, LOOK) {
            Sent::Back((Answer::There { stat, gained }, mut fds)) => match fds.pop() {
                Some(pinned) => Found::There(There { pinned, stat, gained: Some(gained) }),
                None => Found::Unknown,
            },
            Sent::Back((Answer::Not(error), _)) => Found::Not(Errno::from_raw_os_error(error)),
            Sent::Back(_) | Sent::Away | Sent::Not(_) => Found::Unknown,
        }
    }

    /// The folder that what is mounted at `path` is in, and its root, as
    /// [`crate::mounts::way::walk`] gives them.
    ///
    /// # Errors
    /// Those of openat(2); `ETIMEDOUT` if whoever serves a file system on the way does not answer.
    pub fn root(&self, path: &Path) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        match self.ask(Question::Root { path: path.into() }, &[], LOOK) {
            Sent::Back((Answer::Root, fds)) => match <[OwnedFd; 2]>::try_from(fds) {
                Ok([folder, root]) => Ok((folder, root)),
                Err(_) => Err(Errno::MFILE),
            },
            Sent::Back((Answer::Not(error), _)) => Err(Errno::from_raw_os_error(error)),
            Sent::Back(_) | Sent::Away => Err(Errno::TIMEDOUT),
            Sent::Not(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)),
        }
    }

    /// The device in the mailbox `mail`, if it is what came there first.
    pub fn device(&self, mail: BorrowedFd<'_>) -> Sent<Option<OwnedFd>> {
        match self.ask(Question::Device, &[mail], LOOK) {
            Sent::Back((_, mut fds)) => Sent::Back(fds.pop()),
            Sent::Away => Sent::Away,
            Sent::Not(error) => Sent::Not(error),
        }
    }

    /// Device and inode number of the image in the box `mail`, if what came there first is one that
    /// was opened for writing.
    pub fn image(&self, mail: BorrowedFd<'_>) -> Sent<Option<(u64, u64)>> {
        match self.ask(Question::Image, &[mail], LOOK) {
            Sent::Back((Answer::Image(image), _)) => Sent::Back(image),
            Sent::Back(_) => Sent::Back(None),
            Sent::Away => Sent::Away,
            Sent::Not(error) => Sent::Not(error),
        }
    }

    /// Copies of those descriptors of `daemon` that are what they are wanted for, each with its
    /// inode number. Nothing if some of that cannot be had now.
    pub fn copies(&self, daemon: &Watched, wanted: &[Wanted]) -> Option<Vec<(u64, OwnedFd)>> {
        let mut copies = Vec::new();
        for wanted in wanted.chunks(ROOM) {
            let question = Question::Copies { pid: daemon.pid, wanted: wanted.to_vec() };
            let sent = self.ask(question, &[daemon.as_fd()], LOOK);
            let Sent::Back((Answer::Copies(inodes), fds)) = sent else { return None };
            copies.extend(inodes.into_iter().zip(fds));
        }
        Some(copies)
    }

    /// The disk image that `daemon` has open for writing, and what it holds; of several, one.
    pub fn opened(&self, daemon: &Watched) -> Sent<Option<(OsText, String)>> {
        match self.ask(Question::Opened { pid: daemon.pid }, &[daemon.as_fd()], LOOK) {
            Sent::Back((Answer::Opened(found), _)) => Sent::Back(found),
            Sent::Back(_) | Sent::Away => Sent::Away,
            Sent::Not(error) => Sent::Not(error),
        }
    }

    /// Which of `paths`, which a daemon has named, leads to a file that holds the number of process
    /// `pid`, if that can be seen now.
    pub fn pid_file(&self, paths: Vec<OsText>, pid: u32) -> Option<OsText> {
        if paths.is_empty() {
            return None;
        }
        match self.ask(Question::PidFile { paths, pid }, &[], LOOK) {
            Sent::Back((Answer::PidFile(found), _)) => found,
            Sent::Back(_) | Sent::Away | Sent::Not(_) => None,
        }
    }

    /// Carries out what the last daemon had committed; gives how many transactions there were.
    ///
    /// # Errors
    /// Why not, or not yet.
    pub fn finish(&self, recorder: BorrowedFd<'_>, mail: BorrowedFd<'_>) -> Result<usize, String> {
        match self.ask(Question::Finish, &[recorder, mail], FINISH) {
            Sent::Back((Answer::Finish(done), _)) => done,
            Sent::Back(_) => {
                Err("the process that writes to the image gave an answer that makes no sense"
                    .into())
            }
            Sent::Away => Err("the image's file system does not answer".into()),
            Sent::Not(error) => Err(format!("nobody can be had to write to the image: {error}")),
        }
    }

    /// The processes that are away: none of the daemon's.
    pub fn processes(&self) -> Vec<u32> {
        let away = self.away();
        away.iter().filter_map(|scout| scout.process.as_ref()).map(|process| process.pid).collect()
    }

    fn away(&self) -> MutexGuard<'_, Vec<Scout>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(
        &self,
        question: Question,
        fds: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Sent<(Answer, Vec<OwnedFd>)> {
        let mut away = self.away();
        // Of a mailbox, what came first never changes. Of a path, what was so when it was asked is
        // of no use now.
        let counts = matches!(question, Question::Device | Question::Image);
        let same = away.iter().position(|scout| scout.question == question);
        if let Some(at) = same {
            if !readable(away[at].link.as_fd(), Duration::ZERO) {
                return Sent::Away; // it has had its time
            }
            let late = receive(&away.swap_remove(at).link);
            if let Some(answer) = late.filter(|_| counts) {
                return Sent::Back(answer);
            }
        }
        away.retain(|scout| !readable(scout.link.as_fd(), Duration::ZERO));
        if away.len() >= MOST
            || question.is_idle() && away.iter().any(|scout| scout.question.is_idle())
        {
            return Sent::Away;
        }
        drop(away); // others may ask meanwhile
        let scout = match Scout::send(question, fds) {
            Ok(scout) => scout,
            Err(error) => return Sent::Not(error),
        };
        if comes_back(&scout, limit) {
            return receive(&scout.link).map_or(Sent::Away, Sent::Back);
        }
        self.away().push(scout);
        Sent::Away
    }
}

/// Waits for an answer, or the end. Signals interrupt that: of the scout's own end, for one.
fn comes_back(scout: &Scout, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if readable(scout.link.as_fd(), left) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

impl Scout {
    fn send(question: Question, fds: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (link, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        send(&link, &question, fds)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("belay").arg("scout").stdin(Stdio::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        Ok(Self { question, link, process: Watched::open(child.id()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody whose words lead to what does not answer, start after start.
    #[test]
    fn looks_for_pid_files_leave_scouts_for_others() {
        let asks = |path: &str| Question::PidFile { paths: vec![Path::new(path).into()], pid: 1 };
        let (link, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        let scouts = Scouts::default();
        scouts.away().push(Scout { question: asks("/dead/1"), link, process: None });
        for path in ["/dead/1", "/dead/2", "/dead/3"] {
            assert!(matches!(scouts.ask(asks(path), &[], LOOK), Sent::Away), "{path}");
            assert_eq!(scouts.away().len(), 1, "{path}: nobody else is sent");
        }
        const { assert!(MOST > 1, "others may still be sent") };
        drop(theirs);
    }
}
