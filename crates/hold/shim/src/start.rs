//! How the shim comes to life: the environment, the recorder, the lease.

use crate::connection::Connection;
use crate::descriptors;
use crate::effects::after;
use crate::effects::journal::is_all_seen;
use crate::effects::policy::Policy;
use crate::exchanged::Named;
use crate::image_box::ImageBox;
use crate::mailbox::Mailbox;
use crate::shim::{Shim, end_superseded, settle};
use crate::waiting::bell::Waiting;
use belay_effects::area::{Area, Tally};
use belay_host::{Attachment, Host};
use belay_recorder::control::{Instant, Lease, Options};
use belay_recorder::{Capacity, Control, Layout, Store};
use belay_session::Session;
use belay_sys::Mapping;
use std::ffi::{CString, OsStr};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Some(setup) = std::env::var_os("BELAY_SHIM") else {
        settle(None);
        return;
    };
    // A bug here must look like any other crash of the daemon, not like undefined behaviour in
    // its C frames.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("belay: the shim failed: {info}");
        std::process::abort();
    }));
    let standin = std::env::var_os("BELAY_STANDIN").zip(std::env::var_os("BELAY_MOUNTPOINT"));
    let names = std::env::var_os("BELAY_IMAGE").zip(std::env::var_os("BELAY_IMAGE_AS"));
    let names = names.map(|(path, given)| [PathBuf::from(path), PathBuf::from(given)]);
    clean_environment();
    crate::real::prepare();
    crate::descriptors::own_memory();
    crate::populate::watch_forks();
    match attach(&setup, names) {
        Ok(shim) => {
            if shim.image.is_some() {
                crate::standin::use_image();
            }
            settle(Some(shim));
            if let Some((standin, mountpoint)) = standin {
                crate::standin::use_for(mountpoint.into_vec(), standin.into_vec());
            }
            if let Some(shim) = crate::shim::shim() {
                shim.host.reach(shim, Instant::Attached);
            }
        }
        Err(why) => {
            eprintln!("belay: cannot start under supervision: {why}");
            end_superseded();
        }
    }
}

/// Children of the daemon must not be preloaded: they get the environment that the user gave.
fn clean_environment() {
    let original = std::env::var_os("BELAY_PRELOAD").unwrap_or_default();
    let ours = [
        c"BELAY_SHIM",
        c"BELAY_STANDIN",
        c"BELAY_MOUNTPOINT",
        c"BELAY_IMAGE",
        c"BELAY_IMAGE_AS",
        c"BELAY_PRELOAD",
    ];
    for name in ours.into_iter().chain([c"LD_PRELOAD"]) {
        // SAFETY: in the loader's constructor phase no other thread exists; the name is a
        // NUL-terminated literal.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
    if let (false, Ok(value)) = (original.is_empty(), CString::new(original.as_bytes())) {
        // SAFETY: as above; setenv copies both strings.
        unsafe { libc::setenv(c"LD_PRELOAD".as_ptr(), value.as_ptr(), 1) };
    }
}

/// The shim, as `setup` says; `names` are those of the image.
fn attach(setup: &OsStr, names: Option<[PathBuf; 2]>) -> Result<Shim, String> {
    let setup = setup.to_str().ok_or("BELAY_SHIM is not text")?;
    let mut recorder = None;
    let mut device = None;
    let mut event = None;
    let mut outer = None;
    let mut post = None;
    let mut mail = None;
    let mut generation = None;
    let (mut image_post, mut image_mail) = (None, None);
    let mut options = Options::empty();
    let (mut image_device, mut image_inode) = (None, None);
    let mut image = None;
    let mut gate = None;
    let mut fields = setup.split(':');
    if fields.next() != Some("v2") {
        return Err(format!("BELAY_SHIM={setup} is of another version: install matching parts"));
    }
    for field in fields {
        let (name, value) = field.split_once('=').ok_or("BELAY_SHIM is malformed")?;
        let value: u64 = value.parse().map_err(|_| "BELAY_SHIM is malformed")?;
        match name {
            "recorder" => recorder = Some(take(value)?),
            "device" => device = Some(take(value)?),
            "event" => event = Some(take(value)?),
            "outer" => outer = Some(take(value)?),
            "post" => post = Some(take(value)?),
            "mail" => mail = Some(take(value)?),
            "image_post" => image_post = Some(take(value)?),
            "image_mail" => image_mail = Some(take(value)?),
            "image" => image = Some(take(value)?),
            "generation" => generation = u32::try_from(value).ok(),
            "options" => options = Options::from_bits_retain(value),
            "gate" => gate = Some(take(value)?),
            "image_device" => image_device = Some(value),
            "image_inode" => image_inode = Some(value),
            // What the loader and the kernel have needed: closed, as nobody needs it any more.
            "shim" | "program" => drop(take(value)?),
            // What the stand-in leads to: open until the daemon ends, as its path names it by
            // number.
            "covered" => descriptors::reserve(take(value)?.into_raw_fd()),
            _ => {}
        }
    }
    if let Some(gate) = gate {
        if !belay_sys::gate::is_open(&gate) {
            crate::populate::prepare();
        }
        // Nothing of the daemon's own has run yet, nor is anything of the mount in memory.
        let Some((told, chosen)) = belay_sys::gate::pass(&gate) else { leave() };
        generation = Some(told);
        options = Options::from_bits_retain(chosen);
    }
    let (Some(recorder), Some(device), Some(event)) = (recorder, device, event) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let (Some(post), Some(mail), Some(generation)) = (post, mail, generation) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let (Some(image_post), Some(image_mail)) = (image_post, image_mail) else {
        return Err("BELAY_SHIM is incomplete".into());
    };
    let identity = image_device.zip(image_inode);
    let image_box = ImageBox::new(image_post, image_mail, identity);
    let known = identity.zip(names).zip(image);
    let image = known.map(|((identity, names), pinned)| Named::new(identity, names, pinned));
    let layout = Layout::new(Capacity::MOUNT);
    let borrowed: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&recorder);
    let memory = Mapping::new(borrowed, layout.bytes())
        .map_err(|error| format!("cannot map the recorder: {error}"))?;
    let memory = Arc::new(memory);
    let control = Control::new(&memory, layout);
    if !control.is_valid() {
        return Err("the recorder is of another version: install matching parts".into());
    }
    let pid = std::process::id();
    let free = Lease { generation, pid: 0 };
    if !control.change_lease(free, Lease { generation, pid }) {
        return Err(format!("generation {generation} is not to start any more"));
    }
    let mut problem = None;
    let store = Store::new(memory.clone(), layout);
    let mut session = Session::attach_knowing(store, generation, options, |store| {
        after::learn(store, options, &image_box).unwrap_or_else(|why| {
            problem = Some(why);
            Default::default()
        })
    })
    .map_err(|error| format!("the record of the mount cannot be used: {error}"))?;
    if let Some(why) = problem {
        return Err(why);
    }
    if generation > 0 {
        session.end_kept(is_all_seen(&Control::new(&memory, layout), &Area::new(&memory, layout)));
    }
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    session.set_owner(user.as_raw(), group.as_raw());
    let handed_over = Area::new(&memory, layout).tally(Tally::HandedOver) > 0;
    let policy = Policy::new(options, &Control::new(&memory, layout));
    let shim = Shim {
        host: Host::new(session, memory, Attachment { layout, generation }),
        device,
        event,
        outer,
        mailbox: Mailbox::new(post, mail, generation),
        image_box,
        image,
        options,
        connection: Connection::new(options.contains(Options::ENDS_UNCONNECTED)),
        pid: AtomicU32::new(pid),
        handed_over: AtomicBool::new(handed_over),
        policy,
        waiting: Waiting::default(),
    };
    shim.reserve();
    shim.restore_flags();
    if let Some(epoch) = shim.epoch() {
        epoch.open(options)?;
    }
    Ok(shim)
}

/// Nobody needs this process, which has done nothing yet.
fn leave() -> ! {
    // SAFETY: it returns to nobody, and runs nothing of the daemon's.
    unsafe { libc::_exit(0) }
}

/// Takes over a descriptor that the supervisor left open for us.
fn take(fd: u64) -> Result<OwnedFd, String> {
    let fd = i32::try_from(fd).map_err(|_| "BELAY_SHIM is malformed")?;
    // SAFETY: F_SETFD on any number is harmless; it fails on one that is not open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(format!("descriptor {fd} from the supervisor is not open"));
    }
    // SAFETY: the descriptor is open (just checked), was left for this purpose by the supervisor
    // and is named once in BELAY_SHIM, which is gone from the environment now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
