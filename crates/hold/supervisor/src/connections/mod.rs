//! The connections of a daemon, held so that its death does not cut them off.
//!
//! A daemon that talks to a child or a server answers requests before the other end has carried
//! them out (sshfs: writes). What it had handed to the connection is still delivered after its
//! death, but only if nobody finds the connection broken meanwhile: ssh gives up as soon as it
//! cannot deliver an answer. So the supervisor holds a duplicate of the daemon's end. After the
//! death it takes and throws away the answers until the other end has nothing left to do, says that
//! nothing more will come, and waits until the other end has finished.

mod finish;
mod pairs;
mod sftp;

pub use finish::Finishing;

use crate::look::found::FileStat;
use crate::process::{OURS, Watched, children, descendants};
use pairs::{Asker, Peer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Deref;

/// Duplicates of a daemon's ends of its connections.
#[derive(Debug, Default)]
pub struct Connections {
    /// By inode number.
    held: BTreeMap<u64, Held>,
    /// Some could not be had when they were last looked at: what goes through them breaks off with
    /// the daemon.
    missed: bool,
}

/// A duplicate of an end of a connection.
#[derive(Debug)]
struct Held(OwnedFd);

impl Drop for Held {
    /// A daemon may have the close of a connection wait until all is delivered (SO_LINGER), and
    /// this may be the last one. What is on its way is delivered without that as well. Where no
    /// time is given, a close does not wait and cuts off: that stays.
    fn drop(&mut self) {
        if let Ok(Some(time)) = sockopt::socket_linger(&self.0)
            && !time.is_zero()
        {
            let _ = sockopt::set_socket_linger(&self.0, None);
        }
    }
}

impl Deref for Held {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connections {
    /// Whether there are none. Those that could not be had are some.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && !self.missed
    }

    /// Looks at the daemon's descriptors: holds connections that are new, drops those that the
    /// daemon has closed itself.
    ///
    /// `copy` gives those of its descriptors, with their inode numbers, that are what they are
    /// wanted for ([`copies`]); nothing if that cannot be had now.
    pub fn refresh(
        &mut self,
        daemon: &Watched,
        copy: impl FnOnce(&[Wanted]) -> Option<Vec<(u64, OwnedFd)>>,
    ) {
        let mut seen = BTreeSet::new();
        let mut of_children = None;
        let Some(all) = descriptors(daemon.pid) else {
            self.missed = true;
            return;
        };
        let own = own_pairs(daemon.pid, &all);
        let mut wanted = Vec::new();
        for (number, kind, inode) in all {
            if !seen.insert(inode) {
                continue;
            }
            if own.contains(&inode) {
                self.held.remove(&inode); // a child may have had its other end, between fork and exec
                continue;
            }
            if self.held.contains_key(&inode) {
                continue;
            }
            let of_children = of_children.get_or_insert_with(|| pipes_of(&children(daemon.pid)));
            if kind == Kind::Pipe && !of_children.contains(&inode) {
                continue;
            }
            wanted.push(Wanted { number, kind, inode });
        }
        let copies = if wanted.is_empty() { Some(Vec::new()) } else { copy(&wanted) };
        // One that is dying has closed nothing itself: its connections are what this is about.
        let lives = has_descriptors(daemon.pid) && !daemon.is_dead();
        if lives {
            self.held.retain(|inode, _| seen.contains(inode));
        }
        self.missed = copies.is_none() || self.missed && !lives;
        let copies = copies.into_iter().flatten();
        self.held.extend(copies.map(|(inode, copy)| (inode, Held(copy))));
    }

    /// Begins to finish what the dead daemon had begun. `rest` are the processes that it left
    /// behind.
    pub fn finish(self, rest: Vec<Watched>) -> Finishing {
        Finishing::begin(self.held.into_values().collect(), rest, self.missed)
    }

    /// Cuts off a daemon that was never let issue anything, and ends the processes that it left
    /// behind. Gives their ids.
    pub fn abandon(self, rest: &[Watched]) -> Vec<u32> {
        drop(self.held);
        finish::kill(rest.iter())
    }
}

/// A descriptor of a daemon's, as it was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    number: i32,
    kind: Kind,
    inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Socket,
    Pipe,
}

/// Copies of those descriptors of process `pid` (at `process`) that are still what they were, and
/// through which requests may go; each with its inode number.
///
/// A daemon may have put another file behind a number meanwhile. The copy of that is closed, and
/// its close may wait for whoever serves it.
pub fn copies(process: BorrowedFd<'_>, pid: u32, wanted: &[Wanted]) -> Vec<(u64, OwnedFd)> {
    let copy = |wanted: &Wanted| {
        let copy = pidfd_getfd(process, wanted.number, PidfdGetfdFlags::empty()).ok()?;
        let stat = FileStat::known(&copy).ok()?;
        let (file, goes) = match wanted.kind {
            Kind::Socket => (FileType::Socket, carries(&copy, pid)),
            Kind::Pipe => (FileType::Fifo, reads(&copy)),
        };
        let same = FileType::from_raw_mode(stat.mode) == file && stat.inode == wanted.inode;
        (same && goes).then_some((wanted.inode, copy))
    };
    wanted.iter().filter_map(copy).collect()
}

/// The sockets and pipes among a process's descriptors; `None` if it cannot be looked at now.
fn descriptors(pid: u32) -> Option<Vec<(i32, Kind, u64)>> {
    OURS.at(pid, move || descriptors_of(pid)).ok()
}

fn descriptors_of(pid: u32) -> Vec<(i32, Kind, u64)> {
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

/// Those of a process's sockets whose other end is its own as well, and nobody else's, or closed:
/// event loops wake themselves by such pairs. A child that has the other end, and what the child
/// has started, is somebody else.
fn own_pairs(pid: u32, all: &[(i32, Kind, u64)]) -> BTreeSet<u64> {
    let sockets: BTreeSet<u64> =
        all.iter().filter(|one| one.1 == Kind::Socket).map(|one| one.2).collect();
    if sockets.is_empty() {
        return sockets;
    }
    let asker = Asker::new();
    let mut of_others = None;
    let mut others = || {
        let found = descendants(&[pid], &[]);
        found.into_iter().filter_map(descriptors).flatten().map(|(_, _, inode)| inode).collect()
    };
    let mut is_own = |inode: &u64| match asker.peer(*inode) {
        Peer::Inode(peer) => {
            let of_others: &BTreeSet<u64> = of_others.get_or_insert_with(&mut others);
            sockets.contains(&peer) && !of_others.contains(&peer) && !of_others.contains(inode)
        }
        Peer::Closed | Peer::Unknown => false,
    };
    sockets.iter().copied().filter(|inode| is_own(inode)).collect()
}

/// Whether a process has descriptors. One that ends loses the whole table before it closes any.
fn has_descriptors(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut entries| entries.next().is_some())
}

fn pipes_of(pids: &[u32]) -> BTreeSet<u64> {
    let all = pids.iter().filter_map(|pid| descriptors(*pid)).flatten();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn refresh(connections: &mut Connections, daemon: &Watched) {
        connections.refresh(daemon, |wanted| Some(copies(daemon.as_fd(), daemon.pid, wanted)));
    }

    fn of(end: OwnedFd) -> Connections {
        Connections { held: BTreeMap::from([(u64::MAX, Held(end))]), missed: false }
    }

    /// How many connections a process of Python's has that does this.
    fn held_of(program: &str) -> usize {
        let program = format!(
            "import asyncio, os, socket, subprocess, sys\n{program}\nprint('ready', flush=True)\nsys.stdin.read()"
        );
        let mut child = Command::new("python3")
            .args(["-c", &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let output = child.stdout.take().expect("stdout");
        BufReader::new(output).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n", "{program}");
        let daemon = Watched::open(child.id()).expect("pidfd");
        let mut connections = Connections::default();
        refresh(&mut connections, &daemon);
        drop(child.stdin.take());
        child.wait().expect("wait");
        connections.held.len()
    }

    #[test]
    fn s70_pairs_within_a_daemon_are_no_connections() {
        assert_eq!(held_of("pair = socket.socketpair()"), 0);
        assert_eq!(held_of("loop = asyncio.new_event_loop()"), 0);
        let child = "subprocess.Popen(['cat'], stdin=b, stdout=b)";
        // As sshfs does it; the pair of the loop is none still.
        let sshfs = format!(
            "loop = asyncio.new_event_loop()\na, b = socket.socketpair()\n{child}\nb.close()"
        );
        assert_eq!(held_of(&sshfs), 1);
        // One that keeps the child's end open as well.
        assert_eq!(held_of(&format!("a, b = socket.socketpair()\n{child}")), 2);
    }

    #[test]
    fn what_the_dead_had_is_kept_and_what_the_living_closed_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let daemon = Watched::open(child.id()).expect("pidfd");
        let held = || {
            let (end, _) = std::os::unix::net::UnixStream::pair().expect("socketpair");
            of(end.into())
        };
        let mut connections = held();
        refresh(&mut connections, &daemon);
        assert!(connections.is_empty(), "a living daemon has no such descriptor any more");
        child.kill().expect("kill");
        assert!(daemon.wait_end(Duration::from_secs(5)));
        // Not waited for yet: as the supervisor may find a daemon that has just died.
        let mut connections = held();
        refresh(&mut connections, &daemon);
        assert!(!connections.is_empty(), "a dead daemon has closed nothing itself");
        child.wait().expect("wait");
        refresh(&mut connections, &daemon);
        assert!(!connections.is_empty());
    }

    /// Whoever is to copy them does not answer, as on a machine that has too much to do: that is
    /// tried again, and what was on its way at a death meanwhile is known to be lost.
    #[test]
    fn connections_that_cannot_be_had_are_no_secret() {
        let (own, _other) = std::os::unix::net::UnixStream::pair().expect("socketpair");
        let mut child = Command::new("sleep");
        let mut child = child.arg("60").stdin(OwnedFd::from(own)).spawn().expect("sleep");
        let daemon = Watched::open(child.id()).expect("pidfd");
        let mut connections = Connections::default();
        connections.refresh(&daemon, |_| None);
        assert!(!connections.is_empty());
        connections.refresh(&daemon, |wanted| Some(wanted.iter().filter_map(|_| None).collect()));
        assert!(connections.is_empty(), "what is none of them is not missed");
        connections.refresh(&daemon, |_| None);
        child.kill().expect("kill");
        assert!(daemon.wait_end(Duration::from_secs(5)));
        refresh(&mut connections, &daemon);
        child.wait().expect("wait");
        assert!(!connections.is_empty(), "the dead shows no more what it had");
        let mut finishing = connections.finish(Vec::new());
        finishing.settle();
        assert!(finishing.is_cut());
    }

    /// The end of a connection whose close waits, and on which something is under way that nobody
    /// takes.
    fn lingering() -> (Connections, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let end = std::net::TcpStream::connect(listener.local_addr().expect("address"));
        let end = end.expect("connect");
        let (peer, _) = listener.accept().expect("accept");
        end.set_nonblocking(true).expect("nonblocking");
        sockopt::set_socket_linger(&end, Some(LINGER)).expect("linger");
        while (&end).write(&[0; 65_536]).is_ok() {}
        (of(end.into()), peer)
    }

    const LINGER: Duration = Duration::from_secs(60);

    #[test]
    fn the_last_close_of_a_connection_does_not_wait() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let daemon = Watched::open(child.id()).expect("pidfd");
        let begin = Instant::now();
        // One that a living daemon has closed, one of a dead daemon that never answered, and one
        // that is finished.
        let (mut closed, peer) = lingering();
        refresh(&mut closed, &daemon);
        assert!(closed.is_empty() && begin.elapsed() < LINGER / 2);
        // What is on its way comes, and its end.
        let mut rest = Vec::new();
        (&peer).read_to_end(&mut rest).expect("all of it");
        assert!(!rest.is_empty());
        let (abandoned, _peer) = lingering();
        abandoned.abandon(&[]);
        let (finished, _peer) = lingering();
        drop(finished.finish(Vec::new()));
        assert!(begin.elapsed() < LINGER / 2);
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
