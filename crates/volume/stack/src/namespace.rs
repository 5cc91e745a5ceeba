//! The process of the namespace module: a FUSE daemon, which belay holds (policy `records`).
//!
//! Its next life knows nothing of it but what it has published. The kernel keeps locks (fcntl, flock) by itself, so they outlive it.

use crate::memory::{self, Memory};
use crate::place::{Place, Role};
use crate::pulse::Pulse;
use anyhow::{Context, Result, bail};
use belay_cache::Publisher;
use belay_cache::answers::Answers;
use belay_channel::{CacheAnswer, CacheAsk, Connection, RemoteStore};
use belay_posix::Time;
use belay_posix::dispatch::{Module, Outcome};
use belay_sys::Mapping;
use belay_wire::errno::ENODATA;
use belay_wire::{Opcode, Request, Unique, build, record};
use nix::mount::{MsFlags, mount};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::SystemTime;

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENODEV: i32 = 19;

/// The largest message: a write, and what is before its data.
const LARGEST: usize = (1 << 20) + 4096;

/// Bytes that are kept of what was read from the stores.
const KEPT: usize = 64 << 20;

/// A request that is answered when something is durable.
struct Synced {
    objects: Vec<u64>,
    unique: u64,
    reply: Vec<u8>,
}

/// Runs it.
///
/// # Errors
/// If the memory cannot be used, or it cannot mount.
pub fn run(place: &Place, name: &str, mount: u64, mountpoint: &Path) -> Result<i32> {
    let pulse = Pulse::of(place, Role::Namespace)?;
    let mut cache = Connection::new(&place.socket(Role::Cache), Box::new(pulse.clone()));
    match cache.ask_until_answered(&CacheAsk::Ready(mount)) {
        CacheAnswer::Done => {}
        CacheAnswer::Refused(why) => bail!("{why}"),
    }
    let shared = memory::open(place)?.context("the cache's memory is gone")?;
    let generation = shared.next_generation();
    let publisher = Publisher::attach::<belay_channel::Error>(shared.clone(), generation);
    let publisher = publisher.context("cannot use the cache's memory")?.keeping(KEPT);
    let below = RemoteStore::reader(&place.socket(Role::Store), Box::new(pulse));
    let mut module = Module::new(publisher, below);
    if !shared.is_cleared(mount) {
        module.remove_orphans().context("cannot remove files that were removed while open")?;
        shared.set_cleared(mount);
    }
    let device = open_device(name, mountpoint)?;
    let (syncs, later) = channel();
    let writer = device.try_clone().context("cannot duplicate the device")?;
    // It holds up nobody but those who wait for it.
    let own = Connection::new(&place.socket(Role::Cache), Box::new(()));
    thread::Builder::new()
        .name("sync".into())
        .spawn(move || sync_all(&later, own, writer))
        .context("cannot start a thread")?;
    let answers = Answers::default();
    let mut serving = Serving { device, module, cache, shared, answers, syncs };
    serving.run()?;
    Ok(0)
}

fn open_device(name: &str, mountpoint: &Path) -> Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let flags = if rustix::process::getuid().is_root() { MsFlags::empty() } else { flags };
    mount(Some(name), mountpoint, Some("fuse.belay"), flags, Some(options.as_str()))
        .with_context(|| format!("cannot mount at {}", mountpoint.display()))?;
    Ok(device)
}

struct Serving {
    device: File,
    module: Module<Arc<Mapping>, RemoteStore>,
    cache: Connection<CacheAsk, CacheAnswer>,
    shared: Memory,
    answers: Answers,
    syncs: Sender<Synced>,
}

impl Serving {
    fn run(&mut self) -> Result<()> {
        let mut buffer = vec![0; LARGEST];
        loop {
            let length = match self.device.read(&mut buffer) {
                Ok(length) => length,
                Err(why) => match why.raw_os_error() {
                    // It was unmounted.
                    Some(ENODEV) => return Ok(()),
                    Some(ENOENT | EINTR | EAGAIN) => continue,
                    _ => return Err(why).context("cannot read the device"),
                },
            };
            let message = buffer.get(..length).unwrap_or_default();
            if let Some(reply) = self.answer(message) {
                write_reply(&mut self.device, &reply)?;
            }
        }
    }

    /// What a message is answered now, if anything.
    fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let request = Request::parse(message).ok()?;
        let unique = request.header.unique;
        if let Some(asked) = asked_for_record(&request) {
            return Some(match self.answers.to(&self.shared, asked) {
                Some(answer) => build::reply(unique, answer),
                None => build::reply_error(unique, ENODATA),
            });
        }
        loop {
            match self.module.handle(message, now()) {
                Outcome::Reply(reply) => return Some(reply),
                Outcome::Fault(reply, why) => {
                    tracing::error!("I/O error: {why}");
                    return Some(reply);
                }
                Outcome::Nothing => return None,
                Outcome::Full => {
                    match self.cache.ask_until_answered(&CacheAsk::Checkpoint) {
                        CacheAnswer::Done => {}
                        // Why, the cache has said.
                        CacheAnswer::Refused(_) => return Some(failed(unique)),
                    }
                }
                Outcome::Sync(objects, reply) => {
                    let objects = objects.into_iter().map(|object| object.0).collect();
                    let sent = self.syncs.send(Synced { objects, unique, reply });
                    return sent.err().map(|_| failed(unique));
                }
            }
        }
    }
}

fn failed(unique: u64) -> Vec<u8> {
    build::reply_error(unique, belay_wire::errno::EIO)
}

/// Which request belay asks about.
fn asked_for_record(request: &Request<'_>) -> Option<u64> {
    let is_ours = Unique::new(request.header.unique).is_own();
    if !is_ours || request.opcode() != Opcode::GETXATTR {
        return None;
    }
    record::asked_by(request.names().first?)
}

/// Answers what is synced, when it is durable. What has come meanwhile is synced together.
fn sync_all(
    asked: &Receiver<Synced>,
    mut cache: Connection<CacheAsk, CacheAnswer>,
    mut device: File,
) {
    while let Ok(first) = asked.recv() {
        let together: Vec<Synced> = std::iter::once(first).chain(asked.try_iter()).collect();
        let objects = together.iter().flat_map(|one| one.objects.iter().copied()).collect();
        let done = cache.ask_until_answered(&CacheAsk::Sync(objects));
        for Synced { unique, reply, .. } in together {
            let reply = match done {
                CacheAnswer::Done => reply,
                CacheAnswer::Refused(_) => failed(unique),
            };
            if let Err(why) = write_reply(&mut device, &reply) {
                tracing::error!("{why:#}");
                return;
            }
        }
    }
}

fn write_reply(device: &mut File, reply: &[u8]) -> Result<()> {
    match device.write(reply) {
        Ok(_) => Ok(()),
        // Who asked has gone, or the mount has: the next read says so.
        Err(why) if matches!(why.raw_os_error(), Some(ENOENT | ENODEV)) => Ok(()),
        Err(why) if why.kind() == io::ErrorKind::Interrupted => write_reply(device, reply),
        Err(why) => Err(why).context("cannot write to the device"),
    }
}

fn now() -> Time {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}
