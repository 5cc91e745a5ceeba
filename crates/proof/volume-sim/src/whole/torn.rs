//! What a power failure has torn of data that are written in place: it cannot be read, until it is
//! written once more.

use super::history::Torn;
use super::request::Answer;
use super::{Lives, Stop, Whole, wrong};
use crate::posix::names::Names;
use crate::posix::ours;
use belay_object::{ObjectId, PAGE};
use belay_posix::namespace::Change;
use belay_posix::{Kind, ROOT};
use std::collections::BTreeMap;

/// What comes in their place.
const MENDED: [u8; PAGE] = [0xee; PAGE];

impl Whole {
    /// Finds the pages that cannot be read, and writes them, as their user would. The length of no
    /// file is changed.
    pub(super) fn mend(&mut self, lives: &mut Lives) -> Result<Torn, Stop> {
        let paths = self.must(lives, |namespace| ours::moments(namespace, ROOT))?;
        let (mut torn, mut to_mend) = (Torn::new(), BTreeMap::new());
        for (path, (number, _)) in paths {
            let node = self.must(lives, |namespace| namespace.node(ObjectId(number)))?;
            if node.metadata.kind() != Kind::File {
                continue;
            }
            for page in 0..node.size.div_ceil(PAGE as u64) {
                let at = page * PAGE as u64;
                match self
                    .request(lives, false, |namespace| namespace.read(node.object, at, PAGE))?
                {
                    Answer::Done(_) => {}
                    Answer::Failed(why) if why.contains("does not match its checksum") => {
                        torn.entry(path.clone()).or_default().insert(page as usize);
                        to_mend.insert((node.object, page), node.size);
                    }
                    answer => return Err(wrong(format!("page {page} of {path}: {answer:.300?}"))),
                }
            }
        }
        for ((object, page), size) in to_mend {
            self.outcome.torn += 1;
            let at = page * PAGE as u64;
            let mended =
                self.request(lives, false, |namespace| namespace.write(object, at, &MENDED))?;
            let mended = match mended {
                Answer::Done(()) if size < at + PAGE as u64 => {
                    let change = Change { size: Some(size), ..Change::default() };
                    self.request(lives, false, |namespace| {
                        namespace.change(object, change).map(|_| ())
                    })?
                }
                mended => mended,
            };
            match mended {
                Answer::Done(()) => {}
                answer => return Err(wrong(format!("page {page} of {object}: {answer:.300?}"))),
            }
        }
        Ok(torn)
    }
}
