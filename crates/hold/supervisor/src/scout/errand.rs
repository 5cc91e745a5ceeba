//! What the process apart does: the only one of belay's that waits for who serves another file
//! system.

use super::finish;
use super::talk::{Answer, Question, receive, send};
use crate::connections;
use crate::error::{Error, Result};
use crate::look::found::{FileStat, Links};
use crate::mounts::way::walk;
use crate::opened;
use crate::pidfile;
use crate::rights;
use belay_sys::mailbox;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, openat};
use rustix::io::Errno;
use std::path::Path;

/// The process: answers what is asked at its standard input. Gives its exit code.
///
/// # Errors
/// If no question is there.
pub fn run() -> Result<i32> {
    let none = || {
        let remedy = "this command is for belay itself: use `belay run`";
        Error::refused("scout", "no question is at standard input", remedy)
    };
    let link = belay_sys::dup_cloexec(rustix::stdio::stdin())
        .map_err(|error| Error::system("duplicate", "standard input", error, ""))?;
    let (question, fds) = receive::<Question>(&link).ok_or_else(none)?;
    let (answer, found) = find(&question, &fds);
    let found: Vec<_> = found.iter().map(AsFd::as_fd).collect();
    // Whoever asked may be gone.
    Ok(i32::from(send(&link, &answer, &found).is_err()))
}

fn find(question: &Question, fds: &[OwnedFd]) -> (Answer, Vec<OwnedFd>) {
    let failed = |error: Errno| (Answer::Not(error.raw_os_error()), Vec::new());
    match (question, fds) {
        (Question::Look { path, links }, _) => match look(path.as_path(), *links, fds.first()) {
            Ok((stat, pinned)) => {
                let gained = rights::gained_by(pinned.as_fd()).ok().flatten();
                (Answer::There { stat, gained }, vec![pinned])
            }
            Err(error) => failed(error),
        },
        (Question::Root { path }, _) => match walk(path.as_path()) {
            Ok((folder, root)) => (Answer::Root, vec![folder, root]),
            Err(error) => failed(error),
        },
        (Question::Device, [mail, ..]) => {
            (Answer::Device, mailbox::look(mail.as_fd()).into_iter().collect())
        }
        (Question::Image, [mail, ..]) => {
            let found = mailbox::look_for_image(mail.as_fd()).map(std::fs::File::from);
            let identity = found.and_then(|found| found.metadata().ok());
            // By here it is closed: one that cannot be keeps this from answering.
            (Answer::Image(identity.map(|meta| crate::image::identity(&meta))), Vec::new())
        }
        (Question::Copies { pid, wanted }, [daemon, ..]) => {
            let copies = connections::copies(daemon.as_fd(), *pid, wanted);
            let (inodes, copies) = copies.into_iter().unzip();
            (Answer::Copies(inodes), copies)
        }
        (Question::Opened { pid }, [daemon, ..]) => {
            (Answer::Opened(opened::image(daemon.as_fd(), *pid)), Vec::new())
        }
        (Question::PidFile { paths, pid }, _) => {
            (Answer::PidFile(pidfile::find(paths, *pid)), Vec::new())
        }
        (Question::Finish, [recorder, mail, ..]) => {
            (Answer::Finish(finish::carry_out(recorder.as_fd(), mail.as_fd())), Vec::new())
        }
        _ => failed(Errno::INVAL),
    }
}

fn look(
    path: &Path,
    links: Links,
    from: Option<&OwnedFd>,
) -> rustix::io::Result<(FileStat, OwnedFd)> {
    let pinned = match from {
        Some(from) if path.as_os_str().is_empty() => rustix::io::fcntl_dupfd_cloexec(from, 0)?,
        Some(from) => openat(from, path, links.flags(), Mode::empty())?,
        None => openat(rustix::fs::CWD, path, links.flags(), Mode::empty())?,
    };
    Ok((FileStat::asked(&pinned)?, pinned))
}
