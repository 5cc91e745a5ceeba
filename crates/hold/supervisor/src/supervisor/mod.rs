//! The supervisor: one event loop, no waiting for anybody. What has to wait (unmounting, clearing up after the dead,
//! watching the mount table) is in threads of its own.
//!
//! | module | answers |
//! | --- | --- |
//! | [`lifecycle`] | what is next in the life of the mount: all of that is decided there |
//! | [`life`] | how that is told what has happened, and its decisions are carried out |
//! | [`launch`] | how a generation is started |
//! | [`watch`] | which process is the daemon, and what its end means |
//! | [`recovery`] | from the death of a generation to the end of its recovery |
//! | [`readonly`] | what is done when the op-log cannot be done again |
//! | [`patience`] | what is said of starts that fail, and are made again |
//! | [`daemon`] | which process was started, or holds the lease |
//! | [`program`] | which program a successor is, and whether it can be held |
//! | [`fence`] | what a dead generation may still do |
//! | [`quell`] | what is killed of it in the end |
//! | [`kill`] | signals to the daemon, and what is done when they are refused |
//! | [`undead`] | daemons that are dead while their process stays |
//! | [`deadlines`] | when something is done without being told |
//! | [`takeover`] | how a new supervisor finds out where the old one was |
//! | [`ending`] | stop, clean end, giving up |
//! | [`serving`] | what is said when the mount serves first |
//! | [`second`] | other mounts of the same daemon |
//! | [`stray`] | starts that come to nothing |
//! | [`advice`] | what helps then |
//! | [`unmounting`] | `belay stop` |
//! | [`clients`] | who is at the control socket, and waits for what |
//! | [`asked`] | what they ask, and are answered |
//! | [`buffer`] | what is different without an image |
//! | [`checkpoints`] | when to ask for one, and who is told |
//! | [`commits`] | what commits it, and whether that works |
//! | [`desk`] | what is known of both |
//! | [`last_commit`] | what becomes of epochs at the end |
//! | [`nudge`] | daemons that are asleep where only a message of the kernel's wakes them |
//! | [`limits`] | hangs, memory, slow starts |
//! | [`progress`] | whether daemons come to answer anything |
//! | [`record`] | how much memory the recorder takes |
//! | [`exits`] | how processes have ended |
//! | [`link`] | what comes from the keeper, and a new one if it dies |
//! | [`facts`] | the status |
//!
//! Nothing here ever touches the file system that it holds, nor waits for the device: that would
//! be a deadlock as soon as the daemon is dead.

mod advice;
mod asked;
pub mod buffer;
mod checkpoints;
mod clients;
mod commits;
mod daemon;
mod deadlines;
mod desk;
mod ending;
mod exits;
mod facts;
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
mod patience;
mod program;
mod progress;
mod quell;
mod readonly;
mod record;
mod recovery;
mod second;
mod serving;
mod stray;
mod takeover;
mod undead;
mod unmounting;
mod watch;
mod words;

pub(crate) use record::SLACK;
pub use undead::defers;

use crate::autopsy::{self, later::Backtraces};
use crate::blackout::Blackouts;
use crate::clock;
use crate::config::{Config, VERSION};
use crate::connections::Connections;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::handover::{Descriptors, Link, Note, Received};
use crate::inflight::{Ages, Requests};
use crate::keeper::{LACKS, become_subreaper, check_version};
use crate::ledger::{Book, Detection, Ledger};
use crate::memfile;
use crate::mirror::Mirror;
use crate::mounts;
use crate::outsiders::Outsiders;
use crate::process::{Exit, Exited, reap};
use crate::scout::Scouts;
use crate::signals::Signals;
use crate::stderr::Tail;
use crate::waker::Waker;
use belay_recorder::{Capacity, Control, Layout};
use belay_sys::Mapping;
use daemon::Daemon;
use deadlines::{Deadlines, Due};
use lifecycle::{Event, Lifecycle, Limits};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use signal_hook::consts::SIGCHLD;
use std::io::ErrorKind;
use std::sync::Arc;

const SIGNALS: u64 = 1;
const EVENT: u64 = 2;
const CONTROL: u64 = 3;
const STDERR: u64 = 4;
const LINK: u64 = 5;
const PROCESS: u64 = 6;
const COMMITTED: u64 = 7;
const FIRST_CLIENT: u64 = 100;

const SECOND: u64 = 1_000_000_000;

/// Runs the supervisor whose link is at standard input, to the end of the mount. Gives belay's
/// exit code.
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

/// The state of a supervisor. What must survive it is in `book`.
struct Supervisor {
    config: Config,
    /// The mount's folder in the state directory. Its path is for messages.
    folder: Folder,
    fds: Descriptors,
    memory: Arc<Mapping>,
    layout: Layout,
    ledger: Ledger,
    book: Book,
    blackouts: Blackouts,
    epoll: OwnedFd,
    signals: Signals,
    keeper: link::Keeper,
    daemon: Daemon,
    life: Lifecycle,
    exits: exits::Exits,
    tail: Tail,
    clients: clients::Clients,
    /// The daemon's connections, held beside it.
    connections: Connections,
    fencing: Option<fence::Fencing>,
    /// Brings checkpoints to the image, under the policy `epoch`.
    desk: desk::CommitDesk,
    /// Asks the mount for something, so that a daemon wakes.
    nudge: nudge::Nudge,
    /// The committer counts here what it has done, the waker what was refused, the mirror what it cannot do, and who looks elsewhere
    /// that it is back. Not the daemon's counter: who shares one can fill it, or make it wait.
    committed: OwnedFd,
    waker: Waker,
    /// The folders of what the daemon stores to, under the policy `buffer`.
    stores: buffer::Folders,
    /// Does the host's unmounts and remounts again in the successors' namespaces.
    mirror: Mirror,
    /// Some life of this daemon had connections.
    connects: bool,
    deadlines: Deadlines,
    /// Whether another program has mounted while the first daemon starts.
    finding: finding::Looks,
    stray: stray::Looks,
    /// Looks at what a daemon has open of which nobody has said what it works on.
    opened: opened::Looks,
    /// Why the daemon is about to die, and when that was caused.
    cause: Option<(Detection, u64)>,
    /// The device came from fusermount, and is held.
    adopted: bool,
    /// What came into its mailbox first is no device.
    odd_mail: bool,
    /// How often it was looked in this life which other mounts the daemon has.
    second_looks: u32,
    /// Go where one may have to wait for ever.
    scouts: Arc<Scouts>,
    ages: Ages,
    backtraces: Backtraces,
    outsiders: Outsiders,
    /// Since when nobody has read the device though there was something, and the counter of
    /// requests then.
    unread: Option<(u64, u64)>,
    /// Since when the daemon has had a request that nobody knows of, and the counters of what it was given then.
    unknown: Option<(u64, (u64, u64))>,
    /// The pause before the next look at the recorder.
    record_pause: u64,
    process_looks: undead::Looks,
    words: words::Words,
    unmounting: Option<unmounting::Unmounting>,
    /// Since when no thread can be had to unmount by.
    lacking_since: Option<u64>,
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
        let layout = Layout::new(Capacity::MOUNT);
        // One that is too short was made so by a daemon. What is found then is no recorder, and the mount is given up.
        let memory = match Mapping::new(fds.recorder.as_fd(), layout.bytes()) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => Mapping::blank(layout.bytes()),
            result => result,
        };
        let memory = memory.map_err(|e| Error::system("map", "the recorder", e, ""))?;
        if !memory.guard() {
            tracing::debug!("the recorder is not guarded");
        }
        let ledger_file = belay_sys::dup_cloexec(fds.ledger.as_fd())
            .map_err(|e| Error::system("duplicate", "the ledger", e, ""))?;
        let (ledger, book) = Ledger::open(ledger_file);
        let book = match book {
            Some(book) => book,
            None => {
                // Also of a takeover: what is there by now may be the held mount, which that proves not to be new.
                let mut others = mounts::fuse_devices()
                    .map_err(|e| Error::system("read", "the mount table", e, ""))?;
                // More are more than the ledger has room for. One that is not noted is taken for new, which proves less.
                others.truncate(4096);
                Book { version: VERSION, started_ns: clock::now(), others, ..Book::default() }
            }
        };
        let folder = belay_sys::dup_cloexec(fds.folder.as_fd())
            .map_err(|e| Error::system("duplicate", "the folder of this mount", e, ""))?;
        let folder = Folder::held(folder, config.instance.clone());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::system("create", "an epoll set", e, ""))?;
        let committed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::system("create", "an event counter", e, ""))?;
        let waker =
            Waker::start(&committed).map_err(|e| Error::system("start", "a thread", e, ""))?;
        let mirror = Mirror::start(keeper_pid, &folder, &committed)
            .map_err(|e| Error::system("duplicate", "an event counter", e, ""))?;
        let mut supervisor = Self {
            blackouts: Blackouts::from_pairs(&book.blackouts, book.last_blackout_us),
            signals: Signals::catch()?,
            config,
            folder,
            fds,
            memory: Arc::new(memory),
            layout,
            ledger,
            book,
            epoll,
            keeper: link::Keeper::new(link, keeper_pid),
            daemon: Daemon::None,
            life: Lifecycle::new(limits),
            exits: exits::Exits::default(),
            tail: Tail::default(),
            clients: clients::Clients::default(),
            connections: Connections::default(),
            fencing: None,
            desk: desk::CommitDesk::default(),
            nudge: nudge::Nudge::default(),
            committed,
            waker,
            stores: buffer::Folders::default(),
            mirror,
            connects: false,
            deadlines: Deadlines::default(),
            finding: finding::Looks::default(),
            stray: stray::Looks::default(),
            opened: opened::Looks::default(),
            cause: None,
            adopted: false,
            odd_mail: false,
            second_looks: 0,
            scouts: Arc::default(),
            ages: Ages::default(),
            backtraces: Backtraces::default(),
            outsiders: Outsiders::new(),
            unread: None,
            unknown: None,
            record_pause: 0,
            process_looks: undead::Looks::default(),
            words: words::Words::default(),
            unmounting: None,
            lacking_since: None,
        };
        if let Ok(shim) = belay_sys::dup_cloexec(supervisor.fds.shim.as_fd()) {
            autopsy::open::know_shim(shim);
        }
        supervisor.adopt_device();
        supervisor.listen(&supervisor.signals, SIGNALS)?;
        supervisor.listen_to_daemon()?;
        supervisor.listen(&supervisor.committed, COMMITTED)?;
        supervisor.listen(&supervisor.fds.control, CONTROL)?;
        supervisor.listen(&supervisor.fds.stderr_read, STDERR)?;
        if let Some(link) = supervisor.keeper.link() {
            supervisor.listen(link, LINK)?;
        }
        Ok(supervisor)
    }

    fn begin(&mut self, takeover: bool, stops: u32) {
        let now = clock::now();
        self.deadlines.set(Due::Look, now);
        self.deadlines.set(Due::Tick, now + SECOND);
        self.live(Event::Begins);
        self.start_committer();
        if self.has_epochs() {
            self.deadlines.set(Due::Checkpoint, now);
        }
        if takeover {
            self.take_over();
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
        Control::new(&self.memory, self.layout)
    }

    fn requests(&self) -> Requests<'_> {
        Requests::new(self.fds.recorder.as_fd(), self.layout)
    }

    fn listen(&self, fd: &impl AsFd, token: u64) -> Result<()> {
        self.listen_to(fd, token).map_err(|e| Error::system("watch", "a descriptor", e, ""))
    }

    fn listen_to(&self, fd: &impl AsFd, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// Listens to the daemon's event counter. It is never read: the daemon shares its description, and with it the flag by which
    /// a read waits or does not. Each write to it is an edge.
    fn listen_to_daemon(&self) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &self.fds.event, epoll::EventData::new_u64(EVENT), flags)
            .map_err(|e| Error::system("watch", "a descriptor", e, ""))
    }

    /// Writes the book down. A failure is told and survived: it costs statistics, and only if the
    /// supervisor dies too.
    fn keep_book(&mut self) {
        self.book.blackouts = self.blackouts.pairs();
        if let Err(error) = self.ledger.write(&self.book) {
            tracing::warn!("{error}");
        }
    }

    fn event_loop(&mut self) -> i32 {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
        loop {
            if let Some(code) = self.life.ended() {
                return code;
            }
            let limit = self.time_to_wait();
            events.clear();
            // An interrupted or failed wait is as good as a wake-up without events.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit));
            let tokens: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            // First what is told, none of which waits for anybody; then a death, before all that somebody asks for: the blackout is
            // running.
            if tokens.contains(&EVENT) {
                self.hear_daemon();
            }
            if tokens.contains(&COMMITTED) {
                let _ = rustix::io::read(&self.committed, &mut [0_u8; 8]);
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
            // Last: the end of a recovery is what it may have waited for, and a line may have asked to unmount. Who is answered here,
            // and has asked for more, has the next turn.
            self.pursue_unmount();
        }
    }

    /// Looks at all that a daemon's event counter may stand for. What it was counted for is not said there, so an edge that
    /// stands for several events, or for none, is as good as one for each.
    fn hear_daemon(&mut self) {
        self.wake_committer();
        self.hear_committer();
        self.hear_losses();
        self.look_for_retiring(clock::now());
        self.nudge_if_asked();
    }

    fn take_signals(&mut self) {
        for signal in self.signals.pending() {
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

    /// The time until something is due.
    fn time_to_wait(&self) -> Timespec {
        let next = self.deadlines.next().unwrap_or(u64::MAX);
        let ns = next.saturating_sub(clock::now());
        Timespec {
            tv_sec: i64::try_from(ns / SECOND).unwrap_or(60),
            tv_nsec: i64::try_from(ns % SECOND).unwrap_or(0),
        }
    }

    /// Does what is due.
    fn check_time(&mut self) {
        let now = clock::now();
        let mut last = None;
        while self.life.ended().is_none()
            && let Some(due) = self.deadlines.take_due(now, last)
        {
            self.act(due, now);
            last = Some(due);
        }
    }

    fn act(&mut self, due: Due, now: u64) {
        match due {
            Due::Conclusion => {
                self.conclude();
                self.pursue_stop();
            }
            Due::Launch => self.live(Event::StartIsDue),
            Due::Keeper => self.replace_keeper(),
            Due::StopStep => self.live(Event::StopIsDue(self.stop_facts())),
            Due::Committer => {
                self.start_committer();
                self.look_at_commits();
            }
            Due::CommitLook => self.look_for_hanging_commit(now),
            Due::Checkpoint => self.ask_for_checkpoint(now),
            Due::Retiring => self.retiring_takes_too_long(now),
            Due::Words => self.check_words(now),
            Due::Nudge => self.nudge_in_time(now),
            Due::NudgeLook => self.end_vain_nudge(now),
            Due::Unheld => self.look_for_unheld(now),
            Due::Place => self.look_for_mount(now),
            Due::Stray => self.look_for_stray(now),
            Due::Opened => self.look_at_opened(now),
            Due::Look => {
                self.check_record(now);
                self.look_at_process(now);
                self.look_for_retiring(now);
            }
            Due::Tick => self.tick(now),
            // It only ends the wait: `pursue_unmount` comes at the end of each round.
            Due::Unmount => {}
            Due::Lines => self.serve_further_lines(),
        }
    }

    fn tick(&mut self, now: u64) {
        self.deadlines.set(Due::Tick, now + SECOND);
        if self.life.serves() && !self.connections.is_empty() {
            self.hold_connections(); // the daemon may have connected anew
        }
        self.look_for_progress();
        self.check_limits();
        self.look_for_unmount();
    }

    fn device(&self) -> BorrowedFd<'_> {
        self.fds.device.as_fd()
    }
}
