//! Transactions on a disk image: what a request writes to it is collected, and reaches it when the
//! request's reply is decided.
//!
//! One transaction is under way at a time: that of the request that the daemon has. Its writes lie
//! in the request's log in the recorder; the write set is an index over them. A daemon that dies
//! before its reply is on record has changed nothing; one that dies later has its writes carried
//! out by its successor ([`super::after`]).

pub(crate) mod state;
pub(crate) mod turn;

use super::log_of;
use super::policy::Policy;
use crate::descriptors;
use crate::dying::in_call;
use crate::positions;
use crate::real;
use crate::shim::Shim;
use belay_effects::area::Tally;
use belay_effects::finish::write_runs;
use belay_effects::log::{COMMITTED, Head, TORN};
use belay_effects::{Kind, Log, WriteSet};
use belay_sys::Mapping;
use libc::c_int;
use state::{Transaction, Transactions};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use turn::Turn;

/// A log that has grown beyond this many bytes is given back to the system.
const KEEP: usize = 4 << 20;

/// How long a request waits for the one before it. A daemon whose requests wait for each other is
/// none that this policy is for; it must not hang all the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// The policy `transaction` at work, of a daemon that has it.
#[derive(Clone, Copy)]
pub(crate) struct Transacting<'s> {
    shim: &'s Shim,
    pub(crate) state: &'s Transactions,
}

impl Shim {
    /// The policy `transaction`, if that is the daemon's.
    #[inline]
    pub(crate) fn transaction(&self) -> Option<Transacting<'_>> {
        match &self.policy {
            Policy::Transaction(state) => Some(Transacting { shim: self, state }),
            _ => None,
        }
    }
}

impl Transacting<'_> {
    /// Waits until the request before is answered, and makes what is written from then on belong to
    /// `unique`: a daemon with several threads works on one request at a time, so that of what
    /// another has done to the image each sees all or nothing. (Such daemons hold a lock of their
    /// own anyway.) What is not answered waits for nobody, and belongs to what is under way. No
    /// lock of belay's may be held.
    pub(crate) fn enter(&self, unique: u64, answered: bool) -> Turn {
        let other =
            |transaction: &mut Transaction| transaction.unique != 0 && transaction.unique != unique;
        let mut transaction = self.state.lock();
        if other(&mut transaction) {
            if !answered {
                return Turn { unique, number: None };
            }
            self.state.waiting.fetch_add(1, Relaxed);
            let waited = self.state.idle.wait_timeout_while(transaction, PATIENCE, other);
            self.state.waiting.fetch_sub(1, Relaxed);
            transaction = waited.map_or_else(|poison| poison.into_inner().0, |(guard, _)| guard);
            if other(&mut transaction) && !transaction.torn {
                self.tear(&mut transaction); // it waits for this one: none for this policy
            }
        }
        if transaction.unique != unique {
            transaction.unique = unique;
            self.state.current.pass();
            transaction.torn = false;
        }
        self.state.unanswered.store(!answered, Relaxed);
        Turn { unique, number: Some(self.state.current.turn()) }
    }

    /// The log of the request under way, begun if it has none.
    fn log_under_way(&self, transaction: &Transaction) -> Log<'_, Arc<Mapping>> {
        let log = log_of(self.shim, self.state.current.slot());
        if log.unique() != transaction.unique {
            log.begin(transaction.unique);
        }
        log
    }

    /// The image is about to be changed otherwise than by a write: what the transaction has written
    /// goes first.
    pub(crate) fn beyond(&self) {
        let mut transaction = self.state.lock();
        if transaction.unique != 0 && !transaction.torn {
            self.tear(&mut transaction);
        }
    }

    /// The image is about to be read otherwise than by a read: what the transaction has written, if
    /// anything, must be there.
    pub(crate) fn read_beyond(&self) {
        let mut transaction = self.state.lock();
        if !transaction.write_set.is_empty() {
            self.tear(&mut transaction);
        }
    }

    /// The daemon has opened `fd` before it serves: if it is a disk or a file that it can write to,
    /// it is the image.
    pub(crate) fn opened(&self, fd: c_int, flags: c_int) {
        // With O_DIRECT what is written must lie as the disk wants it, which the log does not.
        const NOT_THOSE: c_int =
            libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_PATH | libc::O_DIRECT;
        if self.shim.host.is_ready()
            || flags & libc::O_ACCMODE == libc::O_RDONLY
            || flags & NOT_THOSE != 0
            || self.state.fd.load(Relaxed) >= 0
            || !descriptors::has_own_memory()
        {
            return;
        }
        // SAFETY: the daemon's open(2) has just returned this descriptor, on this thread.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        // The one file that the first life took for its image stays it.
        if self.shim.image_box.leave(file) && descriptors::add_image(fd) {
            positions::keep(fd);
            self.state.fd.store(fd, Relaxed);
        }
    }

    /// `fd` is the image no longer. Asked by `descriptors` alone, which knows whose descriptor it
    /// is.
    pub(crate) fn closed(&self, fd: c_int) {
        // There may be a duplicate of it.
        let other = descriptors::other_image(fd).unwrap_or(-1);
        let _ = self.state.fd.compare_exchange(fd, other, Relaxed, Relaxed);
    }

    /// pwrite(2) of the daemon's to the image.
    pub(crate) fn write(&self, fd: c_int, bytes: &[u8], offset: i64) -> isize {
        let Ok(at) = u64::try_from(offset) else {
            real::set_errno(libc::EINVAL);
            return -1;
        };
        let mut transaction = self.state.lock();
        if transaction.unique == 0 || transaction.torn {
            return pwrite(fd, bytes, offset);
        }
        let log = self.log_under_way(&transaction);
        let head = Head { kind: Kind::Image as u32, digest: at, ..Head::default() };
        match log.append(&head, bytes) {
            Some(entry) => {
                transaction.write_set.write(at, bytes.len(), log.payload_at(&entry));
                self.state.differs.store(true, Relaxed);
                bytes.len() as isize
            }
            None => {
                self.tear(&mut transaction);
                pwrite(fd, bytes, offset)
            }
        }
    }

    /// More than a log holds: what there is goes to the image now. A crash from here on to the
    /// reply leaves the image in between, and that is said.
    #[cold]
    fn tear(&self, transaction: &mut Transaction) {
        let log = self.log_under_way(transaction);
        log.raise(TORN);
        self.shim.tally(Tally::Torn);
        self.carry_out(&mut transaction.write_set);
        transaction.torn = true;
    }

    /// What the daemon has read from the image, `read` bytes into `out`, as its transaction sees
    /// it.
    pub(crate) fn read(&self, read: isize, out: &mut [u8], offset: i64) -> isize {
        let (Ok(got), Ok(at)) = (usize::try_from(read), u64::try_from(offset)) else { return read };
        if !self.state.differs.load(Relaxed) {
            return read;
        }
        let transaction = self.state.lock();
        let end = usize::try_from(transaction.write_set.end().saturating_sub(at)).unwrap_or(0);
        let len = got.max(end.min(out.len()));
        if let Some(gap) = out.get_mut(got..len) {
            gap.fill(0); // behind the end of the file, until the transaction makes it longer
        }
        if let Some(out) = out.get_mut(..len) {
            transaction.write_set.patch(&**self.shim.host.memory(), at, out);
        }
        len as isize
    }

    /// fsync(2) of the image; `None` if it can be made at once.
    pub(crate) fn sync(&self) -> Option<c_int> {
        let mut transaction = self.state.lock();
        if transaction.write_set.is_empty() {
            return None;
        }
        let log = log_of(self.shim, self.state.current.slot());
        let head = Head { kind: Kind::Sync as u32, ..Head::default() };
        if log.append(&head, &[]).is_none() {
            self.tear(&mut transaction); // full: what it holds comes before the fsync
            return None;
        }
        transaction.write_set.sync = true;
        Some(0)
    }

    /// The request under way changes something besides the image: whether that happened is not
    /// known after a crash.
    pub(crate) fn aside(&self) {
        let transaction = self.state.lock();
        if transaction.unique != 0 {
            log_of(self.shim, self.state.current.slot()).mark_opaque(transaction.unique);
        }
    }

    /// Commits the transaction of `unique`, or, with `None`, that of a request that is not
    /// answered.
    #[inline]
    pub(crate) fn settle(&self, unique: Option<u64>) {
        // A thread that asks for more has mostly answered: no lock for that.
        if unique.is_some() || self.state.unanswered.load(Relaxed) {
            self.commit(unique);
        }
    }

    fn commit(&self, unique: Option<u64>) {
        let mut transaction = self.state.lock();
        let meant = match unique {
            Some(unique) => unique == transaction.unique,
            None => self.state.unanswered.load(Relaxed),
        };
        if !meant || transaction.unique == 0 {
            return;
        }
        if !transaction.write_set.is_empty() || transaction.torn {
            let log = log_of(self.shim, self.state.current.slot());
            // From here on it has happened, also if nobody recorded a reply.
            log.raise(COMMITTED);
            self.carry_out(&mut transaction.write_set);
            log.drop();
            self.shim.tally(Tally::Committed);
            let (at, len) = log.range();
            if log.used() * 8 > KEEP {
                let _ = self.shim.host.memory().discard(at, len);
            }
        }
        self.state.end(&mut transaction);
    }

    /// Writes to the image what a transaction has written.
    fn carry_out(&self, write_set: &mut WriteSet) {
        let fd = self.state.fd.load(Relaxed);
        if fd < 0 {
            failed("it is not open any more");
        }
        // SAFETY: the daemon has it open: it is forgotten when the daemon closes it.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Err(errno) = in_call(|| write_runs(self.shim.host.memory(), file, write_set)) {
            failed(&errno.to_string());
        }
        write_set.clear();
        self.state.differs.store(false, Relaxed);
    }
}

/// What is committed cannot be carried out. The daemon must not go on as if it were: it ends here,
/// and its successor tries again.
#[cold]
fn failed(why: &str) -> ! {
    eprintln!(
        "belay: cannot write a committed transaction to the image: {why}; make it writable (or room for it): \
         what was committed is kept and written as soon as that works"
    );
    std::process::abort();
}

fn pwrite(fd: c_int, bytes: &[u8], offset: i64) -> isize {
    // SAFETY: the daemon's own descriptor, and a readable buffer of that length.
    unsafe {
        belay_sys::raw::syscall(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset)
            as isize
    }
}
