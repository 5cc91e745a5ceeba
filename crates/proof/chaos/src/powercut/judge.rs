//! What a machine has told until its power went, and whether what is on its image afterwards agrees
//! with that.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::Kind;

use super::check;
use super::in_place::Later;
use super::machine::{self, Told};
use super::promise;
use super::serve::Power;
use super::work::Tree;

/// What a machine has told, and how many changes the disk had seen by then.
pub type Heard = Vec<(Told, usize)>;

/// What is known of the end of a life.
pub struct End {
    /// For each application, how many of its steps are durable for sure.
    pub durable: Vec<usize>,
    /// Of a volume: how many operations on names, which others' syncs have made durable as well.
    names: Vec<usize>,
    /// All is there, durable or not.
    pub whole: bool,
    /// And how many it may have begun.
    begun: Vec<usize>,
}

/// Knows what the applications do, and what former lives of an image have left on it.
pub struct Judge {
    /// What they work on.
    pub kind: Kind,
    /// Of the applications.
    pub seed: u64,
    /// How many there are.
    pub clients: usize,
    /// Steps of each in a life, at most.
    pub steps: usize,
    /// The number of the life.
    pub life: u64,
    /// What former lives have left, by folder.
    pub settled: BTreeMap<String, Tree>,
}

impl Judge {
    /// Before the first life.
    pub fn new(kind: Kind, seed: u64, clients: usize, steps: usize) -> Self {
        Self { kind, seed, clients, steps, life: 0, settled: BTreeMap::new() }
    }

    /// What is certain at the end of a life, or before one of its changes.
    pub fn end(&self, heard: &Heard, cut: Option<usize>) -> Result<End> {
        let clients = self.clients;
        let (durable, names, whole) = (vec![0; clients], vec![0; clients], false);
        let mut end = End { durable, names, whole, begun: vec![self.steps; clients] };
        let mut last = vec![0; clients];
        // For each, how far all were when it began what it does.
        let mut before = vec![vec![0; clients]; clients];
        let syncs: Vec<Vec<bool>> = (0..clients).map(|client| self.syncs(client, heard)).collect();
        for (told, changes) in heard {
            match told {
                Told::Failed(why) => bail!("before the power went: {why}"),
                Told::Done(client, step) => {
                    ensure!(*client < clients, "there is no client {client}");
                    last[*client] = step + 1;
                    let is_sync = syncs[*client].get(*step) == Some(&true);
                    if is_sync && cut.is_none_or(|cut| *changes <= cut) {
                        end.durable[*client] = step + 1;
                        let names = end.names.iter_mut().zip(&before[*client]);
                        names.for_each(|(names, before)| *names = (*names).max(*before));
                    }
                    before[*client].clone_from(&last);
                }
                Told::Ended if cut.is_none_or(|cut| *changes <= cut) => {
                    end.durable.clone_from(&last);
                    end.whole = true;
                }
                Told::Mounted | Told::Ended | Told::Built(_) | Told::Killed(_) => {}
            }
        }
        end.begun
            .iter_mut()
            .zip(last)
            .for_each(|(begun, last)| *begun = (last + 1).min(self.steps));
        end.names.iter_mut().zip(&end.durable).for_each(|(names, own)| *names = (*names).max(*own));
        Ok(end)
    }

    /// The same where nothing is lost: all that was told is there.
    pub fn whole_end(&self, heard: &Heard) -> Result<End> {
        let mut end = self.end(heard, None)?;
        end.whole = true;
        for (client, durable) in end.durable.iter_mut().enumerate() {
            let told = heard
                .iter()
                .filter(|(told, _)| matches!(told, Told::Done(who, _) if *who == client));
            *durable = told.count();
        }
        Ok(end)
    }

    /// Which of the steps that an application has done made things durable.
    fn syncs(&self, client: usize, heard: &Heard) -> Vec<bool> {
        let last = heard.iter().filter_map(|(told, _)| match told {
            Told::Done(who, step) if *who == client => Some(step + 1),
            _ => None,
        });
        let script = machine::client(self.kind, self.seed, self.life, client);
        script.take(last.max().unwrap_or(0)).map(|step| step.is_sync()).collect()
    }

    /// Finds for each application how far it has come.
    pub fn compare(&self, found: &Tree, end: &End) -> Result<Found> {
        let mut trees = self.settled.clone();
        let (mut durable, mut steps) = (0, 0);
        for (folder, tree) in &self.settled {
            let (count, text) = check::difference(tree, &check::part(found, folder));
            ensure!(count == 0, "what a former life has left is not as it was: {text}");
        }
        for client in 0..self.clients {
            let folder = format!("life{}-{client}", self.life);
            let tree = check::part(found, &folder);
            let script =
                machine::client(self.kind, self.seed, self.life, client).take(end.begun[client]);
            let done = match self.kind {
                kind if kind.is_volume() && !end.whole => {
                    let script: Vec<_> = script.collect();
                    let later = (kind == Kind::VolumeInPlace).then(|| Later::of(&script));
                    let (names, synced) = (end.names[client], end.durable[client]);
                    promise::steps_in(&tree, script.into_iter(), names, synced, later.as_ref())
                }
                _ => check::steps_in(&tree, script, end.durable[client]),
            };
            let done = done.with_context(|| format!("application {client}"))?;
            durable += end.durable[client] as u64;
            steps += done as u64;
            if !tree.is_empty() {
                trees.insert(folder, tree);
            }
        }
        let known = |path: &str| trees.contains_key(path.split('/').next().unwrap_or_default());
        if let Some(path) = found.keys().find(|path| !known(path)) {
            bail!("/{path} is there, and nobody made it");
        }
        Ok(Found { trees, durable, steps })
    }
}

/// What was found to be right on an image.
pub struct Found {
    /// What this life and the former ones have left, by folder.
    pub trees: BTreeMap<String, Tree>,
    /// Steps of this life's applications that were acknowledged as durable.
    pub durable: u64,
    /// Steps of theirs that are there.
    pub steps: u64,
}

/// Listens to a machine.
pub struct Listener {
    heard: Arc<Mutex<Heard>>,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Listens until the end of `output`.
    pub fn start(output: impl Read + Send + 'static, power: &Arc<Power>) -> Self {
        let heard = Arc::new(Mutex::new(Heard::new()));
        let (notes, power) = (Arc::clone(&heard), Arc::clone(power));
        Self { heard, thread: std::thread::spawn(move || listen(output, &notes, &power)) }
    }

    /// Whether something was told that is wanted.
    pub fn has(&self, wanted: impl Fn(&Told) -> bool) -> bool {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().any(|(told, _)| wanted(told))
    }

    /// All that was told by a machine that has ended.
    pub fn finish(self) -> Heard {
        let _ = self.thread.join();
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Notes what a machine tells, until its end.
fn listen(output: impl Read, heard: &Mutex<Heard>, power: &Power) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let (on, changes) = power.changes();
        let Some(told) = Told::parse(&line) else { continue };
        // Without power everything fails.
        if on || !matches!(told, Told::Failed(_)) {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push((told, changes));
        }
    }
}
