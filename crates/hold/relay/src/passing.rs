//! Messages on their way: one thread takes the kernel's from the device to the socket, one takes
//! the daemon's from the socket to the device, and one writes the daemon's notifications, as the
//! kernel may have these wait for a lock that is held until the daemon answers something.
//!
//! What is read from and written to the device goes through the C library, and so through the shim,
//! as with any daemon. Nothing here knows of requests but INIT: a message is a message.

use crate::ending::Gone;
use crate::init::{self, HEAD, MOST, REPLY_HEAD};
use belay_wire::{Opcode, Request, get_u64};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown,
    SocketFlags, SocketType, recv, recvmsg, send, shutdown, socketpair, sockopt,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Room for the kernel's largest message.
const REQUEST: usize = MOST as usize + 8192;
/// Room for the daemon's largest: it may notify of more than it answers.
const REPLY: usize = (1 << 20) + 8192;
/// What a socket is to take: two messages of the largest kind at least, as the kernel counts them.
const ROOM: usize = 4 * REQUEST;
/// How long a reply waits for the notifications before it, which come first where nothing holds
/// them up.
const PATIENCE: Duration = Duration::from_millis(20);

/// The daemon's device, and what goes on behind it.
#[derive(Debug)]
pub(crate) struct Passing {
    /// The relay's end.
    socket: OwnedFd,
    device: File,
    /// `unique` of the INIT that the daemon has, or had; 0 before.
    init: AtomicU64,
    life: Arc<Life>,
    notified: Notified,
}

/// What is known of this life of the daemon.
#[derive(Debug)]
pub(crate) struct Life {
    /// The process that has answered INIT; 0 as long as there is none.
    pub(crate) server: AtomicU32,
    /// It has mounted.
    pub(crate) mounted: AtomicBool,
    /// Tells that the mount has gone.
    pub(crate) gone: Gone,
    /// Tells when all that the daemon has said is at the kernel.
    pub(crate) end: Mutex<Option<End>>,
}

/// Notifications that are not at the kernel yet.
#[derive(Debug, Default)]
struct Notified {
    open: Mutex<u64>,
    less: Condvar,
}

/// Tells when all that the daemon has said is at the kernel, and nothing more can come.
#[derive(Debug)]
pub(crate) struct End(Receiver<()>);

impl End {
    /// Waits for that, but not for long: a child of the dead daemon may have its device.
    pub(crate) fn wait(&self, patience: Duration) {
        let _ = self.0.recv_timeout(patience);
    }
}

/// A socket pair for messages: the relay's end, and the daemon's.
///
/// # Errors
/// Those of socketpair(2).
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for end in [&ours, &theirs] {
        // Where the user's limit is below that it takes one message of each kind even so.
        if sockopt::set_socket_send_buffer_size_force(end, ROOM).is_err() {
            sockopt::set_socket_send_buffer_size(end, ROOM)?;
        }
    }
    // Who answers INIT is the one that serves.
    sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}

/// Begins to pass messages on between `device` and `socket`.
///
/// # Errors
/// If there is no thread to be had.
pub(crate) fn begin(device: File, socket: OwnedFd, life: &Arc<Life>) -> io::Result<()> {
    let (init, notified) = (AtomicU64::new(0), Notified::default());
    let passing = Arc::new(Passing { socket, device, init, life: Arc::clone(life), notified });
    let (told, end) = mpsc::sync_channel(1);
    let (notify, notifications) = mpsc::channel();
    let run = |name: &str, work: Box<dyn FnOnce(&Passing) + Send>| {
        let passing = Arc::clone(&passing);
        thread::Builder::new().name(name.into()).spawn(move || work(&passing)).map(drop)
    };
    run("notifications", Box::new(move |passing| passing.notify(&notifications)))?;
    run("replies", Box::new(move |passing| passing.replies(&notify, &told)))?;
    run("requests", Box::new(Passing::requests))?;
    *life.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(End(end));
    Ok(())
}

impl Passing {
    fn requests(&self) {
        let mut buffer = vec![0; REQUEST];
        loop {
            let got = match (&self.device).read(&mut buffer) {
                Ok(got) => got,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ENOENT | libc::EAGAIN) => continue,
                    _ => break, // the mount has gone
                },
            };
            let Some(message) = buffer.get_mut(..got) else { continue };
            if let Ok(request) = Request::parse(message)
                && request.opcode() == Opcode::INIT
            {
                self.init.store(get_u64(message, 8).unwrap_or(0), Relaxed);
                init::offer(message);
            }
            if !self.hand_over(message) {
                return; // the daemon has closed its device: how it ends is told elsewhere
            }
        }
        self.life.gone.say();
        // It reads what there is still, and then the end.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    fn hand_over(&self, message: &[u8]) -> bool {
        loop {
            match send(&self.socket, message, SendFlags::NOSIGNAL) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) => thread::sleep(Duration::from_millis(1)),
                Err(_) => return false,
            }
        }
    }

    fn replies(&self, notify: &Sender<Vec<u8>>, told: &SyncSender<()>) {
        let mut buffer = vec![0; REPLY];
        // INIT comes first in each life.
        let mut waits = true;
        loop {
            let got = match if waits { self.first(&mut buffer) } else { self.next(&mut buffer) } {
                Ok(0) => break,
                Ok(got) => got,
                // It has ended, and had something left to read.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(_) => break,
            };
            let Some(message) = buffer.get_mut(..got) else { continue };
            // Its number was noted before the daemon had it.
            if waits && get_u64(message, 8) == Some(self.init.load(Relaxed)) {
                waits = false;
                let _ = sockopt::set_socket_passcred(&self.socket, false);
                init::limit(message);
            }
            if get_u64(message, 8) == Some(0) {
                self.notified.add();
                let _ = notify.send(message.to_vec());
                continue;
            }
            self.notified.wait();
            self.write(message);
        }
        let _ = told.send(());
    }

    fn next(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        recv(&self.socket, buffer, RecvFlags::empty()).map(|(got, _)| got)
    }

    /// The next message, which may be the answer to INIT, and who has sent it.
    #[cold]
    fn first(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmCredentials(sender) = message {
                self.life.server.store(sender.pid.as_raw_nonzero().get().unsigned_abs(), Relaxed);
            }
        }
        Ok(got.bytes)
    }

    /// Writes to the device as daemons do. What the kernel says of it the daemon cannot be told.
    fn write(&self, message: &[u8]) {
        let (head, body) = message.split_at(message.len().min(REPLY_HEAD));
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let count = if body.is_empty() { 1 } else { 2 };
        while let Err(error) = (&self.device).write_vectored(parts.get(..count).unwrap_or(&parts)) {
            if error.raw_os_error() != Some(libc::EINTR) {
                return;
            }
        }
    }

    fn notify(&self, notifications: &Receiver<Vec<u8>>) {
        for message in notifications {
            self.write(&message);
            self.notified.done();
        }
    }
}

impl Notified {
    fn add(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn done(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open = open.saturating_sub(1);
        if *open == 0 {
            self.less.notify_all();
        }
    }

    /// Waits until there are none, where nothing holds them up.
    fn wait(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open == 0 {
            return;
        }
        let _ = self.less.wait_timeout_while(open, PATIENCE, |open| *open > 0);
    }
}

// A message is at least as long as the head of a reply; what is shorter is the shim's to refuse.
const _: () = assert!(REPLY_HEAD < HEAD);
