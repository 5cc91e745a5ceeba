//! What is there after each stage of a build that nobody disturbs, and whether what is there after
//! a power failure can be that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use belay_workloads::build::{Build, Source, Stage};
use belay_workloads::{Outcome, Scale, Watch};

/// So many objects are made in one stage.
const OBJECTS: usize = 8;
/// So many differences are told.
const TOLD: usize = 5;

/// The stages of a build, and what each adds.
pub struct Stages {
    build: Build,
    archive: PathBuf,
    /// In their order.
    pub all: Vec<Stage>,
    /// What is there before the first, and after each.
    after: Vec<Outcome>,
    /// When the files of the archive were modified, which no stage changes.
    times: BTreeMap<String, SystemTime>,
}

impl Stages {
    /// Builds in a plain folder, which must be empty, and notes what comes of each stage.
    ///
    /// # Errors
    /// When that fails, or a stage changes what is there already: then one that was not ended could
    /// not be told from one that was.
    pub fn learn(scale: Scale, jobs: u8, folder: &Path, interrupted: &AtomicBool) -> Result<Self> {
        let source = match scale {
            Scale::Tiny => Source::generated(12)?,
            _ => Source::openssh()?,
        };
        let (archive, parts) = (source.archive().to_owned(), source.parts().to_vec());
        let build = Build::new(source, jobs);
        let stop = || interrupted.load(Ordering::Relaxed);
        let watch = Watch { deadline: Instant::now() + Duration::from_secs(3600), stop: &stop };
        let scratch = tempfile::tempdir().context("making a directory for logs")?;
        // Which objects there are is known when they are there.
        build.setup(folder)?;
        build.work(folder, scratch.path(), &watch).context("the first undisturbed build")?;
        let whole = build.look(folder)?;
        build.verify(&whole)?;
        build.prove(folder, &watch)?;
        build.again(folder)?;
        let mut all = vec![Stage::Copy, Stage::Unpack, Stage::Configure];
        all.extend(parts.into_iter().map(|part| Stage::Make(vec![part])));
        let names = whole.iter().filter_map(|(name, _)| name.strip_prefix("build: "));
        let objects: Vec<_> = names
            .filter(|name| name.ends_with(".o") && !name.contains('/'))
            .map(str::to_owned)
            .collect();
        all.extend(objects.chunks(OBJECTS).map(|some| Stage::Make(some.to_vec())));
        all.push(Stage::Make(vec![]));
        let mut after = vec![Outcome::default()];
        let mut times = BTreeMap::new();
        for stage in &all {
            build.stage(stage, folder, scratch.path(), &watch).context("an undisturbed build")?;
            let now = build.look_at_all(folder)?;
            let lost = after.last().map(|before| lost(before, &now)).unwrap_or_default();
            ensure!(lost.is_empty(), "{} changes what was there: {lost:?}", stage.name());
            if *stage == Stage::Unpack {
                times = modified(folder, files(&now))?;
            }
            after.push(now);
        }
        // What configure has touched is as new as that.
        let last = modified(folder, times.keys().map(String::as_str))?;
        times.retain(|name, time| last.get(name) == Some(time));
        ensure!(!times.is_empty(), "the archive holds no files");
        let staged = build.look(folder)?;
        let other = whole.differences(&staged);
        ensure!(other.is_empty(), "built in stages it is another: {other:?}");
        build.again(folder)?;
        Ok(Self { build, archive, all, after, times })
    }

    /// What is built.
    pub fn describe(&self) -> String {
        self.build.describe()
    }

    /// Where its sources are.
    pub fn archive(&self) -> &Path {
        &self.archive
    }

    /// What is being done when so many are done.
    pub fn name(&self, done: usize) -> &'static str {
        self.all.get(done).map_or("done", Stage::name)
    }

    /// Whether all is done.
    pub fn is_over(&self, done: usize) -> bool {
        done == self.all.len()
    }

    /// Looks at what is there when so many stages are known to be durable; gives how many files and
    /// directories were found to be as they should. What is not known to be whole is removed, as a
    /// compiler that was killed may have left a part of an object; of a whole build everything is.
    ///
    /// # Errors
    /// When something is not as it should be.
    pub fn settle(&self, root: &Path, done: usize) -> Result<u64> {
        let found = self.build.look_at_all(root)?;
        let expected = self.after.get(done).context("there are not as many stages")?;
        let lost = lost(expected, &found);
        ensure!(lost.is_empty(), "{done} stages of the build are durable, and {}", lost.join("; "));
        if self.all.iter().take(done).any(|stage| *stage == Stage::Unpack) {
            let found = modified(root, self.times.keys().map(String::as_str))?;
            let other = self.times.iter().find(|(name, time)| found.get(*name) != Some(time));
            ensure!(
                other.is_none(),
                "{other:?} expected, {:?} found",
                other.map(|(n, _)| found.get(n))
            );
        }
        if self.is_over(done) {
            let other = expected.differences(&found);
            ensure!(other.is_empty(), "the build has come to another end: {other:?}");
            self.build.prove(root, &Watch::limit(Duration::from_secs(60)))?;
            self.build.again(root)?;
            return Ok(expected.len() as u64);
        }
        // What is in a directory comes after it.
        let more: Vec<&str> = found
            .iter()
            .filter(|(name, _)| expected.get(name).is_none())
            .filter_map(|(name, _)| name.strip_prefix("build: "))
            .collect();
        for name in more.iter().rev() {
            let path = Build::place(root, name);
            let is_folder = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
            let removed = match is_folder {
                true => std::fs::remove_dir(&path),
                false => std::fs::remove_file(&path),
            };
            removed.with_context(|| format!("removing {name}, which is not known to be whole"))?;
        }
        Ok(expected.len() as u64)
    }
}

/// The files that were unpacked among what is there: the archive lies beside their directory.
fn files(outcome: &Outcome) -> impl Iterator<Item = &str> {
    let files = outcome.iter().filter(|(_, what)| what.contains(" bytes "));
    let names = files.filter_map(|(name, _)| name.strip_prefix("build: "));
    names.filter(|name| name.contains('/'))
}

/// When files were modified.
fn modified<'a>(
    root: &Path,
    names: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<String, SystemTime>> {
    let of = |name: &str| {
        let meta = std::fs::symlink_metadata(Build::place(root, name));
        let time =
            meta.and_then(|meta| meta.modified()).with_context(|| format!("looking at {name}"))?;
        Ok((name.to_owned(), time))
    };
    names.map(of).collect()
}

/// What is expected and not found as it should be, the first few.
fn lost(expected: &Outcome, found: &Outcome) -> Vec<String> {
    let other = expected.iter().filter(|(name, value)| found.get(name) != Some(*value));
    let told = |(name, value): (&str, &str)| {
        format!("{name}: {value} expected, {} found", found.get(name).unwrap_or("nothing"))
    };
    other.map(told).take(TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_is_asked_for_and_the_rest_removed() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let stages = Stages::learn(Scale::Tiny, 2, dir.path(), &AtomicBool::new(false))?;
        let watch = Watch::limit(Duration::from_secs(60));
        let scratch = tempfile::tempdir()?;
        let until = |done: usize| {
            let mut todo = stages.all[..done].iter();
            todo.try_for_each(|stage| stages.build.stage(stage, dir.path(), scratch.path(), &watch))
        };
        assert_eq!(stages.settle(dir.path(), 0)?, 0, "nothing is there");
        until(4)?;
        let of_three = stages.settle(dir.path(), 3)?;
        assert!(of_three > 10, "the sources, and what configure made");
        let left = stages.build.look_at_all(dir.path())?;
        assert_eq!(left.len() as u64, of_three, "the objects of the fourth stage are gone");
        until(stages.all.len())?;
        let source = std::fs::File::open(Build::place(dir.path(), "program-1.0/main.c"))?;
        let time = source.metadata()?.modified()?;
        source.set_modified(SystemTime::now())?;
        let why = stages.settle(dir.path(), 5).expect_err("a time is another").to_string();
        assert!(why.contains("main.c"), "{why}");
        source.set_modified(time)?;
        let object = Build::place(dir.path(), "program-1.0/module1.o");
        let bytes = std::fs::read(&object)?;
        std::fs::write(&object, &bytes[1..])?;
        let why = stages.settle(dir.path(), 5).expect_err("an object is wrong").to_string();
        assert!(why.contains("module1.o"), "{why}");
        std::fs::write(&object, &bytes)?;
        std::fs::write(Build::place(dir.path(), "more"), "")?;
        let why = stages.settle(dir.path(), stages.all.len()).expect_err("there is more");
        assert!(why.to_string().contains("more: absent expected"), "{why}");
        std::fs::remove_file(Build::place(dir.path(), "more"))?;
        stages.settle(dir.path(), stages.all.len())?;
        assert_eq!(stages.build.look_at_all(dir.path())?.len(), 0, "it can be built again");
        Ok(())
    }
}
