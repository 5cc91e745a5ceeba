//! The state directory: one folder for each mount that belay holds, or held lately.
//!
//! A folder's `lock` is locked by its keeper and supervisor; a folder that nobody locks is dead. A
//! directory of another form of name is none of belay's; of one without a lock nothing is removed
//! but what a folder has before it gets one.

use crate::background::LOG;
use crate::config::Config;
use crate::error::{Error, Result, passes};
use crate::folder::Folder;
use crate::orphans;
use crate::outside;
use crate::status::Status;
use crate::text::escaped;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, chmodat, flock, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt, sockopt::Timeout,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long reports of a mount that has ended are kept.
const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3600);
/// Bytes of such reports that are kept: those of the mounts that ended last.
const KEPT_BYTES: u64 = 256 << 20;
/// Mounts of which they are kept: each start and each `belay status` looks at all of them.
const KEPT_MOUNTS: usize = 500;
/// Entries of one such folder that are looked at. Reports are bounded far below: more is too large.
const ENTRIES: usize = 10_000;
/// Names that are tried for a new folder: more than are kept, as in a container ids are the same.
const NAMES: u32 = 2 * KEPT_MOUNTS as u32;
/// How long a folder may be without its lock while it is made or removed, with much to spare.
const SETTING_UP: Duration = Duration::from_secs(600);
/// The largest file of a folder that is read. What belay writes there is shorter.
pub(crate) const LARGEST: u64 = 8 << 20;
/// In a folder: held by its keeper and its supervisor.
const LOCK: &str = "lock";
/// The same before it is locked.
const NEW_LOCK: &str = "lock.new";
/// In a folder: where its supervisor is asked.
const SOCKET: &str = "control.sock";
/// In a folder: the crash reports.
pub(crate) const REPORTS: &str = "reports";
const WHERE: &str = "choose another place with --state-dir or BELAY_STATE_DIR";

/// The state directory to use if the user names none.
pub fn default_state_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("BELAY_STATE_DIR").filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let user = rustix::process::geteuid();
    match runtime {
        _ if user.is_root() => "/run/belay".into(),
        Some(dir) => Path::new(&dir).join("belay"),
        // No login session (cron, su): a name that is the same for every command of this user, and
        // that is refused if somebody else has taken it.
        None => format!("/tmp/belay-{}", user.as_raw()).into(),
    }
}

/// Makes `dir` if it is not there, for its owner alone; and holds it.
///
/// # Errors
/// Those of mkdir(2); a directory that belongs to somebody else, or that others may exchange.
pub fn make_private(dir: &Path) -> Result<Folder> {
    Folder::make_own(dir)
}

/// Whether [`make_private`] would refuse it; nothing is made.
///
/// # Errors
/// Those of [`make_private`].
pub fn check_private(dir: &Path) -> Result<()> {
    Folder::check_own(dir)
}

/// A new folder for a mount, locked.
#[derive(Debug)]
pub struct NewInstance {
    /// The folder.
    pub folder: Folder,
    /// Its lock, held.
    pub lock: OwnedFd,
    /// The listening control socket.
    pub control: OwnedFd,
}

/// Makes the folder for a mount with the (guessed) mountpoint `hint` in `state_dir`.
///
/// # Errors
/// Those of mkdir(2), open(2) and bind(2).
pub fn create(state_dir: &Path, hint: &Path) -> Result<NewInstance> {
    let state = make_private(state_dir)?;
    let folder = new_folder(&state, hint)?;
    folder.make(REPORTS)?;
    let lock = new_lock(&folder)?;
    let control = UnixListener::bind(socket_path(&folder)).map_err(|error| {
        Error::system("listen in", folder.path().display().to_string(), error, WHERE)
    })?;
    // The umask may have taken from it what its owner needs.
    let _ = chmodat(&folder, SOCKET, Mode::RWXU, AtFlags::empty());
    control
        .set_nonblocking(true)
        .map_err(|error| Error::system("set up", "the control socket", error, ""))?;
    Ok(NewInstance { folder, lock, control: control.into() })
}

/// A folder that nobody else has. One of the first name may be there, as ids are used again, and
/// are the same in other containers: dead with its reports, or alive. It is not touched.
fn new_folder(state: &Folder, hint: &Path) -> Result<Folder> {
    let pid = std::process::id();
    for n in 1..=NAMES {
        if let Some(folder) = state.make_new(&folder_name(hint, n, pid))? {
            return Ok(folder);
        }
    }
    let what = state.path().join(folder_name(hint, 1, pid)).display().to_string();
    Err(Error::refused(what, format!("it and {} more are there already", NAMES - 1), WHERE))
}

/// The lock of a new folder. It is locked before it has its name: a folder whose lock nobody holds
/// is dead, and whoever starts another mount in this very moment would remove it.
fn new_lock(folder: &Folder) -> Result<OwnedFd> {
    let lock = folder.open(NEW_LOCK, OFlags::RDWR | OFlags::CREATE)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        Error::system("lock", folder.path().display().to_string(), error, WHERE)
    })?;
    folder.rename(NEW_LOCK, LOCK)?;
    Ok(lock)
}

// Socket addresses hold 107 bytes, paths may be longer: name the folder by its descriptor.
fn socket_path(folder: &Folder) -> PathBuf {
    folder.inside().join(SOCKET)
}

/// Whether somebody can be asked in the folder `dir`: not yet at the start, and no more at the end.
pub fn has_socket(dir: &Path) -> bool {
    dir.join(SOCKET).exists()
}

/// How long it may take until a supervisor takes a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the control socket in the folder `dir`.
///
/// # Errors
/// Those of connect(2); if somebody else listens there, or nobody takes the connection.
pub fn connect(dir: &Path) -> Result<UnixStream> {
    let object = || format!("the supervisor of {}", shown(dir));
    let failed =
        |error: std::io::Error| Error::system("connect to", object(), error, "see `belay status`");
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let failed = |error: Errno| failed(error.into());
    let socket = socket.map_err(failed)?;
    let folder = Folder::own(dir)?;
    let address = SocketAddrUnix::new(socket_path(&folder)).map_err(failed)?;
    // A queue that nobody empties is full at some time.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))
        .and_then(|()| rustix::net::connect(&socket, &address))
        .map_err(failed)?;
    let peer = sockopt::socket_peercred(&socket).map_err(failed)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        let why = format!("it is a process of user {}", peer.uid.as_raw());
        return Err(Error::refused(object(), why, "see who has made this folder"));
    }
    Ok(UnixStream::from(socket))
}

/// The name of a folder, the `n`th that is tried.
fn folder_name(hint: &Path, n: u32, pid: u32) -> String {
    let text = hint.to_string_lossy();
    let text = text.trim_matches('/');
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "_.".contains(c) { c } else { '-' }
    };
    // The end of a path says more than its beginning.
    let mut name: Vec<char> = text.chars().rev().take(40).map(plain).collect();
    name.reverse();
    let name: String = name.into_iter().collect();
    let name = name.trim_start_matches(['.', '-']);
    let name = if name.is_empty() { "mount" } else { name };
    if n > 1 { format!("{name}-{n}.{pid}") } else { format!("{name}.{pid}") }
}

/// Whether a folder's name is one that [`folder_name`] gives.
fn is_folder_name(name: &std::ffi::OsStr) -> bool {
    let pid = name.to_str().and_then(|name| name.rsplit_once('.')).map(|(_, pid)| pid);
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A folder in the state directory.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The folder.
    pub dir: PathBuf,
    /// Whether a keeper or supervisor lives.
    pub alive: bool,
}

impl Instance {
    /// When something was last made or removed in it; `None` if it is not there any more.
    pub fn modified(&self) -> Option<SystemTime> {
        modified(&self.dir)
    }

    /// What this mount was started with; `None` if the file is not there or not understood.
    pub fn config(&self) -> Option<Config> {
        serde_json::from_slice(&own_file(&self.dir.join("config.json"))?).ok()
    }

    /// The last status of a dead one, if it left one.
    pub fn last_status(&self) -> Option<Status> {
        serde_json::from_slice(&own_file(&self.dir.join("last-status.json"))?).ok()
    }
}

/// What a folder is for, for people: the mountpoint, as far as it is noted, and the folder.
pub fn shown(dir: &Path) -> String {
    let instance = Instance { dir: dir.to_owned(), alive: true };
    let place = instance.config().and_then(|config| config.guessed_mountpoint);
    let place = place.map(|place| format!("{} ", escaped(&place.0))).unwrap_or_default();
    format!("{place}(folder {})", dir.display())
}

/// A file that belay has written into a folder.
fn own_file(path: &Path) -> Option<Vec<u8>> {
    outside::read(path, outside::From::Own, LARGEST).ok()
}

/// Refuses a state directory in which somebody else could have made what is read there.
///
/// # Errors
/// If it belongs to another user, or others may write to it.
pub fn check_own(dir: &Path) -> Result<()> {
    match Folder::own(dir) {
        // Nothing is there that could be believed.
        Err(Error::System { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
        found => found.map(drop),
    }
}

/// All folders in `state_dir`, by name; none if it is not there, or not own (see [`check_own`]).
pub fn list(state_dir: &Path) -> Vec<Instance> {
    // By the way that nobody can exchange: what is found is looked for again by its path.
    Folder::own(state_dir).map(|state| list_in(state.path())).unwrap_or_default()
}

fn list_in(state_dir: &Path) -> Vec<Instance> {
    let mut found: Vec<Instance> = folders(state_dir)
        .filter(|dir| dir.join(LOCK).exists())
        .map(|dir| Instance { alive: is_locked(&dir), dir })
        .collect();
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    found
}

/// What may be a mount's folder by its name.
fn folders(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    entries
        .filter(move |entry| is_dir(entry) && is_folder_name(&entry.file_name()))
        .map(|entry| entry.path())
}

/// Whether somebody holds the lock of folder `dir`.
pub fn is_locked(dir: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = match open(dir.join(LOCK), flags, Mode::empty()) {
        Ok(lock) => lock,
        // Too many files are open, say. What is not known to be dead lives: nobody removes it then.
        Err(error) => return passes(&error.into()),
    };
    // Shared: two who look at the same time must not take each other for the owner.
    !is_free(flock(&lock, FlockOperation::NonBlockingLockShared))
}

/// Whether a lock that was tried for was free. An error for want of something says nothing of it.
fn is_free(tried: rustix::io::Result<()>) -> bool {
    tried.is_ok()
}

const STANDIN: &str = "mountpoint";

/// Makes what successors find at their mountpoint where they cannot have a mount table of their
/// own, and what the mount covers is not held (see the shim's `standin`): an empty directory, or a
/// file if that is what was mounted on.
///
/// # Errors
/// Those of mkdir(2) and open(2).
pub(crate) fn standin(folder: &Folder, is_file: bool) -> Result<PathBuf> {
    if is_file {
        folder.open(STANDIN, OFlags::WRONLY | OFlags::CREATE)?;
    } else {
        folder.mkdir(STANDIN)?;
    }
    Ok(folder.path().join(STANDIN))
}

/// Removes what the folder that is held needed for life, as [`retire`] does, wherever it is now.
pub(crate) fn retire_held(folder: &Folder) {
    match (folder.outside(), folder.path().file_name()) {
        (Some(state), Some(name)) => retire(&state.inside().join(name)),
        _ => retire(&folder.inside()),
    }
}

/// Removes what a folder needed for life. Reports and log stay; a folder without them goes.
pub fn retire(dir: &Path) {
    let _ = fs::remove_file(dir.join(SOCKET));
    let _ = fs::remove_file(dir.join(crate::mirror::LEFT));
    let _ = fs::remove_file(dir.join(STANDIN));
    let _ = fs::remove_dir(dir.join(STANDIN));
    orphans::forget(dir);
    let reports = fs::read_dir(dir.join(REPORTS)).is_ok_and(|mut dir| dir.next().is_some());
    let log = fs::metadata(dir.join(LOG)).is_ok_and(|meta| meta.len() > 0);
    if !reports && !log && !orphans::is_there(dir) {
        remove(dir);
    }
}

/// Removes a folder. Its lock goes last: a removal that is cut off leaves a dead folder.
fn remove(dir: &Path) {
    if !fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name() == LOCK {
            continue;
        }
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ =
            if is_dir { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    }
    let _ = fs::remove_file(dir.join(LOCK));
    let _ = fs::remove_dir(dir);
}

/// Removes dead folders: those without reports, and those whose reports are old or too many.
pub fn clean(state_dir: &Path) {
    clean_to(state_dir, KEPT_BYTES);
}

fn clean_to(state_dir: &Path, most: u64) {
    let Ok(state) = Folder::own(state_dir) else { return };
    let state_dir = &state.inside();
    // Of one whose making or removal was cut off there are at most these, without a lock.
    folders(state_dir).filter(|dir| is_cut_off(dir)).for_each(|dir| {
        let _ = fs::remove_file(dir.join(NEW_LOCK));
        let _ = fs::remove_dir(dir.join(REPORTS));
        let _ = fs::remove_dir(dir);
    });
    let dead = |instance: &Instance| !instance.alive;
    for instance in list_in(state_dir).iter().filter(|i| dead(i)) {
        retire(&instance.dir);
    }
    let mut left: Vec<Instance> = list_in(state_dir).into_iter().filter(dead).collect();
    left.sort_by_cached_key(|instance| std::cmp::Reverse(instance.modified()));
    let mut bytes = 0_u64;
    for (n, Instance { dir, .. }) in left.iter().enumerate() {
        let age = modified(dir).and_then(|at| at.elapsed().ok());
        // From the first that does not fit on all go: what is kept has no gaps.
        if n >= KEPT_MOUNTS || bytes > most || age.is_some_and(|age| age > KEPT_FOR) {
            bytes = u64::MAX;
        } else {
            bytes = bytes.saturating_add(size(dir));
        }
        if bytes > most && !orphans::is_there(dir) {
            remove(dir);
        }
    }
}

/// Bytes that a dead folder takes on disk.
fn size(dir: &Path) -> u64 {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let all = entries(dir).chain(entries(&dir.join(REPORTS)));
    let sizes = all.take(ENTRIES + 1).map(|entry| entry.metadata().map_or(0, |m| m.blocks() * 512));
    let (count, bytes) =
        sizes.fold((0, 0_u64), |(n, sum), bytes| (n + 1, sum.saturating_add(bytes)));
    if count > ENTRIES { u64::MAX } else { bytes }
}

/// Whether a folder has no lock and is no longer about to get one.
fn is_cut_off(dir: &Path) -> bool {
    let age = modified(dir).and_then(|at| at.elapsed().ok());
    !dir.join(LOCK).exists() && age.is_some_and(|age| age > SETTING_UP)
}

fn modified(dir: &Path) -> Option<SystemTime> {
    fs::metadata(dir).and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Two mounts start at the same time: the one must not take the other's folder for a dead one.
    #[test]
    fn only_a_lock_that_was_got_was_free() {
        use rustix::io::Errno;
        assert!(is_free(Ok(())));
        for error in [Errno::WOULDBLOCK, Errno::NOLCK, Errno::NOMEM, Errno::INTR] {
            assert!(!is_free(Err(error)), "{error}");
        }
    }

    /// In a container each start may have the same id.
    #[test]
    fn there_is_a_name_beside_all_that_are_kept() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..KEPT_MOUNTS + 5 {
            let dead = create(state.path(), Path::new("/mnt")).unwrap();
            fs::write(dead.folder.path().join(REPORTS).join("0001.json"), "{}").unwrap();
        }
        assert!(fs::read_dir(state.path()).unwrap().count() > KEPT_MOUNTS);
        clean(state.path());
        create(state.path(), Path::new("/mnt")).unwrap();
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), KEPT_MOUNTS + 1);
    }

    #[test]
    fn new_folders_are_not_cleaned_away() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("state");
        let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    clean(&dir);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            for n in 0..500 {
                // Neither leaves the other behind.
                while rounds.load(Ordering::Relaxed) < n / 50 {
                    std::thread::yield_now();
                }
                let made = create(&dir, Path::new(&format!("/mnt/{n}")));
                let there = |made: &NewInstance| {
                    made.folder.path().join("control.sock").exists()
                        && is_locked(made.folder.path())
                };
                if !made.as_ref().is_ok_and(there) {
                    over.store(true, Ordering::Relaxed);
                    panic!("folder {n}: {made:?}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    fn with_age(dir: PathBuf, age: Duration) -> PathBuf {
        let then = SystemTime::now() - age;
        fs::File::open(&dir).unwrap().set_modified(then).unwrap();
        dir
    }

    const OLD: Duration = Duration::from_secs(SETTING_UP.as_secs() + 1);

    /// A process in another container may have the same id, and a mount at the same place.
    #[test]
    fn a_folder_that_is_there_is_nobody_elses_to_take() {
        let state = tempfile::tempdir().unwrap();
        let make = || create(state.path(), Path::new("/mnt")).unwrap();
        let first = make();
        let dir = first.folder.path().to_owned();
        fs::write(dir.join("config.json"), "theirs").unwrap();
        let second = make();
        assert_ne!(second.folder.path(), dir);
        assert_eq!(fs::read_to_string(dir.join("config.json")).unwrap(), "theirs");
        assert!(is_locked(&dir) && has_socket(&dir) && is_locked(second.folder.path()));
        // One that is just being made has no lock yet.
        fs::remove_file(dir.join(LOCK)).unwrap();
        assert_ne!(make().folder.path(), dir);
        assert!(dir.join("config.json").exists());
    }

    /// Whoever makes or removes a folder may be killed.
    #[test]
    fn what_is_left_of_folders_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let make = |name: &str, age| {
            let dir = state.path().join(name);
            fs::create_dir_all(dir.join(REPORTS)).unwrap();
            fs::write(dir.join(NEW_LOCK), "").unwrap();
            with_age(dir, age)
        };
        let (old, new) = (make("mnt.1", OLD), make("mnt.2", Duration::ZERO));
        let cut_off = create(state.path(), Path::new("/mnt")).unwrap().folder.path().to_owned();
        fs::remove_file(cut_off.join("control.sock")).unwrap();
        clean(state.path());
        assert!(!old.exists() && new.exists() && !cut_off.exists());
    }

    /// By mistake the state directory may be another's as well: what is not belay's stays.
    #[test]
    fn what_others_have_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let file = |name: &str, file: &str| {
            let dir = state.path().join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(file), "theirs").unwrap();
            with_age(dir, OLD)
        };
        let theirs = [
            file("systemd", "private"),
            file("app.5", "data"),
            file("locked", "lock"),
            file("x.y", "lock"),
        ];
        let empty = state.path().join("empty");
        fs::create_dir(&empty).unwrap();
        with_age(empty.clone(), OLD);
        clean(state.path());
        assert!(list(state.path()).is_empty());
        for dir in theirs {
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "{}", dir.display());
        }
        assert!(empty.exists());
    }

    #[test]
    fn folder_names_are_tame() {
        assert_eq!(folder_name(Path::new("/mnt/data"), 1, 5), "mnt-data.5");
        assert_eq!(folder_name(Path::new("/mnt/data"), 2, 5), "mnt-data-2.5");
        assert!(is_folder_name("mnt-data-2.5".as_ref()));
        assert_eq!(folder_name(Path::new("/"), 1, 5), "mount.5");
        assert_eq!(folder_name(Path::new("../../x y"), 1, 5), "x-y.5");
        assert!(folder_name(Path::new(&"a".repeat(500)), 1, 5).len() < 60);
    }

    #[test]
    fn folders_live_as_long_as_their_lock() {
        let state = tempfile::tempdir().expect("tempdir");
        let deep = state.path().join("d".repeat(150)); // too long for a socket address
        let new = create(&deep, Path::new("/mnt/x")).expect("create");
        let all = list(&deep);
        assert_eq!(all.len(), 1);
        assert!(all[0].alive);
        connect(new.folder.path()).expect("connect");
        drop(new.lock);
        assert!(!list(&deep)[0].alive);
        clean(&deep);
        assert!(list(&deep).is_empty());
    }

    /// Dead folders with reports of these ages (in days) and sizes; those that are left.
    fn left_of(mounts: &[(u64, usize)], most: u64) -> Vec<usize> {
        let state = tempfile::tempdir().expect("tempdir");
        let place = |n: usize| state.path().join(format!("x.{n}"));
        for (n, (days, bytes)) in mounts.iter().enumerate() {
            let dir = place(n);
            fs::create_dir_all(dir.join(REPORTS)).expect("mkdir");
            fs::write(dir.join(LOCK), "").expect("lock");
            fs::write(dir.join("reports/0001.txt"), vec![b'x'; *bytes]).expect("report");
            with_age(dir, Duration::from_secs(days * 24 * 3600 + n as u64));
        }
        clean_to(state.path(), most);
        (0..mounts.len()).filter(|n| place(*n).exists()).collect()
    }

    #[test]
    fn reports_of_many_short_mounts_are_kept() {
        assert_eq!(left_of(&[(0, 100); 30], KEPT_BYTES).len(), 30);
        let many = left_of(&[(0, 1); KEPT_MOUNTS + 3], KEPT_BYTES);
        assert_eq!(many, (0..KEPT_MOUNTS).collect::<Vec<_>>());
    }

    #[test]
    fn reports_go_by_age_and_size() {
        assert_eq!(left_of(&[(13, 1), (15, 1), (0, 1)], KEPT_BYTES), [0, 2]);
        assert_eq!(left_of(&[(0, 40_000), (1, 40_000), (2, 40_000), (3, 1)], 100_000), [0, 1]);
        // One that is too large by itself goes as well.
        assert!(left_of(&[(0, 200_000)], 100_000).is_empty());
    }
}
