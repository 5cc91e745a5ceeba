//! What is there at the crash.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, AtFlags, CWD, Timespec, Timestamps, fadvise};

use super::model::Series;

/// Bytes of a file that is copied, as in the paper.
const COPY: usize = 1_000_000;
/// Files that are read, written and changed, and their size.
const FILES: u64 = 16;
const SIZE: u64 = 1 << 20;
/// What they have behind that. fusefat cannot read the end of a file that fills its last cluster,
/// also bare (EPERM).
const REST: u64 = 100;
const PAGE: u64 = 4096;
/// Files of a directory: a directory of a FAT must not be larger than a cluster.
const DIRECTORY: u64 = 50;

/// What makes the state, on one mount, again and again.
#[derive(Debug)]
pub struct State {
    root: PathBuf,
    series: Series,
    size: u64,
    open: Vec<File>,
    random: StdRng,
    round: u64,
}

impl State {
    /// Makes the files that are there all the time.
    pub fn new(root: &Path, series: Series, size: u64) -> Result<Self> {
        let this = Self {
            root: root.to_owned(),
            series,
            size,
            open: Vec::new(),
            random: StdRng::seed_from_u64(size),
            round: 0,
        };
        fs::write(this.probe(), [b'p'; 64]).context("making the file that is asked for")?;
        match series {
            Series::Reads | Series::Rewrites | Series::Changes | Series::Default => {
                for number in 0..FILES {
                    fs::write(this.file(number), vec![b'f'; (SIZE + REST) as usize])
                        .context("making the files")?;
                }
            }
            Series::Sessions => {
                for number in 0..size {
                    let path = this.session(number);
                    if number.is_multiple_of(DIRECTORY) {
                        fs::create_dir(path.parent().unwrap_or(root))
                            .context("making a directory")?;
                    }
                    fs::write(path, [b's'; 64]).context("making the files to be open")?;
                }
            }
            Series::Empty | Series::Dirty => {}
        }
        this.checkpoint()?;
        Ok(this)
    }

    /// A file that stays as it is.
    pub fn probe(&self) -> PathBuf {
        self.root.join("probe")
    }

    fn file(&self, number: u64) -> PathBuf {
        self.root.join(format!("f{number}"))
    }

    fn session(&self, number: u64) -> PathBuf {
        self.root.join(format!("s{}", number / DIRECTORY)).join(format!("s{number}"))
    }

    fn copy(&self, number: u64) -> PathBuf {
        self.root.join(format!("c{}", number / DIRECTORY)).join(format!("c{number}"))
    }

    /// Has everything that was done be made safe, which ends the epoch.
    pub fn checkpoint(&self) -> Result<()> {
        let file = File::options().write(true).open(self.probe());
        let file = file.context("opening the file that is asked for")?;
        file.sync_all().context("having everything made safe")
    }

    /// Makes the state that the next crash is to find.
    pub fn make(&mut self) -> Result<()> {
        self.round += 1;
        match self.series {
            Series::Empty => Ok(()),
            Series::Dirty => (0..self.size).try_for_each(|number| {
                let path = self.copy(number);
                if number.is_multiple_of(DIRECTORY) {
                    fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
                }
                File::create_new(path)?.write_all(&vec![b'd'; COPY])
            }),
            Series::Sessions => (0..self.size).try_for_each(|number| {
                self.open.push(File::open(self.session(number))?);
                Ok(())
            }),
            Series::Reads => {
                let files: Vec<File> =
                    (0..FILES).map(|n| File::open(self.file(n))).collect::<std::io::Result<_>>()?;
                let mut block = [0; PAGE as usize];
                (0..self.size).try_for_each(|number| {
                    let file = &files[(number % FILES) as usize];
                    let at = self.random.random_range(0..SIZE / PAGE) * PAGE;
                    fadvise(file, at, std::num::NonZeroU64::new(PAGE), Advice::DontNeed)?;
                    file.read_exact_at(&mut block, at)
                })
            }
            Series::Rewrites => {
                let file = File::options().write(true).open(self.file(0));
                file.and_then(|file| {
                    let block = [(self.round % 251) as u8; PAGE as usize];
                    (0..self.size).try_for_each(|number| {
                        file.write_all_at(&block, number % (SIZE / PAGE) * PAGE)
                    })
                })
            }
            Series::Changes | Series::Default => (0..self.size).try_for_each(|number| {
                let time = Timespec { tv_sec: 1_000_000_000 + (number * 2) as i64, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                let path = self.file(number % FILES);
                rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).map_err(Into::into)
            }),
        }
        .with_context(|| format!("making {} {}", self.size, self.series.unit()))
    }

    /// Uses what was open at the crash once more; says how long that took, in microseconds.
    pub fn reopen(&mut self) -> Result<f64> {
        let begin = Instant::now();
        let mut block = [0; 64];
        for file in &self.open {
            fadvise(file, 0, None, Advice::DontNeed).context("dropping a file's pages")?;
            file.read_exact_at(&mut block, 0)
                .context("reading from a file that was open at the crash")?;
        }
        let time = begin.elapsed().as_secs_f64() * 1e6;
        self.open.clear();
        Ok(time)
    }

    /// An error if what was there is not there any more; then takes it away.
    pub fn clear(&mut self) -> Result<()> {
        match self.series {
            Series::Dirty => {
                for number in 0..self.size {
                    let path = self.copy(number);
                    let data =
                        fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                    let right = data.len() == COPY && data.iter().all(|byte| *byte == b'd');
                    anyhow::ensure!(
                        right,
                        "{} is not what it was before the crash",
                        path.display()
                    );
                    fs::remove_file(&path)
                        .with_context(|| format!("removing {}", path.display()))?;
                }
            }
            Series::Rewrites => {
                let data = fs::read(self.file(0)).context("reading what was written")?;
                let last = self.size.min(SIZE / PAGE) * PAGE;
                let right =
                    data.iter().take(last as usize).all(|b| u64::from(*b) == self.round % 251);
                anyhow::ensure!(right, "what was written is not what it was before the crash");
            }
            Series::Changes | Series::Default => {
                use std::os::unix::fs::MetadataExt;
                for number in self.size.saturating_sub(FILES)..self.size {
                    let time = fs::metadata(self.file(number % FILES))
                        .context("looking at times")?
                        .mtime();
                    let right = time == 1_000_000_000 + (number * 2) as i64;
                    anyhow::ensure!(right, "a time is not what it was before the crash");
                }
            }
            Series::Empty | Series::Sessions | Series::Reads => {}
        }
        self.checkpoint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_can_be_made_again_and_is_checked() -> Result<()> {
        for series in Series::ALL {
            let dir = tempfile::tempdir()?;
            let mut state = State::new(dir.path(), series, 20)?;
            for _ in 0..2 {
                state.make()?;
                assert!(state.reopen()? >= 0.0);
                state.clear()?;
            }
            state.make()?;
            let lost = match series {
                Series::Dirty => fs::write(state.copy(3), "lost"),
                Series::Rewrites => fs::write(state.file(0), vec![0; SIZE as usize]),
                Series::Changes | Series::Default => File::options()
                    .write(true)
                    .open(state.file(19 % FILES))?
                    .set_modified(std::time::SystemTime::now()),
                _ => continue,
            };
            lost?;
            assert!(state.clear().is_err(), "{series:?}");
        }
        Ok(())
    }
}
