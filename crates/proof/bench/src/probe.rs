//! The application that waits: a thread that keeps asking the mount and notes when it was answered.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::OFlags;

use crate::ops::AlignedBuffer;

/// Bytes that the probe reads at once, and the least size of its files.
pub const READ_SIZE: usize = 4096;

/// What the probe has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When each answer came, since the probe's start; ascending.
    pub answers: Vec<Duration>,
    /// How many answers were errors or wrong.
    pub errors: u64,
    /// The first of these.
    pub first_error: Option<String>,
}

/// A running probe. It stops when dropped, provided that the mount answers.
pub struct Probe {
    start: Instant,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Starts asking: in turn a `stat` of one of `paths`, and a read from one of them that is held
    /// open.
    ///
    /// All `paths` are files on the mount of [`READ_SIZE`] bytes at least, which do not change.
    pub fn start(paths: Vec<PathBuf>) -> Result<Self> {
        ensure!(!paths.is_empty(), "the probe needs a file");
        let targets: Vec<Target> = paths.into_iter().map(Target::new).collect::<Result<_>>()?;
        let start = Instant::now();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("probe".into()).spawn({
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || ask(targets, start, &seen, &stop)
        })?;
        Ok(Self { start, seen, stop, thread: Some(thread) })
    }

    /// The time on the probe's clock.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until the probe has had `count` answers after `since`; an error after `limit`.
    pub fn wait_for_answers(&self, since: Duration, count: usize, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            {
                let seen = lock(&self.seen);
                let after = seen.answers.len() - seen.answers.partition_point(|a| *a <= since);
                if after >= count {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    let first = seen.first_error.as_deref().unwrap_or("none");
                    return Err(anyhow!(
                        "the probe got {after} answers instead of {count} within {limit:?} after the kill; \
                         its first error: {first}"
                    ));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops asking and returns what was seen. Waits for the answer that is outstanding.
    pub fn finish(mut self) -> Result<Seen> {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| anyhow!("the probe panicked"))?;
        }
        Ok(std::mem::take(&mut *lock(&self.seen)))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Not joined: where the mount hangs, whoever stops it frees the thread.
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// A poisoned lock still holds a valid list: each answer is one push.
fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Target {
    path: PathBuf,
    file: File,
    direct: bool,
    expected: Vec<u8>,
    len: u64,
    inode: u64,
}

impl Target {
    fn new(path: PathBuf) -> Result<Self> {
        use std::os::unix::fs::MetadataExt;
        // Past the page cache if it can be, so that the daemon has to answer; else the pages are
        // dropped each time.
        let open = |flags: OFlags| {
            let flags = i32::try_from(flags.bits()).unwrap_or(0);
            File::options().read(true).custom_flags(flags).open(&path)
        };
        let (file, direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(_) => {
                (open(OFlags::empty()).with_context(|| format!("open {}", path.display()))?, false)
            }
        };
        let meta = path.symlink_metadata().with_context(|| format!("stat {}", path.display()))?;
        let mut target =
            Self { path, file, direct, expected: Vec::new(), len: meta.len(), inode: meta.ino() };
        let mut buffer = AlignedBuffer::new(READ_SIZE, 0);
        target.read(&mut buffer)?;
        target.expected = buffer.bytes().to_vec();
        Ok(target)
    }

    fn read(&self, buffer: &mut AlignedBuffer) -> Result<()> {
        if !self.direct {
            rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        let count = rustix::io::pread(&self.file, buffer.bytes_mut(), 0)
            .with_context(|| format!("read {}", self.path.display()))?;
        ensure!(
            count == READ_SIZE,
            "{count} bytes instead of {READ_SIZE} from {}",
            self.path.display()
        );
        Ok(())
    }

    fn check_read(&self, buffer: &mut AlignedBuffer) -> Result<()> {
        self.read(buffer)?;
        ensure!(buffer.bytes() == self.expected, "the content of {} changed", self.path.display());
        Ok(())
    }

    fn check_stat(&self) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let meta = self
            .path
            .symlink_metadata()
            .with_context(|| format!("stat {}", self.path.display()))?;
        ensure!(
            meta.len() == self.len,
            "the size of {} changed to {}",
            self.path.display(),
            meta.len()
        );
        ensure!(
            meta.ino() == self.inode,
            "the inode of {} changed to {}",
            self.path.display(),
            meta.ino()
        );
        Ok(())
    }
}

fn ask(targets: Vec<Target>, start: Instant, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let mut buffer = AlignedBuffer::new(READ_SIZE, 0);
    let mut read = false;
    for target in targets.iter().cycle() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let answer = if read { target.check_read(&mut buffer) } else { target.check_stat() };
        let at = start.elapsed();
        read = !read;
        let mut seen = lock(seen);
        seen.answers.push(at);
        if let Err(error) = answer {
            seen.errors += 1;
            seen.first_error.get_or_insert_with(|| format!("{error:#}"));
            drop(seen);
            // A dead mount fails at once, and without end.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes a file that the probe can use, and returns its path.
pub fn make_file(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("belay-bench-probe");
    std::fs::write(&path, [b'p'; READ_SIZE])
        .with_context(|| format!("create {}", path.display()))?;
    Ok(path)
}

/// The gaps between answers, told apart by the kills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaps {
    /// The longest gap around each kill.
    pub around_kills: Vec<Duration>,
    /// All gaps that touch no kill's window.
    pub quiet: Vec<Duration>,
}

/// A kill, and the time until which gaps are put down to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// When the signal was sent.
    pub at: Duration,
    /// When the mount had proved to work again.
    pub until: Duration,
}

/// Finds the longest gap around each kill: of those that end after the kill and begin before its
/// window's end. `answers` and `kills` are ascending.
pub fn gaps(answers: &[Duration], kills: &[Kill]) -> Gaps {
    let mut found = Gaps::default();
    let mut kills = kills.iter().peekable();
    let mut longest: Option<Duration> = None;
    for pair in answers.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        // Close the windows that end before this gap begins.
        while kills.next_if(|kill| from >= kill.until).is_some() {
            found.around_kills.extend(longest.take());
        }
        match kills.peek() {
            Some(kill) if to > kill.at => longest = longest.max(Some(to - from)),
            _ => found.quiet.push(to - from),
        }
    }
    found.around_kills.extend(longest);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn the_longest_gap_around_each_kill_is_found() {
        let answers = ms(&[0, 1, 2, 12, 13, 17, 18, 100, 101, 102, 109, 110, 111]);
        // Killed at 2.5 (a gap of 10, then one of 4), and at 102 (a gap of 7); the one of 82 is
        // nobody's.
        let kill = |at: u64, until: u64| Kill {
            at: Duration::from_micros(at),
            until: Duration::from_micros(until),
        };
        let found = gaps(&answers, &[kill(2_500, 17_500), kill(102_000, 110_500)]);
        assert_eq!(found.around_kills, ms(&[10, 7]));
        assert_eq!(found.quiet, ms(&[1, 1, 82, 1, 1]));
    }

    #[test]
    fn a_kill_without_a_later_answer_has_no_pause() {
        let kill = Kill { at: Duration::from_millis(5), until: Duration::from_millis(9) };
        assert_eq!(gaps(&ms(&[1, 2]), &[kill]).around_kills, []);
        assert_eq!(gaps(&[], &[kill]), Gaps::default());
    }

    #[test]
    fn a_probe_on_a_plain_directory_sees_no_errors() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let probe = Probe::start(vec![make_file(dir.path())?])?;
        probe.wait_for_answers(Duration::ZERO, 100, Duration::from_secs(10))?;
        let seen = probe.finish()?;
        assert!(seen.answers.len() >= 100 && seen.answers.is_sorted());
        assert_eq!((seen.errors, seen.first_error), (0, None));
        Ok(())
    }

    #[test]
    fn a_probe_notices_changed_data() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = make_file(dir.path())?;
        let probe = Probe::start(vec![path.clone()])?;
        std::fs::write(&path, [b'x'; READ_SIZE])?;
        probe.wait_for_answers(probe.now(), 4, Duration::from_secs(10))?;
        let seen = probe.finish()?;
        assert!(seen.errors > 0);
        Ok(())
    }
}
