//! A volume that is filled by files, and emptied, by the messages of the kernel.

use crate::Random;
use crate::SECRET;
use crate::asked::Asked;
use crate::disk::SimDisk;
use crate::memory::SimMemory;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{ObjectId, Room};
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::{Caller, Time};
use belay_store::{Parameters, bounds};
use belay_wire::abi::{MkdirIn, MknodIn, SetattrIn, SetattrValid, WriteIn};
use belay_wire::{Opcode, OutHeader, ROOT_ID, build};
use rand::{Rng, SeedableRng};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// A volume on one disk, and its namespace module.
pub struct Stuffed<'d> {
    disk: &'d SimDisk,
    memory: SimMemory,
    layout: Layout,
    module: Module<SimMemory, Logical<&'d SimDisk>>,
    unique: u64,
    generation: u32,
}

/// What a file holds: a byte, and how many of them.
type Content = (u8, usize);

/// A file that was made.
#[derive(Clone, Copy, Debug)]
struct File {
    node: u64,
    content: Content,
}

/// What came of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Files that were made.
    pub files: u64,
    /// Bytes that were written to them.
    pub bytes: u64,
    /// What room there was when no file could be made any more.
    pub full: Room,
    /// What room there is when all is removed.
    pub empty: Room,
}

type Answer = Result<Vec<u8>, Errno>;

impl<'d> Stuffed<'d> {
    /// A new volume on that disk.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(disk: &'d SimDisk, capacity: Capacity) -> Result<Self, String> {
        let parameters = Parameters::default().small();
        let lower = Logical::format([9; 16], vec![([1; 16], disk)], parameters).map_err(say)?;
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        let room = lower.room().map_err(say)?;
        Shared::new(memory.another(), layout).initialize(lower.epoch() - 1, 0, &room);
        let module = begin(&memory, layout, 1, lower)?;
        let mut this = Self { disk, memory, layout, module, unique: 0, generation: 1 };
        this.module.format(Caller::default(), SECRET).map_err(say)?;
        this.checkpoint()?;
        Ok(this)
    }

    /// A new life of the module and of the layers below: what is in the memory stays.
    ///
    /// # Errors
    /// What is wrong.
    pub fn begin(&mut self) -> Result<(), String> {
        self.generation += 1;
        let lower = Logical::open(vec![self.disk]).map_err(say)?;
        self.module = begin(&self.memory, self.layout, self.generation, lower)?;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let shared = || Shared::new(self.memory.another(), self.layout);
        let compared = Some((shared(), bounds::SLACK));
        let mut asked = Asked::new(self.module.below(), self.memory.another(), compared);
        let taken = Cleaner::new(shared()).checkpoint(&mut asked);
        asked.seen()?;
        taken.map(|_| ()).map_err(say)
    }

    /// Has a message handled, after as many checkpoints as it takes.
    fn handle(&mut self, node: u64, opcode: Opcode, parts: &[&[u8]]) -> Result<Answer, String> {
        self.unique += 1;
        let ids = build::Ids { unique: self.unique, nodeid: node, uid: 0, gid: 0, pid: 1 };
        let message = build::request(ids, opcode, parts);
        for _ in 0..3 {
            match self.module.handle(&message, Time::default()) {
                Outcome::Nothing => return Ok(Ok(Vec::new())),
                Outcome::Full => self.checkpoint()?,
                Outcome::Reply(reply) | Outcome::Fault(reply, _) | Outcome::Sync(_, reply) => {
                    let (header, body) =
                        OutHeader::read_from_prefix(&reply).map_err(|_| "it is cut off")?;
                    return Ok(match -header.error {
                        0 => Ok(body.to_vec()),
                        errno => Err(Errno::from_raw_os_error(errno)),
                    });
                }
                outcome @ (Outcome::Held(_) | Outcome::Direct(_)) => {
                    return Err(format!("nothing is written by direct I/O: {outcome:?}"));
                }
            }
        }
        Err(format!("{opcode:?} has no room after a checkpoint, and is not told so"))
    }

    /// Fills the volume with files in a directory, and removes all of it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn round(&mut self, seed: u64) -> Result<Round, String> {
        let mut random = Random::seed_from_u64(seed);
        let name = |number: usize| format!("{number:0100}\0").into_bytes();
        let asked = MkdirIn { mode: 0o755, umask: 0 };
        let made = self.handle(ROOT_ID, Opcode::MKDIR, &[asked.as_bytes(), b"all\0"])?;
        let top = node_of(&made.map_err(say)?);
        let mut files: Vec<File> = Vec::new();
        let mut bytes = 0;
        loop {
            let asked = MknodIn { mode: 0o100_644, rdev: 0, umask: 0, padding: 0 };
            let name = name(files.len());
            match self.handle(top, Opcode::MKNOD, &[asked.as_bytes(), &name])? {
                Ok(made) => files.push(File { node: node_of(&made), content: (0, 0) }),
                Err(Errno::NOSPC) => break,
                Err(errno) => return Err(format!("a file cannot be made: {errno}")),
            }
            let most = [100, 9000, 200_000][random.random_range(0..3)];
            let wanted = (random.random_range(1..=u8::MAX), random.random_range(0..most));
            if let Some(file) = files.last_mut() {
                file.content = self.write(file.node, wanted)?;
                bytes += file.content.1 as u64;
            }
        }
        let full = self.module.below().room().map_err(say)?;
        if random.random() {
            self.begin()?;
        }
        // What was written before is there.
        self.checkpoint()?;
        self.begin()?;
        files.iter().try_for_each(|file| self.verify(file))?;
        // Some become shorter, somewhere in a page.
        for file in files.iter_mut().filter(|file| file.content.1 > 5000) {
            if random.random_range(0..4) == 0 {
                file.content.1 -= random.random_range(1..4500);
                self.cut(file)?;
            }
        }
        files.iter().try_for_each(|file| self.verify(file))?;
        let mut order: Vec<usize> = (0..files.len()).collect();
        while !order.is_empty() {
            let number = order.swap_remove(random.random_range(0..order.len()));
            let removed = self.handle(top, Opcode::UNLINK, &[&name(number)])?;
            removed.map_err(|errno| format!("a file cannot be removed: {errno}"))?;
            if let Some(file) = files.get(number) {
                let _ = self.handle(file.node, Opcode::FORGET, &[&1_u64.to_ne_bytes()])?;
            }
        }
        self.handle(ROOT_ID, Opcode::RMDIR, &[b"all\0"])?.map_err(say)?;
        let _ = self.handle(top, Opcode::FORGET, &[&1_u64.to_ne_bytes()])?;
        self.checkpoint()?;
        let empty = self.module.below().room().map_err(say)?;
        for store in self.module.below().stores() {
            let report = store.check().map_err(say)?;
            if !report.findings.is_empty() {
                return Err(format!("the check finds: {:?}", report.findings));
            }
        }
        Ok(Round { files: files.len() as u64, bytes, full, empty })
    }

    /// Writes to a file until it has all, or there is no room.
    fn write(&mut self, node: u64, (byte, length): Content) -> Result<Content, String> {
        let mut at = 0;
        while at < length {
            let count = (length - at).min(64 << 10);
            let mut asked = WriteIn::read_from_bytes(&[0; size_of::<WriteIn>()])
                .map_err(|_| "it is no message")?;
            (asked.offset, asked.size) = (at as u64, count as u32);
            let data = vec![byte; count];
            match self.handle(node, Opcode::WRITE, &[asked.as_bytes(), &data])? {
                Ok(_) => at += count,
                Err(Errno::NOSPC) => break,
                Err(errno) => return Err(format!("it cannot be written: {errno}")),
            }
        }
        Ok((byte, at))
    }

    fn cut(&mut self, file: &File) -> Result<(), String> {
        let mut asked = SetattrIn::read_from_bytes(&[0; size_of::<SetattrIn>()])
            .map_err(|_| "it is no message")?;
        (asked.valid, asked.size) = (SetattrValid::SIZE, file.content.1 as u64);
        let cut = self.handle(file.node, Opcode::SETATTR, &[asked.as_bytes()])?;
        cut.map(|_| ()).map_err(|errno| format!("a file cannot become shorter: {errno}"))
    }

    fn verify(&mut self, file: &File) -> Result<(), String> {
        let (byte, length) = file.content;
        self.unique += 1;
        let ids = build::Ids { unique: self.unique, nodeid: file.node, uid: 0, gid: 0, pid: 1 };
        let message = build::read(ids, 0, 0, 1 << 20);
        let Outcome::Reply(reply) = self.module.handle(&message, Time::default()) else {
            return Err("a read is not answered".to_owned());
        };
        match reply.get(size_of::<OutHeader>()..) == Some(vec![byte; length].as_slice()) {
            true => Ok(()),
            false => Err(format!("{} is not what was written to it", ObjectId(file.node))),
        }
    }
}

fn begin<'d>(
    memory: &SimMemory,
    layout: Layout,
    generation: u32,
    lower: Logical<&'d SimDisk>,
) -> Result<Module<SimMemory, Logical<&'d SimDisk>>, String> {
    let shared = Shared::new(memory.another(), layout);
    let publisher = Publisher::attach::<belay_logical::Error>(shared, generation);
    Ok(Module::new(publisher.map_err(say)?, lower))
}

/// The node that an answer is about.
fn node_of(body: &[u8]) -> u64 {
    body.first_chunk().map_or(0, |node| u64::from_ne_bytes(*node))
}

fn say(why: impl std::fmt::Display) -> String {
    why.to_string()
}
