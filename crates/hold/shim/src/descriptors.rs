//! Which of the daemon's descriptors are the FUSE device, which are its image, and what it writes
//! to.
//!
//! Asked at every read and write of the process, so it is one load and one bit test. What follows
//! for others from a descriptor's being closed, or becoming another's duplicate, is in
//! [`crate::renumbered`].

use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

const WORDS: usize = 256;
/// How many descriptors are known: those with lower numbers.
pub(crate) const DESCRIPTORS: usize = WORDS * 64;

/// A set of descriptors.
struct Set([AtomicU64; WORDS]);

impl Set {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    #[inline]
    fn bit(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        self.0.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
    }

    #[inline]
    fn has(&self, fd: i32) -> bool {
        self.bit(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    /// `false` if the number is too high to be noted, or not of the process whose memory this is.
    fn add(&self, fd: i32) -> bool {
        has_own_memory()
            && self.bit(fd).is_some_and(|(word, bit)| {
                word.fetch_or(bit, Relaxed);
                true
            })
    }

    #[inline]
    fn remove(&self, fd: i32) {
        if let Some((word, bit)) = self.bit(fd)
            && word.load(Relaxed) & bit != 0
        {
            word.fetch_and(!bit, Relaxed);
        }
    }
}

static DEVICE: Set = Set::new();
static IMAGE: Set = Set::new();
/// The daemon's epoll sets that have the device.
static SETS: Set = Set::new();

/// Whether `fd` is the device.
#[inline]
pub(crate) fn is_device(fd: i32) -> bool {
    DEVICE.has(fd)
}

/// Whether `fd` is the image of a daemon whose requests are transactions.
#[inline]
pub(crate) fn is_image(fd: i32) -> bool {
    IMAGE.has(fd)
}

/// Whether `fd` is an epoll set that has the device.
#[inline]
pub(crate) fn is_set(fd: i32) -> bool {
    SETS.has(fd)
}

/// Notes that `fd` is such a set.
pub(crate) fn add_set(fd: i32) {
    SETS.add(fd);
}

/// Notes that `fd` is the device; `false` if the number is too high to be noted.
pub(crate) fn add(fd: i32) -> bool {
    DEVICE.add(fd)
}

/// Notes that `fd` is the image; `false` if the number is too high to be noted.
pub(crate) fn add_image(fd: i32) -> bool {
    IMAGE.add(fd)
}

/// Those of belay's that are open as long as the process lives. They are not the daemon's to close,
/// which it may do without a thought: whoever goes into the background closes all that it does not
/// know.
static RESERVED: Set = Set::new();
/// None of them has a lower number: the one load that a close costs.
static FIRST_RESERVED: AtomicI32 = AtomicI32::new(i32::MAX);

/// Has the daemon leave `fd` alone.
pub(crate) fn reserve(fd: i32) {
    if RESERVED.add(fd) {
        FIRST_RESERVED.fetch_min(fd, Relaxed);
    }
}

/// Whether `fd` is belay's, and not the daemon's to close.
#[inline]
pub(crate) fn is_reserved(fd: i32) -> bool {
    fd >= FIRST_RESERVED.load(Relaxed) && RESERVED.has(fd)
}

/// What lies between belay's from `first` to `last`, both included.
pub(crate) fn unreserved(first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let mut from = next.filter(|from| *from <= last)?;
        while is_reserved(from as i32) {
            from = from.checked_add(1).filter(|from| *from <= last)?;
        }
        // Beyond the table there are none.
        let end = last.min(DESCRIPTORS as u32);
        let found = (from..end).find(|fd| is_reserved(*fd as i32));
        let to = found.map_or(last, |fd| fd - 1);
        next = to.checked_add(1);
        Some((from, to))
    })
}

/// The process whose memory this is.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Notes the process whose memory this is, and has its children do so.
pub(crate) fn own_memory() {
    extern "C" fn here() {
        OWNER.store(std::process::id(), Relaxed);
    }
    here();
    // SAFETY: the function has that signature, lives as long as the process, and stores one number.
    unsafe { libc::pthread_atfork(None, None, Some(here)) };
}

/// A child that vfork(2) has made closes descriptors of its own, but in the memory of its parent,
/// whose numbers mean what they did: Python's `subprocess` does so with all of them. So nothing
/// that is kept in memory of a process (its descriptors, its handlers of signals) is changed before
/// this is asked. It is a system call: only for what is seldom.
pub(crate) fn has_own_memory() -> bool {
    let owner = OWNER.load(Relaxed);
    owner == 0 || owner == std::process::id()
}

/// Whether `fd` is anything that is known here.
#[inline]
pub(crate) fn is_known(fd: i32) -> bool {
    DEVICE.has(fd) || IMAGE.has(fd) || SETS.has(fd)
}

/// Notes that `fd` is nothing of what is known here.
pub(crate) fn forget(fd: i32) {
    DEVICE.remove(fd);
    IMAGE.remove(fd);
    SETS.remove(fd);
}

/// All descriptors of the image.
pub(crate) fn image_numbers() -> impl Iterator<Item = i32> {
    (0..DESCRIPTORS as i32).filter(|fd| IMAGE.has(*fd))
}

/// A descriptor of the image besides `fd`.
pub(crate) fn other_image(fd: i32) -> Option<i32> {
    image_numbers().find(|other| *other != fd)
}

/// What a descriptor leads to that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sink {
    /// A file, written at a position.
    File = 1,
    /// A file, written at its end.
    End = 2,
    /// A connection, a pipe.
    Stream = 3,
    /// A terminal, /dev/null or another device of characters, the pipe for what the daemon says, an
    /// eventfd.
    Words = 4,
}

/// What the kernel says of `fd`; `None` if it is not open.
pub(crate) fn stat_of(fd: i32) -> Option<libc::stat> {
    // SAFETY: a zeroed stat is a valid value of that plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a live, writable structure; a bad descriptor only gives an error.
    let known = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
    known.then_some(stat)
}

/// What `table` has of `fd`; `None` if the number is too high.
#[inline]
fn entry<T>(table: &'static [T; DESCRIPTORS], fd: i32) -> Option<&'static T> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// What is known of each descriptor, 0 if nothing: two system calls find it out, which would be as
/// much as all else that is done about a write.
static SINKS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];

/// What `fd` leads to, found out by `look` if it is not known.
#[inline]
pub(crate) fn sink(fd: i32, look: impl FnOnce() -> Sink) -> Sink {
    let kept = entry(&SINKS, fd);
    match kept.map_or(0, |kept| kept.load(Relaxed)) {
        1 => Sink::File,
        2 => Sink::End,
        3 => Sink::Stream,
        4 => Sink::Words,
        _ => {
            let found = look();
            if let Some(kept) = kept
                && has_own_memory()
            {
                kept.store(found as u8, Relaxed);
            }
            found
        }
    }
}

/// When it was found of each descriptor that its file outlives the daemon, by [`NAMES`]; 0 if
/// never.
static LASTING: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

/// Counts the changes of names, each of which may have taken a file's last.
static NAMES: AtomicU32 = AtomicU32::new(1);

/// Names are not what they were: what was found of files by them is found out again.
#[inline]
pub(crate) fn names_changed() {
    NAMES.fetch_add(1, Relaxed);
}

/// Whether the file of `fd` outlives the daemon, found out by `look` if it is not known: that is a
/// system call, seldom.
#[inline]
pub(crate) fn is_lasting(fd: i32, look: impl FnOnce() -> bool) -> bool {
    let kept = entry(&LASTING, fd);
    let now = NAMES.load(Relaxed);
    if kept.is_some_and(|kept| kept.load(Relaxed) == now) {
        return true;
    }
    let lasting = look();
    if let Some(kept) = kept.filter(|_| lasting)
        && has_own_memory()
    {
        kept.store(now, Relaxed);
    }
    lasting
}

/// What `fd` leads to, or how, is about to change. Whoever does that, also a child of vfork(2): it
/// is found out again.
#[inline]
pub(crate) fn forget_sink(fd: i32) {
    if let Some(kept) = entry(&SINKS, fd)
        && kept.load(Relaxed) != 0
    {
        kept.store(0, Relaxed);
    }
    if let Some(kept) = entry(&LASTING, fd)
        && kept.load(Relaxed) != 0
    {
        kept.store(0, Relaxed);
    }
}
