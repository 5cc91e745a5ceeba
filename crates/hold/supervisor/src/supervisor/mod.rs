//! The supervisor: one event loop. What may wait for long (unmounting, clearing up after the dead,
//! watching the mount table) is in threads of its own. The loop itself waits in the places that
//! ARCHITECTURE.md lists, each with a limit.
//!
//! | module | answers |
//! | --- | --- |
//! | [`lifecycle`] | what is next in the life of the mount: all of that is decided there |
//! | [`life`] | how that is told what has happened, and its decisions are carried out |
//! | [`parts`] | the state of each part, which knows nothing of the others |
//! | [`launch`] | how a generation is started |
//! | [`child`], [`exec`] | its process: what it inherits, what it is told, and how it is started |
//! | [`standby`] | a process that is started before it is needed |
//! | [`watch`] | which process is the daemon, and what its end means |
//! | [`recovery`] | from the death of a generation to the end of its recovery |
//! | [`readonly`] | what is done when the op-log cannot be done again |
//! | [`patience`] | what is said of starts that fail, and are made again |
//! | [`program`] | which program a successor is, and whether it can be held |
//! | [`fence`] | what a dead generation may still do |
//! | [`quell`] | what is killed of it in the end |
//! | [`kill`] | signals to the daemon, and what is done when they are refused |
//! | [`undead`] | daemons that are dead while their process stays |
//! | [`takeover`] | how a new supervisor finds out where the old one was |
//! | [`reports`] | what is on record of a crash, and its report |
//! | [`ending`] | stop, clean end, giving up |
//! | [`serving`] | what is said when the mount serves first |
//! | [`second`] | other mounts of the same daemon |
//! | [`stray`], [`advice`] | starts that come to nothing, and what helps then |
//! | [`unmounting`] | `belay stop` |
//! | [`asked`] | what is asked at the control socket, and answered |
//! | [`buffer`] | what is different without an image |
//! | [`checkpoints`] | when to ask for one, and who is told |
//! | [`commits`] | what commits it, and whether that works |
//! | [`last_commit`] | what becomes of epochs at the end |
//! | [`nudge`] | daemons that are asleep where only a message of the kernel's wakes them |
//! | [`limits`] | hangs, memory, slow starts |
//! | [`progress`] | whether daemons come to answer anything |
//! | [`record`] | how much memory the recorder takes |
//! | [`time`] | what is due, and when |
//! | [`link`] | what comes from the keeper, and a new one if it dies |
//! | [`status`] | the status |
//!
//! Nothing here ever touches the file system that it holds, nor waits for the device: that would
//! be a deadlock as soon as the daemon is dead.

mod advice;
mod asked;
mod buffer;
mod checkpoints;
mod child;
mod commits;
mod ending;
mod exec;
mod fence;
mod finding;
mod kill;
mod last_commit;
mod launch;
mod life;
mod lifecycle;
mod limits;
mod link;
mod nudge;
mod opened;
mod parts;
mod patience;
mod program;
mod progress;
mod quell;
mod readonly;
mod record;
mod recovery;
mod reports;
mod second;
mod serving;
mod standby;
mod status;
mod stray;
mod takeover;
mod time;
mod undead;
mod unmounting;
mod watch;
mod words;

use crate::autopsy;
use crate::clock::{self, SECOND};
use crate::companions::Companions;
use crate::config::{Config, VERSION};
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::handover::{Descriptors, Link, Note, Received};
use crate::heartbeat;
use crate::inflight::Requests;
use crate::ledger::{Book, Mounts};
use crate::memfile;
use crate::mirror::Mirror;
use crate::mounts;
use crate::process::{Exit, Exited, reap};
use crate::role::{LACKS, become_subreaper, check_version};
use crate::waker::Waker;
use belay_recorder::Control;
use belay_sys::Mapping;
use lifecycle::{Event, Lifecycle, Limits};
use parts::clients::Clients;
use parts::daemon::Daemon;
use parts::deadlines::{Deadlines, Due};
use parts::desk::CommitDesk;
use parts::events::Events;
use parts::exits::Exits;
use parts::helpers::Helpers;
use parts::keeper::Keeper;
use parts::kept::Kept;
use parts::late::Late;
use parts::looks::Looks;
use parts::mail::Mail;
use parts::nudge::Nudge;
use parts::recorder::Recorder;
use parts::standby::Standby;
use parts::tokens::{COMMITTED, CONTROL, EVENT, FIRST_CLIENT, LINK, SIGNALS, STDERR};
use parts::unmounts::Unmounts;
use parts::words::Words;
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::SIGCHLD;

/// Runs the supervisor whose link is standard input, until the mount ends. Gives belay's exit code.
///
/// # Errors
/// If the link brings no descriptors, or one of them cannot be used.
pub fn run() -> Result<i32> {
    become_subreaper()?;
    let link = Link::from_stdin()?;
    let (Note::Hello { from, takeover, history, stops }, fds) = (match link.receive(true) {
        Received::WithDescriptors(note, fds) => (note, fds),
        // They have come, and found no room here.
        Received::Note(Note::Hello { .. }) => return Ok(LACKS),
        _ => return Err(no_keeper()),
    }) else {
        return Err(no_keeper());
    };
    // Daemons inherit the user's standard input; and the link must be held only once.
    rustix::stdio::dup2_stdin(&fds.stdin)
        .map_err(|e| Error::system("set", "standard input", e, ""))?;
    let mut supervisor = match Supervisor::new(fds, link, from) {
        Err(error) if error.passes() => {
            tracing::debug!("{error}; another supervisor tries again");
            return Ok(LACKS);
        }
        supervisor => supervisor?,
    };
    history.into_iter().for_each(|exited| supervisor.exits.add(exited));
    supervisor.begin(takeover, stops);
    Ok(supervisor.event_loop())
}

fn no_keeper() -> Error {
    Error::refused(
        "supervise",
        "no keeper is at standard input",
        "this command is for belay itself: use `belay run`",
    )
}

/// A supervisor. Its parts have their own state ([`parts`]); what must survive it is in `book`.
struct Supervisor {
    config: Config,
    /// The mount's folder in the state directory. Its path is for messages.
    folder: Folder,
    fds: Descriptors,
    recorder: Recorder,
    kept: Kept,
    book: Book,
    events: Events,
    keeper: Keeper,
    daemon: Daemon,
    standby: Standby,
    life: Lifecycle,
    exits: Exits,
    words: Words,
    clients: Clients,
    late: Late,
    /// Brings checkpoints to the image, under the policy `epoch`.
    desk: CommitDesk,
    helpers: Helpers,
    deadlines: Deadlines,
    looks: Looks,
    mail: Mail,
    unmounts: Unmounts,
    companions: Companions,
}

impl Supervisor {
    fn new(fds: Descriptors, link: Link, keeper_pid: u32) -> Result<Self> {
        let config: Config = memfile::to_value("belay-config", fds.config.as_fd())?;
        check_version(&config)?;
        config.mind_log();
        let limits = Limits {
            max_crashes: config.max_crashes,
            retry_for: config.retry_for_ms.saturating_mul(SECOND / 1000),
        };
        let recorder = Recorder::map(fds.recorder.as_fd())?;
        let ledger_file = belay_sys::dup_cloexec(fds.ledger.as_fd())
            .map_err(|e| Error::system("duplicate", "the ledger", e, ""))?;
        let (kept, book) = Kept::open(ledger_file);
        let book = match book {
            Some(book) => book,
            None => {
                // Also of a takeover: what is there may be the held mount, which is not new then.
                let mut others = mounts::fuse_devices()
                    .map_err(|e| Error::system("read", "the mount table", e, ""))?;
                // The ledger has room for no more. One that is not noted counts as new: less proof.
                others.truncate(4096);
                let mounts = Mounts::new(others);
                Book { version: VERSION, started_ns: clock::now(), mounts, ..Book::default() }
            }
        };
        let folder = belay_sys::dup_cloexec(fds.folder.as_fd())
            .map_err(|e| Error::system("duplicate", "the folder of this mount", e, ""))?;
        let folder = Folder::held(folder, config.instance.clone());
        let events = Events::new()?;
        let waker = Waker::start(events.counter())
            .map_err(|e| Error::system("start", "a thread", e, ""))?;
        let mirror = Mirror::start(keeper_pid, &folder, events.counter())
            .map_err(|e| Error::system("duplicate", "an event counter", e, ""))?;
        let mut supervisor = Self {
            config,
            folder,
            fds,
            recorder,
            kept,
            book,
            events,
            keeper: Keeper::new(link, keeper_pid),
            daemon: Daemon::default(),
            standby: Standby::default(),
            life: Lifecycle::new(limits),
            exits: Exits::default(),
            words: Words::default(),
            clients: Clients::default(),
            late: Late::default(),
            desk: CommitDesk::default(),
            helpers: Helpers::new(mirror, Nudge::new(waker)),
            deadlines: Deadlines::default(),
            looks: Looks::default(),
            mail: Mail::default(),
            unmounts: Unmounts::default(),
            companions: Companions::default(),
        };
        if let Ok(shim) = belay_sys::dup_cloexec(supervisor.fds.shim.as_fd()) {
            autopsy::open::know_shim(shim);
        }
        supervisor.adopt_device();
        let Self { events, fds, .. } = &supervisor;
        events.listen_to_daemon(&fds.event)?;
        events.listen(&fds.control, CONTROL)?;
        events.listen(&fds.stderr_read, STDERR)?;
        if let Some(link) = supervisor.keeper.link() {
            events.listen(link, LINK)?;
        }
        Ok(supervisor)
    }

    fn begin(&mut self, takeover: bool, stops: u32) {
        heartbeat::beat(&self.fds.ledger, false);
        let now = clock::now();
        self.deadlines.set(Due::Look, now);
        self.deadlines.set(Due::Tick, now + SECOND);
        self.live(Event::Begins);
        self.start_committer();
        match Companions::start(&self.config.companions, self.config.verbose) {
            Ok(companions) => self.companions = companions,
            Err(error) if error.passes() => {
                tracing::error!("{error}");
                self.live(Event::Ends { code: LACKS });
                return;
            }
            // Their folder is gone, or another. They end when nobody holds the mount.
            Err(error) => {
                self.give_up(&error.to_string());
                return;
            }
        }
        if self.has_epochs() {
            self.deadlines.set(Due::Checkpoint, now);
        }
        if takeover {
            self.take_over();
            self.limit_start();
        } else {
            self.launch();
        }
        if self.life.ended() == Some(LACKS) {
            return;
        }
        self.keeper.tell(&Note::Working);
        // Told to the supervisor before, which may have died of it.
        if stops > 0 && self.book.stop.is_none() {
            self.request_stop();
        }
    }

    fn control(&self) -> Control<'_, Mapping> {
        self.recorder.control()
    }

    fn requests(&self) -> Requests<'_> {
        Requests::new(self.fds.recorder.as_fd(), self.recorder.layout())
    }

    /// Writes the book down for the next supervisor.
    fn keep_book(&mut self) {
        self.kept.write(&self.book);
    }

    fn event_loop(&mut self) -> i32 {
        loop {
            heartbeat::beat(&self.fds.ledger, false);
            if let Some(code) = self.life.ended() {
                return code;
            }
            let limit = self.time_to_wait();
            let tokens = self.events.wait(&limit);
            // First what is told, and whether it is to end, which alone may wait for somebody; then
            // a death, before all that somebody asks for: the blackout is running.
            if tokens.contains(&EVENT) {
                self.hear_daemon();
            }
            if tokens.contains(&COMMITTED) {
                self.events.reset_counter();
                self.hear_committer();
                self.nudge_if_refused();
                self.hear_mirror();
                self.hear_of_opened();
            }
            if tokens.contains(&SIGNALS) {
                self.take_signals();
            }
            self.check_recorder();
            self.check_daemon();
            self.check_progress();
            self.check_standby();
            if tokens.contains(&LINK) {
                self.take_notes();
            }
            if tokens.contains(&STDERR) {
                self.hear_words();
            }
            if tokens.contains(&CONTROL) {
                self.accept_clients();
            }
            for token in tokens.iter().copied().filter(|token| *token >= FIRST_CLIENT) {
                self.serve_client(token);
            }
            if tokens.contains(&SIGNALS) {
                self.remember(reap());
            }
            self.check_time();
            self.answer_safe();
            // Last: the end of a recovery is what it may have waited for, and a line may have asked
            // to unmount. Who is answered here, and has asked for more, has the next turn.
            self.pursue_unmount();
        }
    }

    /// Looks at all that a daemon's event counter may stand for. What it was counted for is not
    /// said there, so an edge may stand for several events, or for none.
    fn hear_daemon(&mut self) {
        self.wake_committer();
        self.hear_committer();
        self.hear_losses();
        self.look_for_retiring(clock::now());
        self.nudge_if_asked();
    }

    fn take_signals(&mut self) {
        for signal in self.events.signals() {
            if signal != SIGCHLD {
                self.request_stop();
            }
        }
    }

    fn remember(&mut self, ended: impl IntoIterator<Item = Exited>) {
        for exited in ended {
            // Of what an earlier supervisor started, the keeper tells a little later.
            if let Some(crash) = &mut self.book.crash
                && crash.pid == exited.pid
                && crash.exit == Exit::Unknown
            {
                crash.exit = exited.exit;
                self.book.last_exit = Some(exited.exit);
            }
            self.exits.add(exited);
        }
    }

    fn device(&self) -> BorrowedFd<'_> {
        self.fds.device.as_fd()
    }
}
