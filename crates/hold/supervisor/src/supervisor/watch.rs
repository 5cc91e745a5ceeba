//! Which process is the daemon, and what its end means.

use super::Supervisor;
use super::parts::tokens::PROCESS;
use crate::clock;
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::fusermount;
use crate::handover::{Note, Received};
use crate::ledger::Known;
use crate::mounts;
use crate::process::{
    Exit, Watched, await_dying, descendants, end_of, ended_child, fact, is_over, maps_file, started,
};
use crate::scout::Sent;
use crate::verdict::{Evidence, Verdict, decide};
use belay_recorder::control::{Flags, InitState};
use belay_sys::mailbox::has_mail;
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::thread;
use std::time::Duration;

/// How long a daemon may take from the exit of its first process to the first look at the device
/// by the one that went into the background.
const BACKGROUND: u64 = 5 * SECOND;
/// Why a mount is given up of which nothing is known any more.
pub(super) const DESTROYED: &str =
    "the daemon destroyed the recorder, so nothing is known of the mount";
/// How long fusermount may take to mount.
const HELPER: u64 = 5 * SECOND;

impl Supervisor {
    /// Gives the mount up if a daemon has taken away the memory that all is in.
    pub(super) fn check_recorder(&mut self) {
        if belay_sys::is_lost() && self.life.ended().is_none() {
            self.give_up(DESTROYED);
        }
    }

    /// Looks whether the daemon has ended, and acts on it.
    pub(super) fn check_daemon(&mut self) {
        if self.life.ended().is_some() || self.is_to_launch() {
            return;
        }
        if let Some(lost) = self.follow_lease() {
            if self.refuses_namespace(lost) {
                return;
            }
            if let Some(lost) = self.end_usurped(lost) {
                self.ended(lost);
            }
            return;
        }
        let watched = self.process();
        if let Some(pid) = watched.filter(|watched| watched.is_dead()).map(|watched| watched.pid) {
            self.ended(pid);
        }
    }

    /// The lease names `lost`, and a process that has the recorder in memory has that number where
    /// belay does not see it: in a PID namespace of its own. It cannot be held, and another start
    /// would end the same.
    fn refuses_namespace(&mut self, lost: u32) -> bool {
        let belay = self.keeper.belay();
        let is_it = |pid: &u32| {
            let numbers = fact(*pid, "NSpid:").unwrap_or_default();
            let numbers = numbers.split_ascii_whitespace().skip(1);
            numbers.last().and_then(|last| last.parse().ok()) == Some(lost)
                && maps_file(*pid, self.fds.recorder.as_fd()).unwrap_or(false)
        };
        let below = descendants(&belay, &belay);
        let Some(pid) = below.into_iter().find(is_it) else { return false };
        let why = format!(
            "process {pid} serves in a PID namespace of its own, where belay cannot tell which process it is, so it cannot be \
             held: start the daemon without one (unshare --pid and the like)"
        );
        Self::kill_all(&Watched::open(pid).into_iter().collect::<Vec<_>>());
        self.refuse_daemon(&why);
        true
    }

    /// The lease names `lost`, which may not have it. If that is a living process, the daemon has
    /// written it there: it is ended as one gone mad. Gives the process whose end it is; `None` if
    /// it cannot be ended, and the mount is given up.
    fn end_usurped(&mut self, lost: u32) -> Option<u32> {
        let Some(process) = self.process() else {
            return Some(lost);
        };
        if Watched::open(lost).is_none_or(|other| other.is_dead()) {
            return Some(lost);
        }
        let pid = process.pid;
        let why = format!(
            "process {lost} has taken the place of daemon {pid}, of which belay cannot see that it is this daemon's"
        );
        if !self.kill_daemon() {
            self.give_up(&why);
            return None;
        }
        tracing::warn!("daemon {pid} is ended: {why}");
        if let Some(process) = self.process() {
            process.wait_end(Duration::from_secs(2));
        }
        Some(pid)
    }

    /// Watches the process that holds the lease now. Gives its id if it is dead already.
    pub(super) fn follow_lease(&mut self) -> Option<u32> {
        let lease = self.control().lease();
        if lease.generation != self.book.generation || lease.pid == 0 {
            return None;
        }
        if self.daemon.holder().is_some_and(|daemon| daemon.pid == lease.pid) {
            return None;
        }
        if self.daemon.started().is_some_and(|started| started.pid == lease.pid) {
            self.daemon.takes_lease();
            return None;
        }
        // A daemon that went into the background: its child holds the lease now.
        let watched = match Watched::find(lease.pid) {
            Ok(Some(watched)) => watched,
            Ok(None) => return Some(lease.pid),
            // It lives; what comes next has another look.
            Err(error) => {
                tracing::warn!("cannot watch process {}: {error}", lease.pid);
                return None;
            }
        };
        let known = match self.may_serve(&watched) {
            Ok(Some(known)) => known,
            Ok(None) => return Some(lease.pid),
            Err(error) => {
                tracing::warn!("cannot look at process {}: {error}", lease.pid);
                return None;
            }
        };
        if let Err(error) = self.events.listen(&watched, PROCESS) {
            tracing::warn!("{error}");
        }
        self.daemon.is_held_by(watched);
        self.book.background = Some(known);
        self.keep_book();
        None
    }

    /// Whether that process may hold the lease, which the daemon can write: if it lives and has the
    /// recorder in memory, and is what was started for this generation, or descends from belay and
    /// is no older than that. So belay never takes itself for the daemon, nor anybody whom a daemon
    /// has made map its memory.
    ///
    /// # Errors
    /// If that cannot be seen now.
    pub(super) fn may_serve(&self, process: &Watched) -> io::Result<Option<Known>> {
        let pid = process.pid;
        let belay = self.keeper.belay();
        let mut except = belay.to_vec();
        except.extend(&self.config.bystanders);
        except.extend(self.companions.processes());
        let is_below = || descendants(&belay, &except).contains(&pid);
        let begin = self.book.life.process_started;
        let spawned = self.book.spawned.map(|pid| Known { pid, started: begin });
        let background = self.book.background;
        let known = match started(pid) {
            Ok(None) => return Ok(None),
            Ok(Some(started)) => Known { pid, started },
            // Of what is below belay, the number says enough. It may be in an exec, and wait there
            // for this very mount.
            Err(error) => {
                let mut recorded = [spawned, background].into_iter().flatten();
                recorded.find(|known| known.pid == pid && is_below()).ok_or(error)?
            }
        };
        // What has lost both keeper and supervisor is below neither of the next.
        let is_recorded = [spawned, background].contains(&Some(known));
        let ours =
            !except.contains(&pid) && (is_recorded || (known.started >= begin && is_below()));
        // Where that cannot be seen now, it is enough who it is.
        let maps = || maps_file(pid, self.fds.recorder.as_fd()).unwrap_or(is_recorded);
        let serves = ours && maps() && !process.is_dead();
        Ok(serves.then_some(known))
    }

    /// Process `pid` of this generation has ended.
    pub(super) fn ended(&mut self, pid: u32) {
        self.ended_at(pid, clock::now());
    }

    /// The same of one that has been dead since `died_ns`.
    pub(super) fn ended_at(&mut self, pid: u32, died_ns: u64) {
        // What its last thread reads from the device now must be asked for again after that.
        await_dying(pid, Duration::from_secs(2));
        self.conclude();
        let exit = self.exit_of(pid);
        if exit == Exit::Code(0) && self.passes_lease_on(pid) {
            return;
        }
        self.await_helper(pid);
        self.find_mount();
        let control = self.control();
        let evidence = Evidence {
            exit,
            mounted: self.book.mounts.held.is_some() || control.has(Flags::MOUNTED),
            disconnected: mounts::is_disconnected(self.device()),
            served: matches!(control.init_state(), InitState::Replying | InitState::Done),
            noted: control.ending(self.book.generation),
            ends_itself: self.config.ends_itself,
            stopping: self.book.stop.is_some(),
        };
        let verdict = decide(evidence);
        if verdict == Verdict::Crash {
            // What belay has killed dies of that, however long it takes.
            let is_killed = self.is_being_killed();
            let cause = self.daemon.cause().cloned();
            let fresh =
                cause.filter(|(_, at)| is_killed || died_ns.saturating_sub(*at) < 2 * SECOND);
            let violation = self.control().violation(self.book.generation);
            let ended = self.ended_for_checkpoint(exit);
            let detection = match (fresh, violation) {
                (_, Some(text)) => Detection::violation(&text),
                _ if ended => Detection::Checkpoint,
                (Some((detection, _)), None) => detection,
                (None, None) if evidence.gave_up() => Detection::GaveUp,
                (None, None) => Detection::Death,
            };
            self.crashed(pid, exit, detection, died_ns);
            return;
        }
        let exit = self.await_exit_of(pid, exit);
        self.ended_and_stored(exit);
        if self.start_once_more(pid, exit, died_ns) {
            return;
        }
        self.book.last_exit = Some(exit);
        self.daemon.is_gone();
        // Again, now that it is known how it ended.
        match decide(Evidence { exit, ..evidence }) {
            Verdict::NeverMounted { code, explain } => self.came_to_nothing(exit, code, explain),
            Verdict::Clean { code } => {
                if code != 0 && !evidence.served && !evidence.stopping {
                    self.served_nobody(exit);
                }
                self.finish(code);
            }
            Verdict::Crash => {}
        }
    }

    fn exit_of(&mut self, pid: u32) -> Exit {
        // Only looked at: the event loop takes the status when the successor is on its way.
        if let Some(exit) = ended_child(pid) {
            return exit;
        }
        self.exits.take(pid).or_else(|| end_of(pid)).unwrap_or(Exit::Unknown)
    }

    /// The keeper reaps what an earlier supervisor started, and tells.
    pub(super) fn await_exit_of(&mut self, pid: u32, known: Exit) -> Exit {
        if known != Exit::Unknown {
            return known;
        }
        let end = clock::now() + SECOND / 5;
        while clock::now() < end {
            match self.keeper.await_note(Duration::from_millis(20)) {
                Received::Note(Note::Exited(exited)) => self.remember([exited]),
                Received::Closed => break,
                _ => {}
            }
            let exit = self.exit_of(pid);
            if exit != Exit::Unknown {
                return exit;
            }
        }
        Exit::Unknown
    }

    /// A daemon goes into the background by a fork after which the parent exits with 0. The lease
    /// goes to the child at its first look at the device, which may come later than that exit.
    fn passes_lease_on(&mut self, pid: u32) -> bool {
        let end = clock::now() + BACKGROUND;
        while clock::now() < end {
            let lease = self.control().lease();
            if lease.generation == self.book.generation && lease.pid != pid && lease.pid != 0 {
                return self.follow_lease().is_none();
            }
            let unmounted =
                self.book.mounts.held.is_some() && mounts::is_disconnected(self.device());
            if unmounted || !self.has_other_process(pid) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Whether a process other than `pid` lives that could serve: it has the recorder in memory.
    fn has_other_process(&self, pid: u32) -> bool {
        let me = std::process::id();
        let mut except = vec![me, self.keeper.pid(), pid];
        except.extend(self.standby.pid());
        let others = descendants(&[me], &except);
        others.into_iter().any(|other| {
            // What cannot be seen now may be.
            maps_file(other, self.fds.recorder.as_fd()).unwrap_or(true)
                && Watched::open(other).is_some_and(|watched| !watched.is_dead() && !is_over(other))
        })
    }

    /// Takes over the device that fusermount has made, if it has and that is not done yet.
    pub(super) fn adopt_device(&mut self) {
        // A daemon can put a device of somebody else's into the mailbox at any time. So one that is
        // mounted, or was, is never exchanged: after an unmount as little as before.
        if self.mail.is_adopted()
            || self.mail.is_odd()
            || mounts::was_mounted(self.device())
            || !has_mail(self.fds.mail.as_fd())
        {
            return;
        }
        // The daemon may have put anything there.
        match self.helpers.scouts.device(self.fds.mail.as_fd()) {
            Sent::Back(Some(device)) if self.may_adopt(device.as_fd()) => {
                tracing::debug!("the device came from fusermount");
                self.fds.device = device;
                self.mail.adopt();
            }
            // What came first stays.
            Sent::Back(_) => self.mail.note_odd(),
            Sent::Away => {}
            Sent::Not(error) => tracing::debug!("nobody to look into the mailbox: {error}"),
        }
    }

    /// Whether `device` can be that of the held mount. A new supervisor finds it in the mailbox
    /// once more, where a daemon may have exchanged it; but then the mount is known, and by most
    /// kernels what a device serves.
    fn may_adopt(&self, device: BorrowedFd<'_>) -> bool {
        let known = self.book.mounts.held.as_ref().filter(|mount| mount.proven);
        let serves = mounts::connection(device);
        let is_another = known.zip(serves).is_some_and(|(mount, serves)| mount.device != serves);
        if is_another {
            tracing::warn!(
                "a daemon has put the device of another mount into the mailbox: it is left there"
            );
        }
        !is_another
    }

    /// A successor looks into the mailbox as well. One in which a daemon has left what is no device
    /// is exchanged for an empty one.
    pub(super) fn tidy_mailbox(&mut self) {
        let mounted = !mounts::is_disconnected(self.device());
        let needed = self.mail.is_adopted() || self.book.generation == 0;
        if needed || !has_mail(self.fds.mail.as_fd()) || !(mounted || self.mail.is_odd()) {
            return;
        }
        match fusermount::mailbox() {
            Ok((post, mail)) => {
                (self.fds.post, self.fds.mail) = (post, mail);
                self.mail.is_exchanged();
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// The first daemon has died, but fusermount may still be mounting for it: what it mounts is
    /// held, and must not be forgotten.
    fn await_helper(&mut self, pid: u32) {
        if self.book.generation > 0
            || self.mail.is_adopted()
            || self.control().init_state() != InitState::None
        {
            return;
        }
        let begin = clock::now();
        let belay = self.keeper.belay();
        // Twice in a row, as a process is neither for the instant in which it becomes fusermount.
        let mut absent = 0;
        while absent < 2 && !self.mail.is_adopted() {
            let waited = clock::now().saturating_sub(begin);
            let helps = waited < HELPER && !fusermount::helpers(&belay).is_empty();
            // A child of the dead daemon that is about to become fusermount has its memory still.
            let may_help = waited < SECOND && self.has_other_process(pid);
            absent = if helps || may_help { 0 } else { absent + 1 };
            thread::sleep(Duration::from_millis(1));
            self.adopt_device();
        }
    }
}
