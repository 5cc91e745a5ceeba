//! What clients ask at the control socket, and what they are answered.

use super::Supervisor;
use super::parts::clients::Wait;
use super::parts::deadlines::Due;
use crate::clock;
use crate::detection::Detection;
use crate::mounts;
use crate::process::signal_name;
use crate::protocol::{Answer, Ask, StopHow};
use crate::signals::defers;
use rustix::io::Errno;
use signal_hook::consts::{SIGKILL, SIGSTOP};
use std::thread;
use std::time::Duration;

impl Supervisor {
    pub(super) fn accept_clients(&mut self) {
        self.clients.accept(&self.fds.control, self.events.set());
    }

    pub(super) fn serve_client(&mut self, token: u64) {
        let Some(mut client) = self.clients.take(token) else {
            return;
        };
        if !client.hear() {
            return;
        }
        let mut stopping = false;
        while let Some(line) = client.next_line() {
            let answer = match serde_json::from_slice::<Ask>(&line) {
                Ok(Ask::Stop { how: StopHow::Force }) => match self.refuses_to_stop() {
                    Some(why) => Some(Answer::Refused { why }),
                    None => {
                        stopping = true;
                        *client.wait() = Wait::End;
                        None
                    }
                },
                // One that is ending already is not made to end otherwise.
                Ok(Ask::Stop { how }) => {
                    let is_ending = self.book.stop.is_some();
                    *client.wait() = if is_ending { Wait::End } else { Wait::Unmount(how) };
                    None
                }
                Ok(ask) => self.answer(&ask, client.wait()),
                Err(error) => Some(Answer::Refused { why: format!("not understood: {error}") }),
            };
            if answer.is_some_and(|answer| !client.say(&answer)) {
                return;
            }
        }
        self.clients.put_back(token, client);
        if stopping && self.life.ended().is_some() {
            self.companions.kill();
        } else if stopping {
            self.request_stop();
        }
    }

    /// Serves all who are there or have come, whether or not that was announced.
    pub(super) fn serve_all_clients(&mut self) {
        self.accept_clients();
        for token in self.clients.tokens() {
            self.serve_client(token);
        }
    }

    /// Serves those who have asked again before they were answered, and are answered by now:
    /// nothing more may come of them.
    pub(super) fn serve_further_lines(&mut self) {
        for token in self.clients.with_further_lines() {
            self.serve_client(token);
        }
    }

    /// Why the mount cannot be ended even by force: a dead one would be left below another.
    fn refuses_to_stop(&self) -> Option<String> {
        let mount = self.book.mounts.held.as_ref().filter(|_| self.book.stop.is_none())?;
        mounts::covered(mount)
    }

    fn answer(&mut self, ask: &Ask, wait: &mut Wait) -> Option<Answer> {
        if *ask == Ask::Restart {
            // Who asks for a new process gets none that was started before, with older libraries,
            // limits or mounts.
            self.let_standby_go();
            self.try_new_program();
        }
        match ask {
            Ask::Status => return Some(Answer::Status(Box::new(self.status()))),
            Ask::Crash { signal } => {
                let signal_name = signal_name(*signal);
                self.strike(*signal, Detection::Requested { signal: signal_name })
            }
            // A try that is under way by itself is as good as one that is made for the asking.
            Ask::Restart if self.hurry() || self.is_trying_again() => {
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
        let Some(daemon) = self.daemon.holder().filter(|_| self.life.serves()) else {
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
        self.daemon.is_to_die(cause, clock::now());
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

    /// Gives those who wait the answer that `answer` has for them, if any.
    pub(super) fn answer_waiting(&mut self, answer: impl Fn(Wait) -> Option<Answer>) {
        self.clients.answer(answer);
        if !self.clients.with_further_lines().is_empty() {
            self.deadlines.set(Due::Lines, 0);
        }
    }
}
