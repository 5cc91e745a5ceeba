//! The connections of a daemon, held so that its death does not cut them off.
//!
//! A daemon that talks to a child or a server answers requests before the other end has carried
//! them out (sshfs: writes). What it had handed to the connection is still delivered after its
//! death, but only if nobody finds the connection broken meanwhile: ssh gives up as soon as it
//! cannot deliver an answer. So the supervisor holds a duplicate of the daemon's end. After the
//! death it says that nothing more will come, takes and throws away the answers, and waits until
//! the other end has finished.

use crate::process::{Watched, children};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, Shutdown, SocketType, shutdown, sockopt};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// How long processes may take to end by themselves that nothing was being said to.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a connection may be silent before its other end is given up.
const SILENCE: Duration = Duration::from_secs(2);
/// How long finishing may take at the most.
const LIMIT: Duration = Duration::from_secs(10);

/// Duplicates of a daemon's ends of its connections, by inode number.
#[derive(Debug, Default)]
pub struct Connections(BTreeMap<u64, OwnedFd>);

impl Connections {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at the daemon's descriptors: holds connections that are new, drops those that the
    /// daemon has closed itself.
    pub fn refresh(&mut self, daemon: &Watched) {
        let mut seen = BTreeSet::new();
        let mut of_children = None;
        for (number, kind, inode) in descriptors(daemon.pid) {
            if !seen.insert(inode) || self.0.contains_key(&inode) {
                continue;
            }
            let of_children = of_children.get_or_insert_with(|| pipes_of(&children(daemon.pid)));
            if kind == Kind::Pipe && !of_children.contains(&inode) {
                continue;
            }
            let copy = pidfd_getfd(daemon, number, PidfdGetfdFlags::empty());
            if let Ok(copy) = copy
                && (if kind == Kind::Socket { carries(&copy, daemon.pid) } else { reads(&copy) })
            {
                self.0.insert(inode, copy);
            }
        }
        self.0.retain(|inode, _| seen.contains(inode));
    }

    /// Finishes what the dead daemon had begun: waits for the other ends of its connections and
    /// for the processes that it left behind, and kills those that do not end. Gives the ids of
    /// the killed. Takes up to ten seconds, as long as there is progress.
    pub fn finish(self, rest: &[Watched]) -> Vec<u32> {
        let mut open: Vec<OwnedFd> = self.0.into_values().collect();
        for connection in &open {
            // A pipe's read end cannot be shut; its writer ends on the end of its own input.
            let _ = shutdown(connection, Shutdown::Write);
        }
        let begin = Instant::now();
        let mut progress = begin;
        loop {
            let alive: Vec<&Watched> = rest.iter().filter(|process| !process.is_dead()).collect();
            if alive.is_empty() && open.is_empty() {
                return Vec::new();
            }
            let patience = if open.is_empty() { PATIENCE } else { SILENCE };
            if begin.elapsed() > LIMIT || progress.elapsed() > patience {
                return kill(&alive);
            }
            if alive.is_empty() && !rest.is_empty() && progress.elapsed() > PATIENCE {
                // Whoever was at the other ends is gone.
                return Vec::new();
            }
            wait(&alive, &open);
            let before = (alive.len(), open.len());
            let mut taken = false;
            open.retain(|connection| drain(connection, &mut taken));
            let alive = rest.iter().filter(|process| !process.is_dead()).count();
            if taken || before != (alive, open.len()) {
                progress = Instant::now();
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Socket,
    Pipe,
}

/// The sockets and pipes among a process's descriptors.
fn descriptors(pid: u32) -> Vec<(i32, Kind, u64)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let target = target.to_str()?;
            let (kind, rest) = match target.strip_prefix("socket:[") {
                Some(rest) => (Kind::Socket, rest),
                None => (Kind::Pipe, target.strip_prefix("pipe:[")?),
            };
            Some((number, kind, rest.strip_suffix(']')?.parse().ok()?))
        })
        .collect()
}

fn pipes_of(pids: &[u32]) -> BTreeSet<u64> {
    let all = pids.iter().flat_map(|pid| descriptors(*pid));
    all.filter(|(number, kind, _)| *kind == Kind::Pipe && *number != 2)
        .map(|(_, _, inode)| inode)
        .collect()
}

/// Whether requests may go through a socket: a connection to another machine, or one half of a
/// pair that the daemon itself made. What it has with services of this machine (a log, a bus)
/// concerns no request.
fn carries(socket: &OwnedFd, pid: u32) -> bool {
    if sockopt::socket_type(socket) != Ok(SocketType::STREAM)
        || sockopt::socket_acceptconn(socket) == Ok(true)
    {
        return false;
    }
    match sockopt::socket_domain(socket) {
        Ok(AddressFamily::UNIX) => sockopt::socket_peercred(socket).is_ok_and(|peer| {
            // The maker of a pair is its peer: the daemon, or what it was before it went into the
            // background.
            let maker = peer.pid.as_raw_nonzero().get().unsigned_abs();
            maker == pid || !std::path::Path::new(&format!("/proc/{maker}")).exists()
        }),
        Ok(AddressFamily::INET | AddressFamily::INET6) => true,
        _ => false,
    }
}

fn reads(pipe: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(pipe)
        .is_ok_and(|flags| !flags.intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// Takes what has come. `false` at the end.
fn drain(connection: &OwnedFd, taken: &mut bool) -> bool {
    let mut scrap = [0_u8; 65_536];
    loop {
        let mut fds = [PollFd::new(connection, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut fds, Some(&none)), Ok(1)) {
            return true;
        }
        match rustix::io::read(connection, &mut scrap) {
            Ok(0) => return false,
            Ok(_) => *taken = true,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        }
    }
}

fn wait(alive: &[&Watched], open: &[OwnedFd]) {
    let mut fds: Vec<PollFd<'_>> = alive
        .iter()
        .map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN))
        .chain(open.iter().map(|connection| PollFd::new(connection, PollFlags::IN)))
        .collect();
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
}

fn kill(alive: &[&Watched]) -> Vec<u32> {
    let mut killed = Vec::new();
    for process in alive {
        tracing::debug!("process {} of the dead daemon lives on: killing it", process.pid);
        if process.signal(9).is_ok() {
            killed.push(process.pid);
        }
    }
    for process in alive {
        process.wait_end(Duration::from_secs(1));
    }
    killed
}
