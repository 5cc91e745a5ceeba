//! A volume in one process, to try it: `mount IMAGE MEMORY MOUNTPOINT`. The image is made if there is none, and so is the file with the
//! cache's memory, which outlives the process. It serves until it is unmounted. Not for use: nobody restarts it.

use belay_cache::intent::replay;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_disk::FileDisk;
use belay_logical::Logical;
use belay_object::Lower;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_sys::Mapping;
use nix::mount::{MsFlags, mount};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CAPACITY: Capacity = Capacity { frames: 65_536, slots: 65_536 };
const IMAGE: u64 = 2 << 30;
/// Bytes that are kept of what was read from the image.
const KEPT: usize = 64 << 20;
/// How often a checkpoint is taken.
const INTERVAL: Duration = Duration::from_secs(5);

fn now() -> Time {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

fn open(image: &Path) -> Result<(Logical<FileDisk>, bool)> {
    if image.exists() {
        return Ok((Logical::open(vec![FileDisk::open(image)?])?, false));
    }
    let disk = FileDisk::create(image, IMAGE)?;
    Ok((Logical::format([7; 16], vec![([8; 16], disk)], Parameters::default())?, true))
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, memory, mountpoint] = words.as_slice() else {
        return Err("usage: mount IMAGE MEMORY MOUNTPOINT".into());
    };
    let (mut lower, is_new) = open(Path::new(image))?;
    let layout = Layout::new(CAPACITY);
    let is_kept = Path::new(memory).exists();
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(memory)?;
    file.set_len(layout.words as u64 * 8)?;
    let mapping = Arc::new(Mapping::new(file.as_fd(), layout.words * 8)?);
    let shared = Shared::new(mapping, layout);
    if !is_kept {
        let first = replay(&mut lower)?;
        let room = Lower::room(&mut lower)?;
        shared.initialize(Lower::epoch(&mut lower)? - 1, first, &room);
    }
    let generation = std::process::id();
    let publisher = Publisher::attach::<belay_logical::Error>(shared.clone(), generation)?;
    let publisher = publisher.keeping(KEPT);
    let cleaner = Cleaner::new(shared);
    let mut module = Module::new(publisher, lower);
    if is_new {
        let caller = Caller { uid: 0, gid: 0, now: now() };
        module.format(caller)?;
    }
    if !is_kept {
        module.remove_orphans()?;
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    mount(
        Some("belay-volume"),
        mountpoint.as_str(),
        Some("fuse.belay"),
        MsFlags::empty(),
        Some(options.as_str()),
    )?;
    serve(&device, &mut module, &cleaner)?;
    cleaner.checkpoint(module.below())?;
    fs::remove_file(memory)?;
    Ok(())
}

fn serve(
    mut device: &File,
    module: &mut Module<Arc<Mapping>, Logical<FileDisk>>,
    cleaner: &Cleaner<Arc<Mapping>>,
) -> Result<()> {
    let mut buffer = vec![0; (1 << 20) + 4096];
    let mut last = Instant::now();
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            // It was unmounted.
            Err(error) if error.raw_os_error() == Some(19) => return Ok(()),
            Err(error) if [Some(2), Some(4)].contains(&error.raw_os_error()) => continue,
            Err(error) => return Err(error.into()),
        };
        let message = buffer.get(..length).unwrap_or_default();
        let reply = loop {
            match module.handle(message, now()) {
                Outcome::Reply(reply) | Outcome::Fault(reply, _) => break Some(reply),
                Outcome::Nothing => break None,
                Outcome::Full => {
                    cleaner.checkpoint(module.below())?;
                }
                Outcome::Sync(objects, reply) => {
                    if !cleaner.sync(module.below(), &objects)? {
                        cleaner.checkpoint(module.below())?;
                    }
                    break Some(reply);
                }
            }
        };
        if let Some(reply) = reply
            && let Err(error) = device.write(&reply)
            && error.raw_os_error() != Some(2)
        {
            return Err(error.into());
        }
        if last.elapsed() > INTERVAL {
            cleaner.checkpoint(module.below())?;
            last = Instant::now();
        }
    }
}
