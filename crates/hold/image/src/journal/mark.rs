//! What the first bytes of a journal say, and whether they can be believed.

use super::error::{Error, JOURNAL, io};
use super::format::{self, HEADER, Parsed};
use super::storage::Storage;

/// Marks a journal empty, whose commit is on the image, durably.
///
/// # Errors
/// Those of write(2).
pub fn mark_empty<F: Storage>(journal: &F) -> Result<(), Error> {
    journal.write_at(0, &format::empty()).map_err(io("mark as empty", journal, JOURNAL))
}

/// Whether nobody can have made or changed the journal who could not as well have changed the
/// image, which is `owner`'s.
pub(super) fn check_trust<F: Storage>(journal: &F, owner: u32) -> Result<(), Error> {
    let metadata = journal.metadata().map_err(io("look at the journal", journal, JOURNAL))?;
    let untrusted = |why| Err(Error::Untrusted { journal: journal.name(), why });
    if metadata.shared {
        return untrusted("others than its owner may write to it".to_owned());
    }
    let own = rustix::process::geteuid().as_raw();
    if [own, 0, owner].contains(&metadata.owner) {
        return Ok(());
    }
    untrusted(format!("it belongs to user {}, the image to user {owner}", metadata.owner))
}

/// What the header of a journal says.
pub(super) fn inspect_header<F: Storage>(journal: &F) -> Result<Parsed, Error> {
    let mut header = [0; HEADER];
    let read = || io("read the journal", journal, JOURNAL);
    journal.read_at(0, &mut header).map_err(read())?;
    let length = journal.metadata().map_err(read())?.length;
    match format::parse(&header, length <= HEADER as u64) {
        Parsed::Unknown => Err(Error::NotAJournal { journal: journal.name() }),
        Parsed::Version(version) => Err(Error::Version { journal: journal.name(), version }),
        parsed => Ok(parsed),
    }
}
