//! What is made before the first daemon starts, and held until the end.

use crate::config::{Config, Medium, Policy, RECORDER_SLACK};
use crate::error::{Error, Result};
use crate::handover::Descriptors;
use crate::image::ImageFds;
use crate::instances::NewInstance;
use crate::memfile;
use crate::programs;
use crate::text::bytes;
use belay_recorder::{Capacity, Control, Layout};
use belay_sys::Mapping;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ftruncate, open};
use rustix::pipe::{PipeFlags, pipe_with};

/// The longest configuration, as it is written down. What cannot be read again, or shown, is
/// refused at the start: a mount whose note nobody can read is not found when all that knew of it
/// is dead.
const LONGEST: usize = 1 << 20;

/// Makes everything that a mount needs before its first daemon starts. `image`: the image, and its
/// locked journal.
///
/// # Errors
/// Those of the system calls that make the descriptors.
pub fn prepare(
    config: &Config,
    instance: NewInstance,
    image: Option<ImageFds>,
) -> Result<Descriptors> {
    let limits = "raise the limit of open files or memory (ulimit -a)";
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::system("open", "/dev/fuse", e, "run `belay doctor`"))?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::system("create", "an event counter", e, limits))?;
    let (stderr_read, stderr_write) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::system("create", "a pipe", e, limits))?;
    rustix::io::ioctl_fionbio(&stderr_read, true)
        .map_err(|e| Error::system("set up", "a pipe", e, ""))?;
    let stdin = belay_sys::dup_cloexec(rustix::stdio::stdin())
        .map_err(|e| Error::system("duplicate", "standard input", e, limits))?;
    let (post, mail) = crate::fusermount::mailbox()?;
    let (image_post, image_mail) = belay_sys::mailbox::for_image()
        .map_err(|e| Error::system("make", "a socket pair", e, limits))?;
    let json = serde_json::to_vec_pretty(config)
        .map_err(|e| Error::refused("configuration", e.to_string(), ""))?;
    if json.len() > LONGEST {
        let why = format!(
            "belay would have to note {} of it, and notes {} at most",
            bytes(json.len() as u64),
            bytes(LONGEST as u64)
        );
        let remedy = "name less, or put options into a file, if the daemon reads any";
        return Err(Error::refused("the command line", why, remedy));
    }
    instance.folder.put("config.json", &json)?;
    let lock = || {
        belay_sys::dup_cloexec(instance.lock.as_fd())
            .map_err(|e| Error::system("duplicate", "a lock", e, limits))
    };
    let or_lock = |fd: Option<OwnedFd>| fd.map_or_else(lock, Ok);
    let ImageFds { image, hold, journal, journal_folder, pointer_folder } =
        image.unwrap_or_default();
    let (image, hold, journal) = (or_lock(image)?, or_lock(hold)?, or_lock(journal)?);
    let medium_folder = config.medium.as_ref().and_then(Medium::folder);
    let medium_folder = or_lock(medium_folder)?;
    let (journal_folder, pointer_folder) = (or_lock(journal_folder)?, or_lock(pointer_folder)?);
    let covered = or_lock(covered(config))?;
    Ok(Descriptors {
        config: memfile::from_json("belay-config", config)?,
        recorder: make_recorder(config)?,
        ledger: memfile::create_sized("belay-ledger", crate::ledger::BYTES)?,
        device,
        event,
        stderr_read,
        stderr_write,
        control: instance.control,
        lock: instance.lock,
        folder: instance.folder.into(),
        journal,
        journal_folder,
        pointer_folder,
        image,
        medium_folder,
        hold,
        stdin,
        post,
        mail,
        image_post,
        image_mail,
        shim: memfile::library(crate::autopsy::open::SHIM, &config.shim)?,
        program: programs::pin(&config.program).map_err(|e| {
            Error::system("open", config.program.display().to_string(), e, "check its mode")
        })?,
        covered,
    })
}

/// The folder that the mount is going to cover, where a successor cannot find it by its path (see
/// the shim's `standin`).
fn covered(config: &Config) -> Option<OwnedFd> {
    let path = config.guessed_mountpoint.as_ref().filter(|_| !crate::fusermount::may_mount())?;
    open(&path.0, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn make_recorder(config: &Config) -> Result<OwnedFd> {
    let large = if matches!(config.policy, Policy::Epoch | Policy::Buffer) {
        // More than that is given up in any case.
        memfile::create_large(config.recorder_limit.saturating_add(RECORDER_SLACK))
    } else {
        None
    };
    let layout = Layout::new(Capacity::MOUNT);
    let wrap = |e| {
        let remedy =
            "memory files count as files: raise the limit of file size (ulimit -f unlimited)";
        Error::system("size", "the recorder", e, remedy)
    };
    let file = match large {
        Some(file) => {
            ftruncate(&file, layout.bytes() as u64).map_err(wrap)?;
            file
        }
        None => memfile::create_sized("belay-recorder", layout.bytes() as u64)?,
    };
    let memory = Mapping::new(file.as_fd(), layout.bytes()).map_err(|e| {
        Error::system("map", "the recorder", e, "raise the limit of address space (ulimit -v)")
    })?;
    let control = Control::new(&memory, layout);
    control.format();
    control.set_checkpoint_settings(&config.checkpoints.for_control());
    Ok(file)
}
