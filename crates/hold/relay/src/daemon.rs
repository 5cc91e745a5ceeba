//! The daemon: started, waited for, and followed into its end.

use crate::Daemon;
use crate::ending::{Gone, Tracing};
use crate::leading::Leading;
use crate::mounting::Mounting;
use crate::passing::Life;
use crate::standin::Paths;
use belay_sys::{ChildSetup, end_by, prepare_child, receive_listener, unblock_signals};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitOptions, WaitStatus, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Signals that are the daemon's, though the relay gets them.
const PASSED_ON: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// How long a dead daemon's last words may take to the device.
const LAST_WORDS: Duration = Duration::from_millis(200);

pub(crate) fn run(daemon: &Daemon) -> io::Result<Infallible> {
    // What a daemon in the background leaves to the first process is the relay's instead.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let blocked_signals = unblock_signals()?;
    belay_sys::end_by_faults();
    // Before there is a daemon, so that none is missed.
    let signals = SignalsInfo::<WithRawSiginfo>::new(PASSED_ON)?;
    let (wake, woken) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGCHLD, wake.try_clone()?)?;
    let gone = Gone::new(wake);
    let kind = SocketType::STREAM;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(&daemon.program);
    let mut words = daemon.command.iter();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words);
    // Where a call's registers are not known (`registers.rs`) nobody can be led, and nothing is
    // traced.
    let standin = daemon.standin.as_ref().filter(|_| cfg!(target_arch = "x86_64"));
    let leading = standin.map(Paths::new).transpose()?.map(Leading::new);
    let setup = ChildSetup {
        blocked_signals,
        at_end_of_parent: Some(rustix::process::Signal::KILL),
        watcher: Some(theirs),
        closed: daemon.held,
        traced: standin.is_some(),
        ..ChildSetup::default()
    };
    prepare_child(&mut command, setup);
    // By this thread, which lasts as long as the process: its end is what the child would hear of.
    let child = command.spawn()?;
    drop(command); // and with it the child's end of the socket
    let listener = receive_listener(&ours)?;
    let life = Arc::new(Life {
        server: AtomicU32::new(0),
        mounted: AtomicBool::new(false),
        gone,
        end: Mutex::new(None),
    });
    let mounting = Mounting::new(listener, Arc::clone(&life), daemon.standin.clone());
    thread::Builder::new().name("mounting".into()).spawn(move || mounting.run())?;
    let (target, first) = (Arc::clone(&life), child.id());
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || pass_on(signals, &target, first))?;
    follow(first, &life, &woken, leading)
}

/// Whoever signals the relay means the daemon. What comes from the terminal comes to the daemon as
/// well.
fn pass_on(mut signals: SignalsInfo<WithRawSiginfo>, life: &Life, first: u32) {
    for info in &mut signals {
        if info.si_code != libc::SI_KERNEL
            && let Ok(number) = i32::try_from(serving(life, first))
            && let Ok(signal) = Signal::try_from(info.si_signo)
        {
            let _ = kill(Pid::from_raw(number), signal);
        }
    }
}

/// Who serves, as far as that is known.
fn serving(life: &Life, first: u32) -> u32 {
    match life.server.load(Relaxed) {
        0 => first,
        server => server,
    }
}

/// Waits for the end of who serves. Daemons that go into the background end before they do.
fn follow(
    first: u32,
    life: &Life,
    woken: &UnixStream,
    mut leading: Option<Leading>,
) -> io::Result<Infallible> {
    let (mut last, mut tracing) = (None, None);
    // Threads that are traced as well: the end of such a one is no process's.
    let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(libc::__WALL.cast_unsigned());
    loop {
        retry_on_intr(|| rustix::io::read(woken, &mut [0; 64]))?;
        if life.gone.is_said() && tracing.is_none() {
            tracing = Some(Tracing::begin(serving(life, first), &life.gone));
        }
        loop {
            // Of any process group: a daemon in the background has one of its own.
            let (process, status) = match retry_on_intr(|| wait(options)) {
                Ok(Some((process, status))) => (process.as_raw_nonzero().get(), status),
                Ok(None) => break,
                // Nobody is left.
                Err(Errno::CHILD) => match last {
                    Some(how) => end_as(how, life),
                    None => std::process::exit(1),
                },
                Err(error) => return Err(error.into()),
            };
            let thread = Pid::from_raw(process);
            let Some(how) = How::of(status) else {
                // Who was led once may be traced still: what is under way for its threads comes
                // first.
                match (&mut leading, &tracing) {
                    (Some(leading), tracing) => {
                        let over = life.mounted.load(Relaxed);
                        leading.stopped(thread, status, over, tracing.as_ref());
                    }
                    (None, Some(tracing)) => tracing.stopped(thread, status),
                    (None, None) => {}
                }
                continue;
            };
            if let Some(leading) = &mut leading {
                leading.ended(thread);
            }
            let process = process.unsigned_abs();
            let server = life.server.load(Relaxed);
            let background = process == first && how == How::Code(0);
            if process == server || process == first && server == 0 && !background {
                end_as(how, life);
            }
            if process == first || server == 0 {
                last = Some(how);
            }
        }
    }
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Code(i32),
    Signal(i32),
}

impl How {
    /// `None` if it has not.
    fn of(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

/// Ends as the daemon has, once what it had said is at the kernel.
fn end_as(how: How, life: &Life) -> ! {
    if let Some(end) = life.end.lock().unwrap_or_else(PoisonError::into_inner).take() {
        end.wait(LAST_WORDS);
    }
    match how {
        How::Signal(signal) => end_by(signal),
        How::Code(code) => std::process::exit(code),
    }
}
