//! The process in which a backtrace is made: what has to be read for it are files of others, by
//! code of others.
//!
//! It is this very program, started again, with limits of memory and time and without a capability.
//! It opens nothing: what it may read it is handed, and only what a word of the dead process's
//! stack points into. What it answers is text of somebody who is not trusted: bounded, and without
//! control characters. It answers in steps, each more than the one before, so that its end in the
//! middle costs what is not answered yet. Whoever waits for it is a thread that nobody waits for
//! (see [`super::later`]).

use super::maps::{self, Mapped};
use super::{Frame, open, plain, unwind};
use crate::error::{Error, Result};
use crate::memfile;
use crate::process::{Watched, readable};
use crate::threads;
use belay_effects::remains::{Head, Machine, REGISTERS_MAX, Remains};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGKILL;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Its memory, in bytes.
const MEMORY: u64 = 1536 << 20;
/// Its processor time, in seconds.
const SECONDS: u64 = 10;
/// The time that it has in all, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files that it is handed.
const FILES: usize = 64;
/// Bytes of its answer that are looked at.
const ANSWER: usize = 2 << 20;

/// What it is told, but for the files.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    machine: u32,
    registers: Vec<u64>,
    stack_at: u64,
    stack: Vec<u8>,
    maps: Vec<u8>,
    /// The paths of the files, in their order.
    paths: Vec<String>,
}

impl Told {
    fn new(remains: &Remains, paths: Vec<String>) -> Self {
        Self {
            machine: remains.head.machine as u32,
            registers: remains.head.registers.to_vec(),
            stack_at: remains.head.stack_at,
            stack: remains.stack.clone(),
            maps: remains.maps.clone(),
            paths,
        }
    }

    fn remains(self) -> (Remains, Vec<String>) {
        let mut registers = [0; REGISTERS_MAX];
        for (register, value) in registers.iter_mut().zip(self.registers) {
            *register = value;
        }
        let machine = match self.machine {
            2 => Machine::Aarch64,
            _ => Machine::X86_64,
        };
        let head = Head {
            generation: 0,
            machine,
            signal: 0,
            code: 0,
            address: 0,
            sender: 0,
            process: 0,
            thread: 0,
            unique: 0,
            opcode: 0,
            registers,
            stack_at: self.stack_at,
            stack_bytes: self.stack.len(),
            maps_bytes: self.maps.len(),
            message_bytes: 0,
        };
        let (stack, maps) = (self.stack, self.maps);
        (Remains { head, stack, maps, message: Vec::new() }, self.paths)
    }
}

/// The files that may have a part in a backtrace: into which a register or a word of the stack
/// points. Opened here, where there may be rights that the process apart has not.
pub(super) fn files(remains: &Remains) -> Vec<(String, File)> {
    let map = maps::parse(&remains.maps);
    let words = remains.stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let pointers = remains.head.registers.into_iter().chain(words);
    // A return address may lie behind the last byte of its function; that of another machine has a
    // check value in it.
    let pointers = pointers.flat_map(|word| {
        let bare = word & 0x0000_ffff_ffff_ffff;
        [bare, bare.wrapping_sub(1)]
    });
    let mut wanted: Vec<&Mapped> = Vec::new();
    for pointer in pointers {
        let Some(mapped) = map.iter().find(|mapped| mapped.has(pointer)) else { continue };
        if wanted.iter().all(|known| known.path != mapped.path) {
            wanted.push(mapped);
        }
        if wanted.len() >= FILES {
            break;
        }
    }
    let opened = |mapped: &Mapped| Some((mapped.path.clone(), open::open(mapped)?));
    wanted.into_iter().filter_map(opened).collect()
}

/// Makes the backtrace in a process apart. `None` if nothing came of it.
pub(super) fn backtrace(remains: &Remains) -> Option<Vec<Frame>> {
    let (paths, files): (Vec<String>, Vec<File>) = files(remains).into_iter().unzip();
    let told = memfile::from_json("belay-autopsy", &Told::new(remains, paths)).ok()?;
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).ok()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("belay").arg("autopsy").env_clear().current_dir("/");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = threads::patiently(threads::PATIENCE, || command.spawn()).ok()?;
    // It has not been told anything yet, so it waits: its number is still its own.
    let process = Watched::open(child.id())?;
    let sent = send(ours.as_fd(), told.as_fd(), &files);
    drop((ours, told, files, command));
    let answer = child.stdout.take().filter(|_| sent).map(answer);
    // It may be stopped, or wait for nothing that comes. Whoever takes the status of all of belay's
    // children takes its own.
    let _ = process.signal(SIGKILL);
    read_answer(&answer?)
}

fn send(to: BorrowedFd<'_>, told: BorrowedFd<'_>, files: &[File]) -> bool {
    let fds: Vec<_> = std::iter::once(told).chain(files.iter().map(AsFd::as_fd)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds))
        && sendmsg(to, &[IoSlice::new(b"a")], &mut control, SendFlags::NOSIGNAL).is_ok()
}

/// All that comes within the time.
fn answer(mut from: ChildStdout) -> Vec<u8> {
    let end = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    let mut part = [0; 16 << 10];
    while found.len() < ANSWER {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            tracing::debug!("a backtrace takes too long");
            break;
        }
        if !readable(from.as_fd(), left) {
            continue;
        }
        match from.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(n) => found.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
    found
}

/// The last step that was answered as a whole.
pub fn read_answer(bytes: &[u8]) -> Option<Vec<Frame>> {
    let bytes = bytes.get(..ANSWER).unwrap_or(bytes);
    let frames = bytes
        .split(|byte| *byte == b'\n')
        .rev()
        .find_map(|line| serde_json::from_slice::<Vec<Frame>>(line).ok())?;
    let text = |text: Option<String>| text.map(|text| plain(&text));
    let checked = |frame: Frame| Frame {
        address: plain(&frame.address),
        module: text(frame.module),
        offset: text(frame.offset),
        function: text(frame.function),
        file: text(frame.file),
        line: frame.line,
    };
    Some(frames.into_iter().take(unwind::FRAMES + 1).map(checked).collect())
}

/// What the process apart does.
///
/// # Errors
/// If it was not started by belay, or cannot be limited.
pub fn run() -> Result<i32> {
    let wrap = |what| move |error| Error::system("limit", what, error, "report this as a bug");
    // With the thread that has started it, its purpose ends.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(wrap("an autopsy"))?;
    let limits = [
        (Resource::As, MEMORY),
        (Resource::Data, MEMORY),
        (Resource::Cpu, SECONDS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in limits {
        // Perhaps there is less to begin with.
        let most = getrlimit(resource).maximum.unwrap_or(most).min(most);
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(wrap("an autopsy"))?;
    }
    set_no_new_privs(true).map_err(wrap("an autopsy"))?;
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, nothing).map_err(wrap("an autopsy"))?;
    let (told, files) = receive().ok_or_else(|| {
        Error::refused(
            "autopsy",
            "no supervisor is at standard input",
            "this command is for belay itself",
        )
    })?;
    let (remains, paths) = told.remains();
    let mut out = std::io::stdout();
    let tell = &mut |frames: &[&Frame]| {
        if let Ok(mut line) = serde_json::to_vec(frames) {
            line.push(b'\n');
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    };
    unwind::backtrace(&remains, paths.into_iter().zip(files).collect(), tell);
    Ok(0)
}

fn receive() -> Option<(Told, Vec<File>)> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (from, flags) = (rustix::stdio::stdin(), RecvFlags::CMSG_CLOEXEC);
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let mut fds = fds.into_iter();
    let told = memfile::to_value("belay-autopsy", fds.next()?.as_fd()).ok()?;
    Some((told, fds.map(File::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_the_last_whole_step_counts_and_it_is_bounded() {
        let frame = |address: &str| Frame { address: address.into(), ..Frame::default() };
        let line = |frames: &[Frame]| serde_json::to_string(frames).expect("JSON");
        let two = format!("{}\n{}\n", line(&[frame("1")]), line(&[frame("2"), frame("3")]));
        assert_eq!(read_answer(two.as_bytes()), Some(vec![frame("2"), frame("3")]));
        let torn = two.get(..two.len() - 9).expect("text");
        assert_eq!(read_answer(torn.as_bytes()), Some(vec![frame("1")]));
        assert_eq!(read_answer(b"nonsense\n{}\n"), None);
        let many = vec![frame(&format!("\x1b[2J\n{}", "x".repeat(9999))); 500];
        let found = read_answer(line(&many).as_bytes());
        assert!(found.is_none(), "it is longer than what is looked at");
        let found = read_answer(line(many.get(..100).expect("many")).as_bytes()).expect("frames");
        assert_eq!(found.len(), unwind::FRAMES + 1);
        for frame in found {
            assert!(!frame.address.contains(char::is_control) && frame.address.len() <= 512);
        }
    }
}
