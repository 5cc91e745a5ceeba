//! What else may be there of a volume whose data are written in place: a page may be what was
//! written after the last promise, whatever else is there of that time, or be torn, which is an I/O
//! error. What is behind the length that the file had at a checkpoint is zeros then: a store is
//! opened as of a checkpoint, cuts off what is behind the end, and the length is set again.

use super::promise::{PAGE, page};
use super::work::{Node, Step, Tree};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What comes into the place of a torn page. No application writes it: its bytes are odd, or zeros.
const TORN: u8 = 0xee;

/// What pages are made by steps, each with the number of its step.
#[derive(Debug, Default)]
pub struct Later(BTreeMap<usize, Vec<(usize, Vec<u8>)>>);

impl Later {
    /// Of these steps.
    pub fn of(steps: &[Step]) -> Self {
        let (mut tree, mut all) = (Tree::new(), Self::default());
        for (done, step) in steps.iter().enumerate() {
            for part in step.parts() {
                part.apply(&mut tree);
                let (path, at) = match &part {
                    Step::Write(path, at, ..) => (path, *at),
                    Step::Length(path, length) => (path, *length),
                    _ => continue,
                };
                if let Some(Node::File(content)) = tree.get(path) {
                    let new = (done, page(content, at / PAGE));
                    all.0.entry(at / PAGE).or_default().push(new);
                }
            }
        }
        all
    }

    /// Whether a page of a file can be there after so many steps, besides what it can be anyway:
    /// `versions`. The file has had these lengths, one after the other.
    pub fn may_be(
        &self,
        done: usize,
        number: usize,
        content: &[u8],
        (versions, lengths): (&[Vec<u8>], &[usize]),
    ) -> bool {
        let seen = &content[(number * PAGE).min(content.len())..];
        let seen = &seen[..seen.len().min(PAGE)];
        let later = self.0.get(&number).into_iter().flatten().filter(|(step, _)| *step >= done);
        let later: Vec<&Vec<u8>> = later.map(|(_, page)| page).collect();
        let is_torn = seen.iter().all(|byte| *byte == TORN);
        let may_be_torn = versions.len() > 1 || !later.is_empty();
        if is_torn && may_be_torn || later.iter().any(|page| page.starts_with(seen)) {
            return true;
        }
        // Opened at each of the older lengths, and at every shorter one since.
        let mut end = usize::MAX;
        lengths.iter().rev().any(|length| {
            end = end.min(*length);
            let (kept, rest) = seen.split_at(end.saturating_sub(number * PAGE).min(seen.len()));
            let is_kept = |page: &Vec<u8>| page.starts_with(kept);
            rest.iter().all(|byte| *byte == 0)
                && (later.iter().any(|page| is_kept(page)) || versions.iter().any(is_kept))
        })
    }
}

/// Writes the pages that cannot be read, in all files below a folder; gives how many there were. No
/// file becomes longer or shorter.
///
/// # Errors
/// Those of all else.
pub fn mend(folder: &Path) -> Result<u64> {
    let mut torn = 0;
    for entry in std::fs::read_dir(folder).context("listing a folder")? {
        let entry = entry.context("listing a folder")?;
        let (path, kind) = (entry.path(), entry.file_type().context("looking at a file")?);
        if kind.is_dir() {
            torn += mend(&path)?;
        } else if kind.is_file() {
            torn += mend_file(&path).with_context(|| format!("mending {}", path.display()))?;
        }
    }
    Ok(torn)
}

fn mend_file(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut torn = 0;
    for at in (0..length).step_by(PAGE) {
        match file.read_at(&mut [0; PAGE], at) {
            Ok(_) => {}
            Err(why) if why.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                let written = OpenOptions::new().write(true).open(path)?;
                written.write_all_at(&[TORN; PAGE], at)?;
                written.set_len(length)?;
                torn += 1;
            }
            Err(why) => return Err(why.into()),
        }
    }
    Ok(torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_later_may_be_there_and_what_was_replaced_may_not() {
        let write = |at, seed| Step::Write("f".into(), at, PAGE, seed);
        let steps = [Step::Create("f".into()), write(0, 1), write(PAGE, 2), write(0, 3)];
        let content = |count: usize| {
            let mut tree = Tree::new();
            steps.iter().take(count).for_each(|step| step.apply(&mut tree));
            match &tree["f"] {
                Node::File(content) => content.to_vec(),
                _ => Vec::new(),
            }
        };
        let (later, old, new) = (Later::of(&steps), content(2), content(4));
        let may_be = |done, content: &[u8]| later.may_be(done, 0, content, (&[], &[]));
        assert!(may_be(3, &new) && !may_be(4, &new));
        assert!(!may_be(2, &old));
        // Of a shorter file a part of it is seen.
        assert!(may_be(3, &new[..100]) && !may_be(3, &old[..100]));
        let torn = [TORN; PAGE];
        assert!(may_be(3, &torn) && !may_be(4, &torn));
        assert!(later.may_be(4, 0, &torn, (&[old.clone(), new.clone()], &[])));
    }

    #[test]
    fn what_was_overwritten_may_end_where_the_file_ended() {
        let write = |len, seed| Step::Write("f".into(), 0, len, seed);
        let steps = [Step::Create("f".into()), write(100, 1), write(300, 2)];
        let mut tree = Tree::new();
        steps.iter().for_each(|step| step.apply(&mut tree));
        let Node::File(new) = &tree["f"] else { panic!("that is no file") };
        let cut = |at: usize| [&new[..at], &vec![0; 300 - at]].concat();
        let later = Later::of(&steps);
        let may_be =
            |content: &[u8], lengths: &[usize]| later.may_be(2, 0, content, (&[], lengths));
        assert!(may_be(&cut(300), &[0, 100, 300]));
        assert!(may_be(&cut(100), &[0, 100, 300]) && may_be(&cut(0), &[0, 100, 300]));
        assert!(!may_be(&cut(200), &[0, 100, 300]), "it never had that length");
        assert!(!may_be(&cut(100), &[100, 0, 300]), "it was cut off to nothing since");
    }
}
