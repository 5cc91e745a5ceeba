//! The clients at the control socket, and what each waits for. Nobody waits for them.

use super::tokens::FIRST_CLIENT;
use crate::protocol::{Answer, MAX_ANSWER, MAX_LINE, StopHow};
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SocketFlags, accept_with};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Clients of one user at one time. One more takes the place of the one that has asked for nothing
/// for longest, so that nobody is kept from `belay stop` by those who only hold a connection.
const CLIENTS: usize = 64;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Nothing,
    /// The recovery that gives a later generation than this.
    Recovery(u32),
    /// The same, or that it fails.
    Restart(u32),
    /// An epoch that is to be on the image; and how many checkpoints had failed before.
    Safe(u64, u32),
    /// The mount is to be taken off, in this way.
    Unmount(StopHow),
    /// The mount is to serve.
    Serving,
    /// The end.
    End,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// What it has not taken yet of its answer: of one at most, as the next question waits for
    /// that.
    output: Vec<u8>,
    wait: Wait,
    user: u32,
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    all: BTreeMap<u64, Client>,
    /// The token of the next one.
    next: u64,
}

impl Default for Clients {
    fn default() -> Self {
        Self { all: BTreeMap::new(), next: FIRST_CLIENT }
    }
}

impl Clients {
    /// Takes those who have come to the socket `control` and may ask, and has `epoll` tell of them
    /// by their tokens.
    pub fn accept(&mut self, control: &OwnedFd, epoll: &OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(fd) = accept_with(control, flags) {
            // The state directory keeps others away; but it is the kernel that knows who asks.
            let own = rustix::process::geteuid();
            let user = match rustix::net::sockopt::socket_peercred(&fd) {
                Ok(peer) if peer.uid == own || peer.uid.is_root() => peer.uid.as_raw(),
                _ => continue, // closes it
            };
            self.make_room(user);
            let token = self.next;
            self.next += 1;
            // By edges: all is read and written at each of them, and a socket with room is no news.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if epoll::add(epoll, fd.as_fd(), epoll::EventData::new_u64(token), flags).is_ok() {
                let (stream, wait) = (UnixStream::from(fd), Wait::Nothing);
                let (input, output) = (Vec::new(), Vec::new());
                self.all.insert(token, Client { stream, input, output, wait, user });
            }
        }
    }

    /// Closes connections of a user who has too many: the oldest that wait for nothing, else the
    /// oldest.
    fn make_room(&mut self, user: u32) {
        let of_user = || self.all.iter().filter(|(_, client)| client.user == user);
        if of_user().count() < CLIENTS {
            return;
        }
        let idle = of_user().find(|(_, client)| client.is_idle());
        if let Some(token) = idle.or_else(|| of_user().next()).map(|(token, _)| *token) {
            self.all.remove(&token);
        }
    }

    /// Hands that one out to be served. Whoever is not put back is gone.
    pub fn take(&mut self, token: u64) -> Option<Client> {
        self.all.remove(&token)
    }

    /// Takes back one that was served.
    pub fn put_back(&mut self, token: u64, client: Client) {
        self.all.insert(token, client);
    }

    /// The tokens of all.
    pub fn tokens(&self) -> Vec<u64> {
        self.all.keys().copied().collect()
    }

    /// The tokens of those who have asked again before they were answered, and are answered by now.
    pub fn with_further_lines(&self) -> Vec<u64> {
        let all = self.all.iter().filter(|(_, client)| client.has_asked());
        all.map(|(token, _)| *token).collect()
    }

    /// Whether somebody waits for something of that kind.
    pub fn has_waiting(&self, kind: impl Fn(Wait) -> bool) -> bool {
        self.all.values().any(|client| kind(client.wait))
    }

    /// Who waits for the mount to be taken off in this way, waits for the end now.
    pub fn await_end(&mut self, how: StopHow) {
        for client in self.all.values_mut().filter(|client| client.wait == Wait::Unmount(how)) {
            client.wait = Wait::End;
        }
    }

    /// Gives those who wait the answer that `answer` has for them, if any.
    pub fn answer(&mut self, answer: impl Fn(Wait) -> Option<Answer>) {
        self.all.retain(|_, client| {
            if client.wait == Wait::Nothing {
                return true;
            }
            match answer(client.wait) {
                Some(answer) => {
                    client.wait = Wait::Nothing;
                    client.say(&answer)
                }
                None => true,
            }
        });
    }
}

impl Client {
    /// Takes in what it has sent, after what it has not taken yet is sent to it. False if it is
    /// gone, or says too much.
    pub fn hear(&mut self) -> bool {
        if !self.flush() {
            return false;
        }
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(n) => self.input.extend(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.input.len() > MAX_LINE {
                return false;
            }
        }
    }

    /// Its next question, which it may ask when it waits for nothing: one at a time, as the rest
    /// waits until the answer is out.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        if !self.is_idle() {
            return None;
        }
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        Some(self.input.drain(..=end).collect())
    }

    /// What it waits for, to be changed.
    pub fn wait(&mut self) -> &mut Wait {
        &mut self.wait
    }

    /// Whether it waits for nothing, and has its answers.
    fn is_idle(&self) -> bool {
        self.wait == Wait::Nothing && self.output.is_empty()
    }

    /// Whether it is answered, and has asked again.
    fn has_asked(&self) -> bool {
        self.is_idle() && self.input.contains(&b'\n')
    }

    /// Sends an answer, as much as fits into the socket now; the rest waits for its reader. False
    /// if the client is gone.
    pub fn say(&mut self, answer: &Answer) -> bool {
        let line = serde_json::to_vec(answer).ok().filter(|line| line.len() < MAX_ANSWER);
        let too_long = || {
            let why = format!("the answer would have more than {MAX_ANSWER} bytes");
            serde_json::to_vec(&Answer::Refused { why }).ok()
        };
        let Some(line) = line.or_else(too_long) else { return false };
        self.output.extend(line);
        self.output.push(b'\n');
        self.flush()
    }

    /// Sends what waits, as far as there is room. False if the client is gone.
    fn flush(&mut self) -> bool {
        let mut sent = 0;
        let lives = loop {
            let Some(rest) = self.output.get(sent..).filter(|rest| !rest.is_empty()) else {
                break true;
            };
            match self.stream.write(rest) {
                Ok(0) => break false,
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            }
        };
        self.output.drain(..sent);
        lives
    }
}
