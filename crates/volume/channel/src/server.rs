//! Who has connected, and whose turn it is. One thread serves all: none of them can hold up the
//! others, but by what it asks for.

use crate::frame::{self, Inbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long somebody may take to take an answer. Who does not is cut off, and asks again if it
/// lives.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time between two turns.
const TURN: Duration = Duration::from_secs(1);
/// Connections at once. There are a few processes, and each has a few threads.
const MOST: usize = 64;

/// What is served.
pub trait Service {
    /// What can be asked.
    type Ask: DeserializeOwned;
    /// What is answered.
    type Answer: Serialize;

    /// Answers who is connected by this number; `None` if the answer comes later
    /// ([`Service::later`]).
    fn answer(&mut self, client: u64, ask: Self::Ask) -> Option<Self::Answer>;

    /// What can be read when there may be an answer that comes later.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Answers that come later, and to whom. It is asked in each turn.
    fn later(&mut self) -> Vec<(u64, Self::Answer)> {
        Vec::new()
    }

    /// When something is due that nobody asks for.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// It is due.
    fn act(&mut self) {}

    /// It gets on: told once a second at the least.
    fn turn(&mut self) {}

    /// Whether nobody is served any more.
    fn is_over(&self) -> bool {
        false
    }
}

/// Who listens at a path.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
    next: u64,
}

#[derive(Debug)]
struct Client {
    number: u64,
    stream: UnixStream,
    inbox: Inbox,
}

impl Server {
    /// Listens at `path`. Nobody else may do that, nor may anybody else write to its folder: what
    /// is there is of a process that is dead.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new(), next: 1 })
    }

    /// Serves until `stop` can be read, or the service is over.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn run(&mut self, service: &mut impl Service, stop: &OwnedFd) -> io::Result<()> {
        while !service.is_over() {
            let ready = self.wait(service.due(), stop, service.wakes())?;
            service.turn();
            if service.due().is_some_and(|due| due <= Instant::now()) {
                service.act();
            }
            if ready.stops {
                return Ok(());
            }
            if ready.connects {
                self.accept();
            }
            for number in ready.clients {
                if !self.serve(number, service) {
                    self.cut_off(number);
                }
            }
            for (number, answer) in service.later() {
                if !self.send(number, &answer) {
                    self.cut_off(number);
                }
            }
        }
        Ok(())
    }

    fn wait(
        &self,
        due: Option<Instant>,
        stop: &OwnedFd,
        wakes: Option<BorrowedFd<'_>>,
    ) -> io::Result<Ready> {
        let mut polled = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        polled.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
        polled.extend(wakes.map(|wakes| PollFd::from_borrowed_fd(wakes, PollFlags::IN)));
        let left = due.map_or(TURN, |due| due.saturating_duration_since(Instant::now())).min(TURN);
        let limit =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        let mut seen = polled.iter().map(|one| !one.revents().is_empty());
        let (stops, connects) = (seen.next() == Some(true), seen.next() == Some(true));
        let clients = self.clients.iter().zip(seen);
        let clients = clients.filter(|(_, seen)| *seen).map(|(client, _)| client.number).collect();
        Ok(Ready { stops, connects, clients })
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let is_set = stream.set_write_timeout(Some(PATIENCE)).is_ok();
            if self.clients.len() < MOST && is_set {
                self.clients.push(Client { number: self.next, stream, inbox: Inbox::default() });
                self.next += 1;
            }
        }
    }

    /// Serves one message of somebody's at the most; false if it is to be cut off.
    fn serve(&mut self, number: u64, service: &mut impl Service) -> bool {
        let Some(client) = self.clients.iter_mut().find(|client| client.number == number) else {
            return false;
        };
        let ask = match client.inbox.take(&mut WhatIsThere(&client.stream)) {
            Ok(Some(ask)) => ask,
            Ok(None) => return true,
            Err(_) => return false,
        };
        service.answer(number, ask).is_none_or(|answer| self.send(number, &answer))
    }

    /// Sends somebody an answer; false if it is to be cut off.
    fn send(&mut self, number: u64, answer: &impl Serialize) -> bool {
        let client = self.clients.iter_mut().find(|client| client.number == number);
        client.is_none_or(|client| frame::send(&mut client.stream, answer).is_ok())
    }

    fn cut_off(&mut self, number: u64) {
        self.clients.retain(|client| client.number != number);
    }
}

/// A stream of which is read what is there, without waiting for more.
struct WhatIsThere<'a>(&'a UnixStream);

impl Read for WhatIsThere<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (length, _) = recv(self.0, out, RecvFlags::DONTWAIT)?;
        Ok(length)
    }
}

#[derive(Debug)]
struct Ready {
    stops: bool,
    connects: bool,
    clients: Vec<u64>,
}
