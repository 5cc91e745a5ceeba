//! A journal that lies beside an image, where its owner can write what they like.
#![no_main]

use belay_image::journal::{self, How, Metadata, Source, Storage};
use belay_image::{Run, Sealed};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::io;

/// More than any commit of an honest journal of this size would write to.
const LARGEST: usize = 1 << 22;

struct Memory(RefCell<Vec<u8>>, u64);

impl Storage for Memory {
    fn name(&self) -> String {
        "a file".to_owned()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata {
            length: self.0.borrow().len() as u64,
            inode: self.1,
            device: 7,
            modified: 1000,
            owner: 0,
            shared: false,
            is_device: false,
            is_lasting: true,
            is_dated: true,
        })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.borrow();
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.borrow_mut();
        let at = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = at.checked_add(new.len()).filter(|end| *end <= LARGEST);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        if end > bytes.len() {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(new);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).ok().filter(|length| *length <= LARGEST);
        self.0.borrow_mut().resize(length.ok_or(io::ErrorKind::FileTooLarge)?, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Source<Memory> for Vec<u8> {
    fn load(&self, from: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[from..from + out.len()]);
    }

    fn write_to(&self, file: &Memory, offset: u64, pieces: &[(usize, usize)]) -> io::Result<usize> {
        let bytes: Vec<u8> =
            pieces.iter().flat_map(|(from, len)| self[*from..from + len].iter().copied()).collect();
        file.write_at(offset, &bytes).map(|()| bytes.len())
    }
}

/// A commit that the input describes: ten bytes for each run.
fn sealed(data: &[u8], length: u64) -> (Sealed, Vec<u8>) {
    let (mut runs, mut end, mut memory) = (Vec::new(), 0_u64, Vec::new());
    for chunk in data.chunks_exact(4).take(40) {
        let offset = end + u64::from(chunk[0]) * 16;
        let len = 1 + usize::from(chunk[1]) * 8;
        end = offset + len as u64;
        if end > length {
            break;
        }
        runs.push(Run { offset, from: memory.len(), len });
        memory.extend(std::iter::repeat_n(chunk[2] | 1, len));
    }
    (Sealed { epoch: 3, start: length, cut: length, length, runs }, memory)
}

/// A whole journal, of which some bytes are altered: it is applied as it was written, or not at
/// all.
fn altered(data: &[u8]) {
    let fresh = || Memory(RefCell::new(vec![0; 1 << 14]), 1);
    let (runs, flips) = data.split_at(data.len() / 2);
    let (sealed, memory) = sealed(runs, 1 << 14);
    let (journal, image) = (Memory(RefCell::new(Vec::new()), 2), fresh());
    if journal::commit(&journal, &image, &memory, &sealed, &mut |_| {}).is_err()
        || sealed.is_empty()
    {
        return;
    }
    let mut damaged = false;
    for flip in flips.chunks_exact(4) {
        let mut bytes = journal.0.borrow_mut();
        let at = (usize::from(flip[0]) | usize::from(flip[1]) << 8) % bytes.len();
        damaged |= flip[2] != 0;
        bytes[at] ^= flip[2];
    }
    let victim = fresh();
    let how = How::default();
    match journal::recover(&journal, &victim, how, &mut |_| {}) {
        Ok(journal::Recovered::Applied(_)) => {
            assert!(*victim.0.borrow() == *image.0.borrow(), "applied as it was written");
        }
        _ => {
            assert!(damaged, "a whole journal is applied");
            assert!(victim.0.borrow().iter().all(|byte| *byte == 0), "or not at all");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    if flags & 4 != 0 {
        altered(data);
        return;
    }
    let journal = Memory(RefCell::new(data.to_vec()), 2);
    let image = Memory(RefCell::new(vec![0; 1 << 16]), 1);
    let before = image.0.borrow().clone();
    let found = journal::inspect(&journal, &mut |_| {});
    let how = How { force: flags & 1 != 0, discard: flags & 2 != 0, ..How::default() };
    let planned = journal::plan(&journal, &image, how, &mut |_| {});
    assert!(*image.0.borrow() == before && *journal.0.borrow() == data, "looking changes nothing");
    let done = journal::recover(&journal, &image, how, &mut |_| {});
    if !matches!(found, Ok(journal::Found::Whole(_))) || how.discard {
        assert!(*image.0.borrow() == before, "only a whole commit reaches the image");
    }
    assert!(planned.is_ok() || done.is_err(), "what is refused is not done");
});
