//! Those who work on a mount whose server goes away: a writer, and a reader of what it writes. Each
//! is a process of its own: the parent starts others meanwhile, and a copy of a descriptor of the
//! mount is closed by their exec, which would wait.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::process::Process;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::{Deserialize, Serialize};

/// The file that the writer writes record by record.
pub const LOG: &str = "log";
/// The name of a file before it is whole.
const UNFINISHED: &str = "unfinished";
const LINE: usize = 64;
/// So many records are written for each file, and for each fsync.
const FILES: u64 = 50;
const SYNCS: u64 = 10;
/// Between two operations: what is written stays small however long it takes.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest that a write which others can see already may take to be answered.
const SOON: Duration = Duration::from_secs(60);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    Writer,
    Reader,
}

/// Arguments of `away-client`.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    #[arg(long, value_enum)]
    role: Role,
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    seed: u64,
}

/// What a client has done, all of it without an error.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub operations: u64,
    /// Records in the log, and files.
    pub records: u64,
    pub files: u64,
}

/// The record with that number.
pub fn line(seed: u64, index: u64) -> [u8; LINE] {
    let mut bytes = [0; LINE];
    ChaCha12Rng::seed_from_u64(seed ^ index.rotate_left(40)).fill_bytes(&mut bytes);
    bytes
}

/// The name of the file with that number.
pub fn name(index: u64) -> String {
    format!("file{index}")
}

/// Its content.
pub fn content(seed: u64, index: u64) -> Vec<u8> {
    let mut rng = ChaCha12Rng::seed_from_u64(!seed ^ index.rotate_left(40));
    let mut bytes = vec![0; rng.random_range(1..100_000)];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A client at work.
pub struct Client {
    role: Role,
    process: Process,
    orders: Option<ChildStdin>,
    done: Arc<AtomicU64>,
    /// The last line that is no number: what it has done in all, or what went wrong.
    said: Arc<Mutex<String>>,
}

impl Client {
    /// Starts one on the mount at `root`.
    pub fn start(role: Role, root: &Path, seed: u64) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program's own path")?;
        let mut command = Command::new(program);
        let role_name = if role == Role::Writer { "writer" } else { "reader" };
        command.args(["away-client", "--role", role_name, "--seed", &seed.to_string(), "--root"]);
        command.arg(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is the parent's business; a client ends with its stdin.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("starting a client")?;
        let mut process = Process::adopt(child, role_name);
        let orders = process.child().stdin.take();
        let output = process.child().stdout.take().context("a client has no stdout")?;
        let (done, said) = (Arc::<AtomicU64>::default(), Arc::<Mutex<String>>::default());
        let (count, words) = (Arc::clone(&done), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match line.parse() {
                    Ok(number) => count.store(number, Ordering::Relaxed),
                    Err(_) => *words.lock().unwrap_or_else(PoisonError::into_inner) = line,
                }
            }
        });
        Ok(Self { role, process, orders, done, said })
    }

    /// How many operations it has done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error if it has seen one.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.process.exited()? {
            bail!("the {:?} has ended ({status}): {}", self.role, self.said());
        }
        Ok(())
    }

    /// Lets it finish, and gives what it has done.
    pub fn finish(mut self, limit: Duration) -> Result<Record> {
        self.orders = None;
        let Some(status) = self.process.wait(limit)? else { bail!("the {:?} hangs", self.role) };
        let end = std::time::Instant::now() + limit;
        loop {
            // What it said last may still be on its way.
            let said = self.said();
            if let Ok(record) = serde_json::from_str(&said)
                && status.success()
            {
                return Ok(record);
            }
            if !status.success() || std::time::Instant::now() > end {
                bail!("the {:?} has ended ({status}): {said}", self.role);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Works until standard input ends.
pub fn run(args: &ClientArgs) -> Result<bool> {
    let stop = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    let mut record = Record::default();
    let result = match args.role {
        Role::Writer => write(args, &stop, &mut record),
        Role::Reader => read(args, &stop, &mut record),
    };
    let words = match &result {
        Ok(()) => serde_json::to_string(&record).context("encoding a record")?,
        Err(why) => format!("operation {}: {why:#}", record.operations),
    };
    say(&words)?;
    Ok(result.is_ok())
}

fn say(words: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{words}").context("telling the parent")
}

/// Notes an operation done, and waits a little.
fn done(record: &mut Record) -> Result<()> {
    record.operations += 1;
    say(&record.operations.to_string())?;
    std::thread::sleep(PAUSE);
    Ok(())
}

fn write(args: &ClientArgs, stop: &AtomicBool, record: &mut Record) -> Result<()> {
    let log = File::create_new(args.root.join(LOG)).context("creating the log")?;
    loop {
        if record.records.is_multiple_of(FILES) {
            let (unfinished, path) =
                (args.root.join(UNFINISHED), args.root.join(name(record.files)));
            let file = File::create_new(&unfinished).context("creating a file")?;
            (&file).write_all(&content(args.seed, record.files)).context("writing a file")?;
            file.sync_all().context("fsync of a file")?;
            drop(file);
            fs::rename(&unfinished, &path).context("renaming a file")?;
            record.files += 1;
            done(record)?;
        }
        if stop.load(Ordering::Relaxed) {
            return log.sync_all().context("the last fsync of the log");
        }
        let at = record.records * LINE as u64;
        log.write_all_at(&line(args.seed, record.records), at).context("writing to the log")?;
        record.records += 1;
        if record.records.is_multiple_of(SYNCS) {
            log.sync_all().context("fsync of the log")?;
        }
        done(record)?;
    }
}

/// Reads a record that the log's size says is there. A write that the server has carried out and
/// the kernel is not told of yet counts in what fstat(2) gives, but reads end before it until then
/// (`FUSE_I_SIZE_UNSTABLE` in fs/fuse/inode.c): with the bare daemon for a moment, with one that
/// died in between until its successor has answered.
fn read_line(log: &File, found: &mut [u8; LINE], at: u64) -> Result<()> {
    let end = Instant::now() + SOON;
    loop {
        let got = log.read_at(found, at).context("reading the log")?;
        if got == LINE {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{got} bytes at {at} of the log, which has {:?}",
            log.metadata()
        );
        std::thread::sleep(PAUSE);
    }
}

fn read(args: &ClientArgs, stop: &AtomicBool, record: &mut Record) -> Result<()> {
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    let log = File::open(args.root.join(LOG)).context("opening the log")?;
    while !stop.load(Ordering::Relaxed) {
        let length = log.metadata().context("asking for the log's size")?.len();
        let lines = length / LINE as u64;
        ensure!(lines >= record.records, "the log became shorter: {lines} for {}", record.records);
        record.records = lines;
        if lines > 0 {
            let index = rng.random_range(0..lines);
            let mut found = [0; LINE];
            read_line(&log, &mut found, index * LINE as u64)?;
            ensure!(found == line(args.seed, index), "record {index} of the log is wrong");
        }
        done(record)?;
        if rng.random_bool(0.1) {
            let entries = fs::read_dir(&args.root).context("listing the root")?;
            let names = entries.map(|entry| Ok(entry.context("listing the root")?.file_name()));
            let names: Vec<_> = names.collect::<Result<_>>()?;
            let whole = |name: &&std::ffi::OsString| *name != LOG && *name != UNFINISHED;
            let files = names.iter().filter(whole).count() as u64;
            ensure!(files >= record.files && files > 0, "{files} files, were {}", record.files);
            record.files = files;
            done(record)?;
        }
        if record.files > 0 && rng.random_bool(0.3) {
            let index = rng.random_range(0..record.files);
            let found = fs::read(args.root.join(name(index))).context("reading a file")?;
            ensure!(found == content(args.seed, index), "file {index} is wrong");
            done(record)?;
        }
    }
    Ok(())
}
