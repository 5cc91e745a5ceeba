//! A volume for tests: made by the program, filled without a mount.
#![allow(dead_code)]

use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_disk::FileDisk;
use belay_logical::Logical;
use belay_object::ObjectId;
use belay_posix::{Caller, Memo, Namespace, ROOT, View};
use belay_sys::Mapping;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A folder with names of volumes, and images.
pub struct Home {
    dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time: what one of them starts has copies of the images that another one has open
/// and locked, until its exec.
static TURN: Mutex<()> = Mutex::new(());

/// What the program said.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Ended with that code, and said all of these.
    #[track_caller]
    pub fn expect(&self, code: i32, parts: &[&str]) -> &Self {
        let all = format!("{}{}", self.out, self.err);
        assert_eq!(self.code, Some(code), "{all}");
        for part in parts {
            assert!(all.contains(part), "{part:?} is missing in: {all}");
        }
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {}", self.out))
    }
}

impl Home {
    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self { dir: tempfile::tempdir().expect("tempdir"), _turn: turn }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `belay volume WORDS`, in which `@` stands for the folder.
    pub fn volume(&self, words: &str) -> Said {
        let folder = format!("{}/", self.dir.path().display());
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_belay"), "volume"]);
        command.args(words.split_whitespace().map(|word| word.replace('@', &folder)));
        command.env("BELAY_VOLUMES_DIR", self.at("volumes")).stdin(Stdio::null());
        Said::of(&command.output().expect("timeout(1)"))
    }

    /// A volume `v` on `v.img`, with files.
    pub fn filled(options: &str) -> Self {
        let home = Self::new();
        home.volume(&format!("create v --store @v.img:32M{options}"))
            .expect(0, &["created volume"]);
        let mut open = Open::at(&home.at("v.img"));
        open.fill();
        open.checkpoint();
        home
    }

    /// Changes a byte of an image, and gives what it was.
    pub fn change(&self, image: &str, at: u64, change: impl FnOnce(u8) -> u8) -> u8 {
        let file = OpenOptions::new().read(true).write(true).open(self.at(image)).expect("open");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[change(byte[0])], at).expect("write");
        byte[0]
    }
}

type Memory = Arc<Mapping>;
type Names<'n, 'v> = Namespace<'n, 'v, Memory, Logical<FileDisk>>;

/// A volume that is open, as a mounted one is.
pub struct Open {
    publisher: Publisher<Memory>,
    cleaner: Cleaner<Memory>,
    logical: Logical<FileDisk>,
    memo: Memo,
}

/// Names in the directory `many`: several pages of them.
pub const MANY: usize = 120;

impl Open {
    pub fn at(image: &Path) -> Self {
        let mut logical = Logical::open(vec![FileDisk::open(image).expect("disk")]).expect("open");
        let first = belay_cache::intent::replay(&mut logical).expect("replay");
        let layout = Layout::new(Capacity { frames: 4096, slots: 4096 });
        let memory = Arc::new(Mapping::blank(layout.words * 8).expect("memory"));
        let shared = Shared::new(memory, layout);
        let room = logical.room().expect("room");
        shared.initialize(logical.epoch() - 1, first, &room);
        let publisher = Publisher::attach::<belay_logical::Error>(shared.clone(), 1);
        let publisher = publisher.expect("publisher");
        Self { publisher, cleaner: Cleaner::new(shared), logical, memo: Memo::default() }
    }

    /// Does something.
    pub fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Names<'_, '_>) -> belay_posix::Result<T, belay_logical::Error>,
    ) -> T {
        let mut view = View::new(&mut self.publisher, &mut self.logical);
        let mut names = Namespace::new(&mut view, Caller::default(), &mut self.memo);
        let done = act(&mut names).expect("act");
        view.commit(0, b"").expect("commit");
        done
    }

    pub fn make(&mut self, parent: ObjectId, name: &str, mode: u32) -> ObjectId {
        self.act(|names| names.make(parent, name.as_bytes(), mode, 0)).object
    }

    /// A file with so many pages of its own.
    pub fn file(&mut self, parent: ObjectId, name: &str, pages: usize) -> ObjectId {
        let object = self.make(parent, name, 0o100_644);
        let byte = name.bytes().fold(pages as u8, u8::wrapping_add) | 1;
        self.act(|names| names.write(object, Some(0), &vec![byte; pages * 4096 - 7]));
        object
    }

    /// Files of all kinds.
    pub fn fill(&mut self) {
        let dir = self.make(ROOT, "dir", 0o040_755);
        let sub = self.make(dir, "sub", 0o040_755);
        self.file(ROOT, "top", 3);
        let file = self.file(dir, "file", 300);
        self.file(sub, "deep", 5);
        self.act(|names| names.link(file, sub, b"other"));
        self.act(|names| names.symlink(sub, b"link", b"../file"));
        self.make(sub, "fifo", 0o010_644);
        let many = self.make(ROOT, "many", 0o040_755);
        for number in 0..MANY {
            let name = format!("{number:0100}");
            self.make(many, &name, 0o100_644);
        }
    }

    pub fn checkpoint(&mut self) {
        self.cleaner.checkpoint(&mut self.logical).expect("checkpoint");
    }

    /// Makes durable what was done, by the intent log.
    pub fn sync(&mut self, object: ObjectId) {
        assert!(self.cleaner.sync(&mut self.logical, &[object]).expect("sync"));
    }

    /// The layer below.
    pub fn logical(&mut self) -> &mut Logical<FileDisk> {
        &mut self.logical
    }
}

/// The block of the disk with a block of what a path leads to.
pub fn block_of(home: &Home, names: &[&str], number: u64) -> u64 {
    let mut open = Open::at(&home.at("v.img"));
    let object = open.act(|all| {
        let mut at = ROOT;
        for name in names {
            at = all.lookup(at, name.as_bytes())?.object;
        }
        Ok(at)
    });
    block_of_object(&mut open, object, number)
}

/// The same for an object: the one of two places that counts.
pub fn block_of_object(open: &mut Open, object: ObjectId, number: u64) -> u64 {
    let (store, file) = open.logical().place_of(object).expect("mapping").expect("an object");
    let store = open.logical().stores().nth(store).expect("a store");
    let geometry = store.geometry();
    let places = store.places(file, 10_000).expect("places");
    let (_, pointer) = places.into_iter().find(|(at, _)| *at == number).expect("a block");
    geometry.twins(pointer.block())[usize::from(pointer.is_right())]
}
