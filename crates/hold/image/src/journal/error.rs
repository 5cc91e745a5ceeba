//! Errors, each with what failed, on what, why, and what to do next.

use super::storage::Storage;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Why a commit or a recovery could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing} {what}: {why}; {next}")]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        what: String,
        /// Why it failed. Part of the message, so not a `source` besides.
        why: io::Error,
        /// What to do next.
        next: &'static str,
    },
    /// What was named as the image cannot be one.
    #[error("{image} is neither a file nor a block device: name the disk image")]
    NotAnImage {
        /// What was named.
        image: String,
    },
    /// There is a file in the journal's place that no belay has written.
    #[error("{journal} is not a journal of belay; move it away")]
    NotAJournal {
        /// The file.
        journal: String,
    },
    /// The journal is of another version of belay.
    #[error(
        "{journal} has format {version}, which this belay does not know; use the one that has written \
         it, or drop what it holds with --discard (the image may then be damaged)"
    )]
    Version {
        /// The journal.
        journal: String,
        /// Its format.
        version: u32,
    },
    /// The journal is not this image's.
    #[error(
        "{journal} holds writes to another image than {image}: {why}; if it is this one's, --force \
         applies it, else --discard drops it"
    )]
    Foreign {
        /// The journal.
        journal: String,
        /// The image.
        image: String,
        /// What tells.
        why: String,
    },
    /// The image was changed after the journal was written, not by belay.
    #[error(
        "{image} was written to {seconds} s after {journal}, which holds writes that it may lack; if \
         nothing but belay has written there --force applies them, else --discard drops them"
    )]
    Changed {
        /// The journal.
        journal: String,
        /// The image.
        image: String,
        /// How much later.
        seconds: i64,
    },
    /// The image cannot take what it is given, whatever is done.
    #[error("{what} cannot be written to {image}: {why}; {next}")]
    Misfit {
        /// What is to be written.
        what: String,
        /// The image.
        image: String,
        /// Why.
        why: String,
        /// What to do next.
        next: &'static str,
    },
    /// The journal may be somebody's who has no right to the image.
    #[error(
        "{journal} is not to be trusted: {why}; if you know that belay has written it, --force applies \
         it, else --discard drops it, or remove it"
    )]
    Untrusted {
        /// The journal.
        journal: String,
        /// Why.
        why: String,
    },
    /// A link leads to what is not the image's journal, or may not be.
    #[error(
        "{journal}, to which the link {pointer} leads, is not to be trusted: {why}; nothing was changed: remove the \
         link, and if the image has a journal elsewhere, name that with --journal"
    )]
    Misled {
        /// The link.
        pointer: String,
        /// Where it leads to.
        journal: String,
        /// Why.
        why: String,
    },
    /// Somebody has it.
    #[error(
        "{image} is held by a belay that runs: it has locked {journal}; see `belay status`, and end that with \
         `belay stop` first"
    )]
    Locked {
        /// The image.
        image: String,
        /// The journal.
        journal: String,
    },
    /// Somebody has what the image is in the end.
    #[error(
        "{image} is in use: another belay has {what}, by another name or from another state directory, or another program \
         has locked it; see `lslocks`, and end that first"
    )]
    Taken {
        /// The image.
        image: String,
        /// What is locked.
        what: String,
    },
    /// A link leads to no journal.
    #[error(
        "the journal of {image} is to be at {journal}, as {pointer} says, and is not there; mount what it is on \
         or move it back; if it is lost, `belay repair --discard` goes on without it (have the image checked then)"
    )]
    Missing {
        /// The image.
        image: String,
        /// The link.
        pointer: String,
        /// Where the journal should be.
        journal: String,
    },
    /// The folder of the image is another one by now.
    #[error(
        "{image} was moved, or its folder was exchanged, while its journal was looked for; try again"
    )]
    Moved {
        /// The image.
        image: String,
    },
    /// There are several journals with a commit.
    #[error(
        "there are several journals for {image} that hold writes to it: {journals}; which of them is the last \
         nobody knows: move the others away, then `belay repair` the image"
    )]
    Several {
        /// The image.
        image: String,
        /// The journals.
        journals: String,
    },
    /// There is no place for a journal.
    #[error("there is no place for the journal of {image}: {why}; name one with --journal FILE")]
    NoPlace {
        /// The image.
        image: String,
        /// Why not at the last place that was tried.
        why: String,
    },
    /// A journal that may still be needed was to be removed.
    #[error("{journal} may hold writes that the image lacks; run `belay repair` on the image")]
    InUse {
        /// The journal.
        journal: String,
    },
}

/// What to do about a failed access to a journal.
pub(super) const JOURNAL: &str = "see that its file system has room and can be written to";
/// What to do about a failed access to an image before anything was changed.
pub(super) const IMAGE: &str = "see that it is there and can be read and written";
/// What to do about a failed write to an image: all of it is in the journal.
pub(super) const AGAIN: &str = "nothing is lost: put right what is wrong there; belay does it at its next try or start, or `belay repair` does";

/// For `map_err`.
pub(super) fn io<'a, F: Storage>(
    doing: &'static str,
    what: &'a F,
    next: &'static str,
) -> impl FnOnce(io::Error) -> Error + use<'a, F> {
    move |why| Error::Io { doing, what: what.name(), why, next }
}

/// That a system call of a file failed by `why`.
pub(super) fn failed(doing: &'static str, path: &Path, why: Errno, next: &'static str) -> Error {
    Error::Io { doing, what: path.display().to_string(), why: why.into(), next }
}
