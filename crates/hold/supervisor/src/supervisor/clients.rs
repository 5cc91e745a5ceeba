//! The control socket: clients ask, nobody waits for them.

use super::Supervisor;
use super::deadlines::Due;
use super::undead::defers;
use crate::clock;
use crate::ledger::Detection;
use crate::mounts;
use crate::process::signal_name;
use crate::protocol::{Answer, Ask, MAX_ANSWER, MAX_LINE, StopHow};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use signal_hook::consts::{SIGKILL, SIGSTOP};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Clients of one user at one time. One more takes the place of the one that has asked for nothing for longest, so that nobody
/// is kept from `belay stop` by those who only hold a connection.
const CLIENTS: usize = 64;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
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
pub(super) struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// What it has not taken yet of its answer: of one at most, as the next question waits for that.
    output: Vec<u8>,
    wait: Wait,
    user: u32,
}

impl Supervisor {
    pub(super) fn accept_clients(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(fd) = accept_with(&self.fds.control, flags) {
            // The state directory keeps others away; but it is the kernel that knows who asks.
            let own = rustix::process::geteuid();
            let user = match rustix::net::sockopt::socket_peercred(&fd) {
                Ok(peer) if peer.uid == own || peer.uid.is_root() => peer.uid.as_raw(),
                _ => continue, // closes it
            };
            self.make_room(user);
            let token = self.next_client;
            self.next_client += 1;
            // By edges: all is read and written at each of them, and a socket with room is no news.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(token), flags).is_ok() {
                let (stream, wait) = (UnixStream::from(fd), Wait::Nothing);
                let (input, output) = (Vec::new(), Vec::new());
                self.clients.insert(token, Client { stream, input, output, wait, user });
            }
        }
    }

    /// Closes connections of a user who has too many: the oldest that wait for nothing, else the oldest.
    fn make_room(&mut self, user: u32) {
        let of_user = || self.clients.iter().filter(|(_, client)| client.user == user);
        if of_user().count() < CLIENTS {
            return;
        }
        let idle = of_user().find(|(_, client)| client.is_idle());
        if let Some(token) = idle.or_else(|| of_user().next()).map(|(token, _)| *token) {
            self.clients.remove(&token);
        }
    }

    pub(super) fn serve_client(&mut self, token: u64) {
        let Some(mut client) = self.clients.remove(&token) else {
            return;
        };
        if !client.flush() {
            return;
        }
        let mut buffer = [0; 4096];
        loop {
            match client.stream.read(&mut buffer) {
                Ok(0) => return, // gone
                Ok(n) => client.input.extend(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
            if client.input.len() > MAX_LINE {
                return;
            }
        }
        // One question at a time: the rest waits until the answer is out.
        let mut stopping = false;
        while client.is_idle()
            && let Some(end) = client.input.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = client.input.drain(..=end).collect();
            let answer = match serde_json::from_slice::<Ask>(&line) {
                Ok(Ask::Stop { how: StopHow::Force }) => match self.refuses_to_stop() {
                    Some(why) => Some(Answer::Refused { why }),
                    None => {
                        stopping = true;
                        client.wait = Wait::End;
                        None
                    }
                },
                // One that is ending already is not made to end otherwise.
                Ok(Ask::Stop { how }) => {
                    let is_ending = self.book.stop.is_some();
                    client.wait = if is_ending { Wait::End } else { Wait::Unmount(how) };
                    None
                }
                Ok(ask) => self.answer(&ask, &mut client.wait),
                Err(error) => Some(Answer::Refused { why: format!("not understood: {error}") }),
            };
            if answer.is_some_and(|answer| !client.say(&answer)) {
                return;
            }
        }
        self.clients.insert(token, client);
        if stopping {
            self.request_stop();
        }
    }

    /// Serves all who are there or have come, whether or not that was announced.
    pub(super) fn serve_all_clients(&mut self) {
        self.accept_clients();
        for token in self.clients.keys().copied().collect::<Vec<_>>() {
            self.serve_client(token);
        }
    }

    /// Serves those who have asked again before they were answered, and are answered by now: nothing more may come of them.
    pub(super) fn serve_further_lines(&mut self) {
        let tokens = self.clients.iter().filter(|(_, client)| client.has_asked());
        for token in tokens.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.serve_client(token);
        }
    }

    /// Why the mount cannot be ended even by force: a dead one would be left below another.
    fn refuses_to_stop(&self) -> Option<String> {
        let mount = self.book.mount.as_ref().filter(|_| self.book.stop.is_none())?;
        mounts::covered(mount)
    }

    fn answer(&mut self, ask: &Ask, wait: &mut Wait) -> Option<Answer> {
        if *ask == Ask::Restart {
            self.try_new_program();
        }
        match ask {
            Ask::Status => return Some(Answer::Status(Box::new(self.status()))),
            Ask::Crash { signal } => {
                let signal_name = signal_name(*signal);
                self.strike(*signal, Detection::Requested { signal: signal_name })
            }
            Ask::Restart if self.hurry() => {
                // Of the daemon that is waited for the number is known already.
                *wait = Wait::Restart(self.book.generation.wrapping_sub(1));
                return None;
            }
            Ask::Restart => {
                self.await_quiet();
                self.strike(SIGKILL, Detection::Restart)
            }
            Ask::Checkpoint => {
                match self.ask_for_epoch() {
                    Ok(awaited) => *wait = awaited,
                    Err(why) => return Some(Answer::Refused { why }),
                }
                return None;
            }
            Ask::Serving => {
                *wait = Wait::Serving;
                let serving = self.serving();
                if serving.is_some() {
                    *wait = Wait::Nothing;
                }
                return serving;
            }
            Ask::Stop { .. } => Ok(()),
        }
        .map_or_else(
            |why| Some(Answer::Refused { why }),
            |()| {
                let generation = self.book.generation;
                *wait = match ask {
                    Ask::Restart => Wait::Restart(generation),
                    _ => Wait::Recovery(generation),
                };
                None
            },
        )
    }

    /// Sends a signal to the daemon on purpose.
    fn strike(&mut self, signal: i32, cause: Detection) -> Result<(), String> {
        if let Some(why) = self.why_it_stays() {
            return Err(why.to_owned());
        }
        let Some(daemon) = self.daemon.as_ref().filter(|_| self.complete) else {
            return Err("the daemon is not serving yet; try again".to_owned());
        };
        if signal == SIGSTOP && self.config.hang_timeout_ms.is_none() {
            return Err("a daemon that is stopped hangs, and nothing ends that: this mount was started without \
                        --hang-timeout; see `belay run --help`"
                .to_owned());
        }
        let pid = daemon.pid;
        self.signal_daemon(signal).map_err(|error| {
            let hint =
                if error == Errno::PERM { "; `belay status` says why, and what helps" } else { "" };
            format!("cannot send signal {signal} to process {pid}: {error}{hint}")
        })?;
        self.cause = Some((cause, clock::now()));
        match defers(pid, signal) {
            // What ends a daemon that hangs ends this one.
            Some(_) if self.config.hang_timeout_ms.is_some() => Ok(()),
            Some(why) => Err(format!("{} was sent to process {pid}: {why}", signal_name(signal))),
            None => Ok(()),
        }
    }

    /// A planned restart is kinder when nothing is in flight; but it does not wait for long.
    fn await_quiet(&self) {
        for _ in 0..20 {
            if self.requests().count() == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Tells those who wait for a recovery.
    pub(super) fn answer_recovered(&mut self, blackout_us: u64) {
        let generation = self.book.generation;
        self.answer_waiting(|wait| match wait {
            Wait::Recovery(beyond) | Wait::Restart(beyond) if generation > beyond => {
                Some(Answer::Recovered { generation, blackout_us })
            }
            _ => None,
        });
    }

    /// Whether somebody waits for something of that kind.
    pub(super) fn has_waiting(&self, kind: impl Fn(Wait) -> bool) -> bool {
        self.clients.values().any(|client| kind(client.wait))
    }

    /// Who waits for the mount to be taken off in this way, waits for the end now.
    pub(super) fn await_end(&mut self, how: StopHow) {
        for client in self.clients.values_mut().filter(|client| client.wait == Wait::Unmount(how)) {
            client.wait = Wait::End;
        }
    }

    /// Gives those who wait the answer that `answer` has for them, if any.
    pub(super) fn answer_waiting(&mut self, answer: impl Fn(Wait) -> Option<Answer>) {
        self.clients.retain(|_, client| {
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
        if self.clients.values().any(Client::has_asked) {
            self.deadlines.set(Due::Lines, 0);
        }
    }
}

impl Client {
    /// Whether it waits for nothing, and has its answers.
    fn is_idle(&self) -> bool {
        self.wait == Wait::Nothing && self.output.is_empty()
    }

    /// Whether it is answered, and has asked again.
    fn has_asked(&self) -> bool {
        self.is_idle() && self.input.contains(&b'\n')
    }

    /// Sends an answer, as much as fits into the socket now; the rest waits for its reader. False if the client is gone.
    fn say(&mut self, answer: &Answer) -> bool {
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
