//! The end of a dead daemon's connections.

use super::Held;
use super::sftp::{self, Barrier};
use crate::process::Watched;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::net::{AddressFamily, RecvFlags, Shutdown, recv, shutdown, sockopt};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// How long processes may take to end by themselves that nothing is being said to any more.
const PATIENCE: Duration = Duration::from_millis(200);
/// A connection whose protocol belay does not know is taken to be at rest when its other end has
/// said nothing for so long.
const REST: Duration = Duration::from_millis(100);
/// How long a connection may be silent that an answer is known to be due on. What the daemon had
/// acknowledged is lost if it is given up, and a successor could hardly do better on such a line.
const SILENCE: Duration = Duration::from_secs(10);
/// How long finishing may take at the most. The shim waits a little longer (its `FENCE_LIMIT`).
const LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked at what no descriptor tells.
const LOOK: Duration = Duration::from_millis(20);

/// How far a connection is.
#[derive(Debug)]
enum Stage {
    /// The other end may still have work.
    Working,
    /// The same, and its end is known by the answer to come.
    Awaiting(Barrier),
    /// The other end has nothing left to do, and was not told yet that nothing more comes.
    Settled,
    /// It was told.
    Closing,
}

#[derive(Debug)]
struct Ending {
    connection: Held,
    stage: Stage,
    /// When something last came from it.
    heard: Instant,
}

/// A dead daemon's connections and the processes that it left behind, on their way out.
#[derive(Debug)]
pub struct Finishing {
    open: Vec<Ending>,
    rest: Vec<Watched>,
    /// Those of `rest` that do nothing but pass on what comes through a connection.
    carriers: Vec<u32>,
    begin: Instant,
    /// A connection came to its end before its protocol, or its silence, told that nothing was
    /// under way any more.
    cut: bool,
}

impl Finishing {
    /// `missed` if there were others that are not among `connections`.
    pub(super) fn begin(connections: Vec<Held>, rest: Vec<Watched>, missed: bool) -> Self {
        let begin = Instant::now();
        let carriers = rest.iter().filter(|process| sftp::is_spoken_by(process));
        Self {
            open: connections.into_iter().map(|one| Ending::begin(one, begin)).collect(),
            carriers: carriers.map(|process| process.pid).collect(),
            rest,
            begin,
            cut: missed,
        }
    }

    /// Waits until nothing of what the daemon had begun can have an effect any more: its
    /// connections have nothing left to do, and the processes that it left behind are gone. Gives
    /// the ids of those that had to be killed. Takes up to a minute, as long as there is progress.
    pub fn settle(&mut self) -> Vec<u32> {
        let killed = self.run(|stage| matches!(stage, Stage::Settled), true);
        self.cut |= self.open.iter().any(Ending::is_under_way);
        killed
    }

    /// Whether a connection broke, or had to be given up, while something may have been under way
    /// on it.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Those that do nothing but pass on what comes through a connection. They live on when all is
    /// settled.
    pub fn carriers(&self) -> &[u32] {
        &self.carriers
    }

    /// Closes what is settled and waits for the end of everything. Gives the ids of the killed.
    pub fn end(mut self) -> Vec<u32> {
        self.begin = Instant::now();
        self.open.iter_mut().for_each(Ending::close);
        self.run(|_| false, false)
    }

    /// Goes on until all connections are at their end or where `is_enough` says so, and the
    /// processes are gone, but for carriers if `spare_carriers`.
    fn run(&mut self, is_enough: fn(&Stage) -> bool, spare_carriers: bool) -> Vec<u32> {
        let speaks_sftp = !self.carriers.is_empty();
        let mut progress = Instant::now();
        loop {
            let alive: Vec<&Watched> = self
                .rest
                .iter()
                .filter(|process| !spare_carriers || !self.carriers.contains(&process.pid))
                .filter(|process| !process.is_dead())
                .collect();
            let open = self.count_open(is_enough);
            if alive.is_empty() && open == 0 {
                return Vec::new();
            }
            let all_gone = self.rest.iter().all(Watched::is_dead);
            if all_gone && !self.rest.is_empty() && progress.elapsed() > PATIENCE {
                // Whoever was at the other ends is gone.
                return Vec::new();
            }
            let patience = if open == 0 { PATIENCE } else { SILENCE };
            if self.begin.elapsed() > LIMIT || progress.elapsed() > patience {
                return kill(self.rest.iter());
            }
            wait(&alive, &self.open);
            let before = (alive.len(), open);
            let (mut heard, mut cut) = (false, false);
            self.open.retain_mut(|ending| {
                let goes_on = ending.drain(&mut heard);
                cut |= !goes_on && ending.is_under_way();
                ending.advance(speaks_sftp);
                goes_on
            });
            let alive = alive.iter().filter(|process| !process.is_dead()).count();
            self.cut |= cut;
            let open = self.count_open(is_enough);
            if heard || before != (alive, open) {
                progress = Instant::now();
            }
        }
    }

    /// How many connections are not yet where `is_enough` wants them.
    fn count_open(&self, is_enough: fn(&Stage) -> bool) -> usize {
        self.open.iter().filter(|ending| !is_enough(&ending.stage)).count()
    }
}

impl Ending {
    fn begin(connection: Held, now: Instant) -> Self {
        // A pipe is read only: its writer ends by itself, on the end of its own input.
        let stage = if is_socket(&connection) { Stage::Working } else { Stage::Closing };
        Self { connection, stage, heard: now }
    }

    fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Working | Stage::Awaiting(_))
    }

    /// Goes on to the next stage if it is time.
    fn advance(&mut self, speaks_sftp: bool) {
        if !matches!(self.stage, Stage::Working) {
            return;
        }
        if speaks_sftp && is_pair(&self.connection) {
            if let Some(barrier) = Barrier::send(&self.connection) {
                self.stage = Stage::Awaiting(barrier);
            } else if self.heard.elapsed() > SILENCE {
                self.close();
            }
        } else if self.heard.elapsed() > REST {
            self.close();
        }
    }

    fn close(&mut self) {
        if matches!(self.stage, Stage::Closing) {
            return;
        }
        // One that is broken already needs no end.
        let _ = shutdown(&self.connection, Shutdown::Write);
        self.stage = Stage::Closing;
    }

    /// Takes what has come and throws it away. `false` at the connection's end.
    fn drain(&mut self, heard: &mut bool) -> bool {
        let mut scrap = [0_u8; 65_536];
        loop {
            let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            if !matches!(poll(&mut fds, Some(&none)), Ok(1)) {
                return true;
            }
            let got = match take(&self.connection, &mut scrap) {
                Ok(0) => return false,
                Ok(got) => scrap.get(..got).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            };
            *heard = true;
            self.heard = Instant::now();
            if let Stage::Awaiting(barrier) = &mut self.stage
                && barrier.answered_by(got)
            {
                self.stage = Stage::Settled;
            }
        }
    }
}

/// Reads what is there, and never waits: others may have the description, and take what was there,
/// or have it wait.
fn take(connection: &OwnedFd, scrap: &mut [u8]) -> Result<usize, Errno> {
    if is_socket(connection) {
        return recv(connection, scrap, RecvFlags::DONTWAIT).map(|(got, _)| got);
    }
    let here = u64::MAX; // no offset: a pipe has none
    match preadv2(connection, &mut [IoSliceMut::new(scrap)], here, ReadWriteFlags::NOWAIT) {
        // Kernels before 5.5 cannot do so.
        Err(Errno::OPNOTSUPP) => rustix::io::read(connection, scrap),
        result => result,
    }
}

fn is_socket(connection: &OwnedFd) -> bool {
    sockopt::socket_domain(connection).is_ok()
}

fn is_pair(connection: &OwnedFd) -> bool {
    sockopt::socket_domain(connection) == Ok(AddressFamily::UNIX)
}

fn wait(alive: &[&Watched], open: &[Ending]) {
    let mut fds: Vec<PollFd<'_>> = alive
        .iter()
        .map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN))
        .chain(open.iter().map(|ending| PollFd::new(&ending.connection, PollFlags::IN)))
        .collect();
    let look = Timespec::try_from(LOOK).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
    let _ = poll(&mut fds, Some(&look));
}

/// Ends processes at once. Gives the ids of those it had to kill.
pub(super) fn kill<'a>(processes: impl Iterator<Item = &'a Watched>) -> Vec<u32> {
    let mut killed = Vec::new();
    for process in processes.filter(|process| !process.is_dead()) {
        tracing::debug!("process {} of the dead daemon lives on: killing it", process.pid);
        match process.signal(9) {
            Ok(()) => killed.push(process),
            Err(error) => tracing::warn!(
                "process {} of the dead daemon may still have effects, as belay cannot end it ({error}): end it yourself",
                process.pid
            ),
        }
    }
    // What was not killed does not end by itself.
    for process in &killed {
        process.wait_end(Duration::from_secs(1));
    }
    killed.into_iter().map(|process| process.pid).collect()
}
