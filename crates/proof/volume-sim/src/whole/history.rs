//! What is done to a volume, what must come of it, told by a plain directory, and what may be left
//! of it by a power failure.

use crate::Random;
use crate::posix::plain::Plain;
use crate::posix::told::{Apart, Told};
use crate::posix::{Act, random_act};
use belay_object::PAGE;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tempfile::TempDir;

/// By path, the pages of files that could not be read.
pub(super) type Torn = BTreeMap<String, BTreeSet<usize>>;

/// What is done.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A request of an application.
    Act(Act),
    /// A file is synced, or the directory at the top.
    Sync(String),
    /// A checkpoint is taken.
    Checkpoint,
    /// The kernel forgets what has no name.
    Forget,
}

/// All that is there.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By path: what is told but data, and which file it is, if it is one.
    pub tree: BTreeMap<String, (String, Option<u64>)>,
    /// The data of files.
    pub files: BTreeMap<u64, Rc<Vec<u8>>>,
}

impl State {
    fn of(plain: &Plain, before: Option<&Self>) -> Result<Self, String> {
        let mut state = Self::default();
        let each = &mut |path, told, data: Option<(u64, Vec<u8>)>| {
            let file = data.map(|(file, data)| {
                let same = before.and_then(|before| before.files.get(&file));
                let same = same.filter(|same| ***same == data).cloned();
                state.files.insert(file, same.unwrap_or_else(|| Rc::new(data)));
                file
            });
            state.tree.insert(path, (told, file));
        };
        plain.each(each).map_err(|why| why.to_string())?;
        Ok(state)
    }

    /// The data of what a path leads to, if it is a file.
    pub fn data(&self, path: &str) -> Option<&Rc<Vec<u8>>> {
        self.files.get(&self.tree.get(path)?.1?)
    }

    /// The first difference to what is there, if any; and how many bytes were compared.
    pub fn differs(&self, found: &Apart) -> Result<u64, String> {
        let mut bytes = 0;
        for path in self.tree.keys().chain(found.keys()) {
            let wanted = self.tree.get(path).map(|(told, _)| told);
            let (told, data) =
                found.get(path).map_or((None, None), |(told, data)| (Some(told), data.as_deref()));
            if told != wanted {
                return Err(format!("{path}: {told:.300?}, not {wanted:.300?}"));
            }
            let wanted = self.data(path).map(|data| data.as_slice());
            if data != wanted {
                return Err(format!("{path} has other data"));
            }
            bytes += data.map_or(0, <[u8]>::len) as u64;
        }
        Ok(bytes / 2)
    }
}

/// A plain directory with all that was done to it.
#[derive(Debug)]
pub struct Oracle {
    dir: TempDir,
    /// What makes it what it is, from an empty one on.
    done: Vec<Act>,
    /// Data that a power failure has left.
    left: Vec<(usize, BTreeMap<String, Vec<u8>>)>,
}

/// A part of a history: what is done, and what must come of it.
#[derive(Debug)]
pub struct History {
    /// What is done.
    pub deeds: Vec<Deed>,
    /// What each of them gives.
    pub told: Vec<Told>,
    /// What is there before all of them, and after each.
    pub states: Vec<Rc<State>>,
}

fn empty() -> Result<TempDir, String> {
    // tmpfs: nothing of the host's file systems comes in.
    tempfile::tempdir_in("/dev/shm").map_err(|why| why.to_string())
}

impl Oracle {
    /// An empty one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> Result<Self, String> {
        Ok(Self { dir: empty()?, done: Vec::new(), left: Vec::new() })
    }

    fn plain(&self) -> Plain {
        Plain::new(self.dir.path())
    }

    /// What is there now.
    ///
    /// # Errors
    /// Those of the system.
    pub fn state(&self) -> Result<State, String> {
        State::of(&self.plain(), None)
    }

    /// Does these and so many random things to it. Of those that are refused, about one of
    /// `refused` is among them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn go_on(
        &mut self,
        first: Vec<Deed>,
        count: usize,
        (seldom, refused): (u32, u32),
        random: &mut Random,
    ) -> Result<History, String> {
        let mut history =
            History { deeds: Vec::new(), told: Vec::new(), states: vec![Rc::new(self.state()?)] };
        let plain = self.plain();
        let count = first.len() + count;
        let mut first = first.into_iter();
        while history.deeds.len() < count {
            let Some(before) = history.states.last().cloned() else { break };
            let deed = first.next().unwrap_or_else(|| random_deed(&before, seldom, random));
            let (told, after) = match &deed {
                Deed::Act(act) => {
                    let told = plain.act(act, None);
                    if told.is_err() && random.random_range(0..refused) > 0 {
                        continue;
                    }
                    self.done.push(act.clone());
                    let after = match &told {
                        Ok(_) => Rc::new(State::of(&plain, Some(&before))?),
                        Err(_) => Rc::clone(&before),
                    };
                    (told, after)
                }
                Deed::Sync(_) | Deed::Checkpoint | Deed::Forget => (Ok(Vec::new()), before),
            };
            history.deeds.push(deed);
            history.told.push(told);
            history.states.push(after);
        }
        Ok(history)
    }

    /// Goes back to what a power failure has left of a history: so many of its deeds, and these
    /// data.
    ///
    /// # Errors
    /// Those of the system.
    pub fn go_back(
        &mut self,
        history: &History,
        count: usize,
        found: &Apart,
    ) -> Result<(), String> {
        let is_act = |deed: &&Deed| matches!(deed, Deed::Act(_));
        let undone = history.deeds.iter().skip(count).filter(is_act).count();
        self.done.truncate(self.done.len().saturating_sub(undone));
        let data = |(path, (_, data)): (&String, &(String, Option<Vec<u8>>))| {
            Some((path.trim_start_matches('/').to_owned(), data.clone()?))
        };
        self.left.push((self.done.len(), found.iter().filter_map(data).collect()));
        self.dir = empty()?;
        let plain = self.plain();
        for at in 0..=self.done.len() {
            for (_, left) in self.left.iter().filter(|(when, _)| *when == at) {
                for (path, data) in left {
                    plain.put(path, data).map_err(|why| format!("{path}: {why}"))?;
                }
            }
            if let Some(act) = self.done.get(at) {
                let _ = plain.act(act, None);
            }
        }
        Ok(())
    }
}

/// Something random; one of `seldom` is no request.
fn random_deed(state: &State, seldom: u32, random: &mut Random) -> Deed {
    if random.random_range(0..seldom) > 0 {
        loop {
            match random_act(random) {
                // Nothing stays open here.
                Act::Open(_) | Act::Close(_) | Act::WriteOpen(..) | Act::CreateIn(..) => {}
                act => return Deed::Act(act),
            }
        }
    }
    match random.random_range(0..10) {
        0..5 => {
            let files = state.tree.iter().filter(|(_, (_, file))| file.is_some());
            let files: Vec<&String> = files.map(|(path, _)| path).collect();
            let which = random.random_range(0..files.len() + 1);
            let path = files.get(which).map_or("", |path| path.trim_start_matches('/'));
            Deed::Sync(path.to_owned())
        }
        5..8 => Deed::Checkpoint,
        _ => Deed::Forget,
    }
}

/// What was promised.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Everything up to this state is in a checkpoint.
    pub checkpoint: usize,
    /// All operations on names up to this state are there.
    pub names: usize,
    /// In which state a file was synced last.
    pub synced: BTreeMap<u64, usize>,
}

impl History {
    /// Which of the states is left by a power failure that came in or before the deed with number
    /// `last`: what is told of all names must be that of one state, not older than was promised,
    /// and all data what was promised, or what was written since. If data are written in place,
    /// `torn` are pages that could not be read, and hold something else now.
    ///
    /// # Errors
    /// Why it is none of them.
    pub fn left(
        &self,
        found: &Apart,
        promises: &Promises,
        last: usize,
        torn: Option<&Torn>,
    ) -> Result<usize, String> {
        let mut wrong = format!(
            "the names are those of no moment since the last promise: {:.2000?}",
            found.iter().map(|(path, (told, _))| (path, told)).collect::<Vec<_>>()
        );
        let floor = promises.names.max(promises.checkpoint);
        let end = last.min(self.states.len() - 1);
        for state in (floor..=end).rev() {
            let Some(names) = self.states.get(state) else { continue };
            let same = names.tree.len() == found.len()
                && names
                    .tree
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| (wanted.0, &wanted.1.0) == (found.0, &found.1.0));
            if !same {
                continue;
            }
            match self.data_fit((state, end), found, promises, torn) {
                Ok(()) => return Ok(state),
                Err(why) => wrong = format!("state {state}: {why}"),
            }
        }
        Err(format!("{wrong} (promised: {floor}, done: {last})"))
    }

    fn data_fit(
        &self,
        (state, end): (usize, usize),
        found: &Apart,
        promises: &Promises,
        torn: Option<&Torn>,
    ) -> Result<(), String> {
        // What was overwritten in place is there, whatever else is.
        let until = if torn.is_some() { end } else { state };
        let Some(names) = self.states.get(state) else { return Ok(()) };
        for (path, (_, file)) in &names.tree {
            let Some(file) = file else { continue };
            let data = found.get(path).and_then(|(_, data)| data.as_deref()).unwrap_or_default();
            let since = promises.synced.get(file).copied().unwrap_or(0).max(promises.checkpoint);
            let versions: Vec<Option<&Rc<Vec<u8>>>> = self
                .states
                .get(promises.checkpoint..=until)
                .unwrap_or_default()
                .iter()
                .map(|one| one.files.get(file))
                .collect();
            let number = |state: usize| state.saturating_sub(promises.checkpoint);
            let left =
                Left { durable: number(since), named: number(state), in_place: torn.is_some() };
            let newer = versions.get(left.durable..).unwrap_or_default();
            let torn = torn.and_then(|torn| torn.get(path));
            for (page, content) in data.chunks(PAGE).enumerate() {
                let fits = match torn.is_some_and(|torn| torn.contains(&page)) {
                    true => is_changed(page, newer),
                    false => page_fits(page, content, left, &versions),
                };
                if !fits {
                    let promised =
                        newer.first().and_then(|one| *one).map(|data| part_of(data, page));
                    return Err(format!(
                        "page {page} of {path} is {}, synced at {since} as {}",
                        brief(content),
                        brief(&promised.unwrap_or_default())
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a page is not the same in all versions of a file: then it was overwritten, and may have
/// been torn.
fn is_changed(page: usize, versions: &[Option<&Rc<Vec<u8>>>]) -> bool {
    let part = |data: &Option<&Rc<Vec<u8>>>| data.map(|data| part_of(data, page));
    versions.windows(2).any(|two| two.first().map(part) != two.last().map(part))
}

fn brief(content: &[u8]) -> String {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in content {
        match runs.last_mut() {
            Some((last, count)) if last == byte => *count += 1,
            _ => runs.push((*byte, 1)),
        }
    }
    format!("{:.200?}", runs)
}

/// A page of data, filled up with zeros.
fn part_of(data: &[u8], page: usize) -> Vec<u8> {
    let from = (page * PAGE).min(data.len());
    let mut part = data.get(from..(from + PAGE).min(data.len())).unwrap_or_default().to_vec();
    part.resize(PAGE, 0);
    part
}

/// What is left of the versions of a file, from that of the last checkpoint on.
#[derive(Clone, Copy)]
struct Left {
    /// The data of this one are durable.
    durable: usize,
    /// What is told of the file is what was told of this one.
    named: usize,
    /// Data are written in place: later ones may be there.
    in_place: bool,
}

/// Whether a page, as far as its file goes, can be what is left of these versions of the file. It
/// is one of them, without what later ones have cut off, up to the named one or any after it; or
/// zeros, if it was changed at all. If it was written in place, it ends where the file does, and
/// where that did before: what was appended in it may be zeros, as in other pages.
fn page_fits(page: usize, content: &[u8], left: Left, versions: &[Option<&Rc<Vec<u8>>>]) -> bool {
    let parts: Vec<Vec<u8>> = versions
        .iter()
        .map(|data| data.map_or_else(|| vec![0; PAGE], |data| part_of(data, page)))
        .collect();
    let ends: Vec<usize> = versions
        .iter()
        .map(|data| data.map_or(0, |data| data.len()).saturating_sub(page * PAGE).min(PAGE))
        .collect();
    let is_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let newer = parts.get(left.durable..).unwrap_or_default();
    let is_changed = newer.windows(2).any(|two| two.first() != two.last());
    if is_changed && is_zeros(content) {
        return true;
    }
    let least = |from: usize, to: usize| ends.get(from..=to).and_then(|ends| ends.iter().min());
    let fits = |part: &[u8], cut: usize| {
        let (kept, rest) = content.split_at(cut.min(content.len()));
        part.get(..kept.len()) == Some(kept) && is_zeros(rest)
    };
    parts.iter().enumerate().skip(left.durable).any(|(at, part)| {
        let is_overwritten = left.in_place && newer.first() != Some(part);
        // A store is opened at an older version, cuts off what is behind its end, and does then
        // what was done to the length.
        let opened =
            (0..at.min(left.named + 1)).filter(|one| is_overwritten && versions[*one].is_some());
        let opened: Vec<usize> = opened.filter_map(|one| least(one, left.named).copied()).collect();
        // What was cut off before stays so, however long the file becomes again.
        (at.max(left.named)..ends.len()).any(|last| {
            let cut = least(at + 1, last).map_or(PAGE, |cut| *cut);
            opened.iter().chain([&PAGE]).any(|end| fits(part, cut.min(*end)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a page of so many bytes of one kind after the other is accepted; so are versions of
    /// its file told, all in its first page.
    fn fits(content: &[(u8, usize)], named: usize, versions: &[&[(u8, usize)]]) -> bool {
        let left = Left { durable: 0, named, in_place: true };
        fits_if(content, left, versions)
    }

    fn fits_if(content: &[(u8, usize)], left: Left, versions: &[&[(u8, usize)]]) -> bool {
        let bytes = |runs: &[(u8, usize)]| -> Vec<u8> {
            runs.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect()
        };
        let versions: Vec<Rc<Vec<u8>>> = versions.iter().map(|runs| Rc::new(bytes(runs))).collect();
        let versions: Vec<Option<&Rc<Vec<u8>>>> = versions.iter().map(Some).collect();
        page_fits(0, &bytes(content), left, &versions)
    }

    #[test]
    fn what_was_written_in_place_ends_where_the_older_length_says() {
        let versions: &[&[(u8, usize)]] = &[&[(1, 1679)], &[(2, 3000)]];
        assert!(fits(&[(1, 1679)], 0, versions));
        assert!(fits(&[(2, 1679)], 0, versions));
        assert!(fits(&[(2, 3000)], 1, versions));
        assert!(fits(&[(1, 1679), (0, 1321)], 1, versions), "the length alone is there");
        assert!(!fits(&[(2, 1679)], 0, &versions[..1]), "nothing was written in place");
        assert!(!fits(&[(2, 1500), (0, 1500)], 1, versions), "it ended nowhere there");
    }

    #[test]
    fn what_was_appended_in_place_may_be_zeros_as_its_length_came_later() {
        let versions: &[&[(u8, usize)]] = &[&[(1, 1679)], &[(2, 3000)], &[(2, 3000)]];
        let appended: &[(u8, usize)] = &[(2, 1679), (0, 1321)];
        let left = Left { durable: 0, named: 1, in_place: true };
        assert!(fits_if(appended, left, versions));
        assert!(!fits_if(appended, Left { in_place: false, ..left }, versions));
        assert!(!fits_if(appended, Left { durable: 1, ..left }, versions), "it was synced");
    }

    #[test]
    fn mixtures_and_what_is_of_no_version_are_found() {
        let versions: &[&[(u8, usize)]] = &[&[(1, 1679)], &[(2, 3000)]];
        assert!(!fits(&[(2, 512), (1, 1167)], 0, versions));
        assert!(!fits(&[(1, 512), (2, 1167)], 0, versions));
        assert!(!fits(&[(1, 1679), (2, 1321)], 1, versions));
        assert!(!fits(&[(2, 2999), (7, 1)], 1, versions));
        assert!(!fits(&[(7, 1679)], 0, versions), "another file's");
        assert!(!fits(&[(0, 1679)], 0, &versions[..1]), "it was never zeros");
    }

    #[test]
    fn what_was_cut_off_is_not_there_again() {
        let versions: &[&[(u8, usize)]] = &[&[(1, 3000)], &[(1, 1000)], &[(1, 1000), (0, 1000)]];
        assert!(fits(&[(1, 3000)], 0, versions));
        assert!(fits(&[(1, 1000), (0, 2000)], 0, versions), "it was cut off in place");
        assert!(fits(&[(1, 1000), (0, 1000)], 2, versions));
        assert!(!fits(&[(1, 2000)], 2, versions));
        assert!(!fits(&[(1, 1500), (0, 500)], 2, versions));
    }
}
