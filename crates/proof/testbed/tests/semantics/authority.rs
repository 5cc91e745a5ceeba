//! S52 to S55: a daemon that has given up its privileges and turns against belay gains nothing by it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use belay_effects::log::{COMMITTED, Head};
use belay_effects::{Area, Kind};
use belay_image::overlay::{self, Overlay};
use belay_memory::Memory;
use belay_recorder::{Capacity, Layout};
use belay_testbed::Signal;
use belay_testbed::process::kill;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{LIMIT, call, number, until};
use crate::custom::Custom;
use crate::journal::compile;

const LAYOUT: Layout = Layout::new(Capacity::MOUNT);

/// Memory in which words are collected that a daemon is to store.
#[derive(Debug, Default)]
pub struct Words(RefCell<BTreeMap<usize, u64>>);

impl Memory for Words {
    fn load(&self, at: usize) -> u64 {
        self.0.borrow().get(&at).copied().unwrap_or(0)
    }
    fn store(&self, at: usize, value: u64) {
        self.0.borrow_mut().insert(at, value);
    }
    fn compare_exchange(&self, at: usize, _: u64, new: u64) -> Result<u64, u64> {
        self.store(at, new);
        Ok(new)
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        let old = self.load(at);
        self.store(at, old.wrapping_add(by));
        old
    }
}

impl Words {
    /// As `forge.c` reads them.
    fn put(&self, path: &Path) {
        let words = self.0.borrow();
        let bytes = words.iter().flat_map(|(at, word)| [*at as u64, *word]);
        fs::write(path, bytes.flat_map(u64::to_ne_bytes).collect::<Vec<_>>()).unwrap();
    }
}

/// A mount whose daemon does as it is told.
pub struct Forger {
    pub mount: Custom,
    image: PathBuf,
    victim: PathBuf,
}

/// Bytes of its image.
const IMAGE: u64 = 1 << 20;
const SECRET: &str = "nobody else's";

impl Forger {
    /// `words` gets the path of a file that only root may write to.
    fn start(arguments: &[&str], words: impl FnOnce(&Path) -> Words) -> Self {
        Self::start_with(&[], arguments, words)
    }

    pub fn start_with(
        variables: &[(&str, &Path)],
        arguments: &[&str],
        words: impl FnOnce(&Path) -> Words,
    ) -> Self {
        Self::start_as(variables, arguments, &[], words)
    }

    /// `options`: those of the daemon itself.
    fn start_as(
        variables: &[(&str, &Path)],
        arguments: &[&str],
        options: &[&str],
        words: impl FnOnce(&Path) -> Words,
    ) -> Self {
        let (mut image, mut victim) = (PathBuf::new(), PathBuf::new());
        let mount = Custom::start_with(variables, arguments, |place| {
            fs::set_permissions(place.dir, fs::Permissions::from_mode(0o755)).unwrap();
            (image, victim) = (place.dir.join("image"), place.dir.join("victim"));
            let program = place.dir.join("forge");
            compile("forge.c", &program);
            File::create(&image).unwrap().set_len(IMAGE).unwrap();
            fs::write(&victim, SECRET).unwrap();
            fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
            words(&victim).put(&place.dir.join("image.orders"));
            let words = [program, image.clone(), place.mountpoint.into(), "-f".into()];
            words.into_iter().chain(options.iter().map(Into::into)).map(Into::into).collect()
        });
        mount.wait_for("service", |status| status["state"] == "serving");
        let forger = Self { mount, image, victim };
        assert!(until(|| forger.uid() == 1234), "it has not given up its privileges");
        forger
    }

    fn uid(&self) -> u32 {
        let status = format!("/proc/{}/status", self.mount.pid("daemon"));
        let status = fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Where its orders come from.
    fn orders(&self) -> PathBuf {
        self.image.with_file_name("image.orders")
    }

    /// Has the daemon carry out an order.
    pub fn order(&self, what: &str) {
        let error = fs::create_dir(self.mount.at(what)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::XFULL.raw_os_error()), "{what}: {error}");
    }

    /// The supervisor may have its last words written a little after the keeper's end.
    pub fn says(&self, words: &str) {
        assert!(until(|| self.mount.log().contains(words)), "{words:?}: {}", self.mount.log());
    }

    fn assert_untouched(&self, when: &str) {
        let found = fs::read(&self.victim).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), SECRET, "{when}\n{}", self.mount.log());
    }
}

/// What a forged transaction writes to the beginning of its image.
const FORGED: &[u8] = b"written as root";

/// The words of a committed transaction, as the shim itself writes them. They say what is written, and where in the image: of
/// which file that is, and of whether there are transactions at all, the recorder says nothing.
fn forged_transaction() -> Words {
    let words = Words::default();
    let log = Area::new(&words, LAYOUT).own_log();
    log.begin(77);
    let head = Head { kind: Kind::Image as u32, digest: 0, ..Head::default() };
    log.append(&head, FORGED).unwrap();
    log.raise(COMMITTED);
    words
}

const POLICIES: [&str; 6] = ["reconcile", "journal", "transaction", "epoch", "buffer", "blind"];

fn forge(policy: &str) -> Forger {
    let forger = Forger::start(&["--policy", policy], |_| forged_transaction());
    forger.order("words");
    forger
}

impl Forger {
    /// Whether its image has what was forged; nothing else is written there.
    fn is_written(&self) -> bool {
        let found = fs::read(&self.image).unwrap();
        let (begin, rest) = found.split_at(FORGED.len());
        assert!(rest.iter().all(|byte| *byte == 0), "{}", self.mount.log());
        assert!(begin == FORGED || begin.iter().all(|byte| *byte == 0), "{begin:?}");
        begin == FORGED
    }
}

/// S52: whatever a daemon writes into the memory that it shares with belay, no file is written that it could not have
/// written itself: not by its successor, which starts with all rights. Where there are transactions, what it forges is one: it is
/// carried out, on the image that it has open for writing.
#[test]
fn s52_a_forged_transaction_is_not_carried_out_by_the_successor() {
    for policy in POLICIES {
        let mut forger = forge(policy);
        assert!(!forger.is_written(), "{policy}: before anything has died");
        forger.mount.crash_and_recover();
        let takes = policy == "transaction";
        let when = format!("{policy}, crash\n{}", forger.mount.log());
        assert_eq!(forger.is_written(), takes, "{when}");
        let finished = number(&forger.mount.status().unwrap(), "/effects/finished");
        assert_eq!(finished, u64::from(takes), "{when}");
        forger.assert_untouched(&when);
        forger.mount.stop();
        forger.mount.end();
        assert_eq!(forger.is_written(), takes, "{policy}, stop after a crash");
        forger.assert_untouched(&format!("{policy}, stop after a crash"));
    }
}

/// S52: nor by belay itself at the end, which has all rights too.
#[test]
fn s52_a_forged_transaction_is_not_carried_out_at_the_end() {
    for policy in POLICIES {
        let mut forger = forge(policy);
        forger.mount.stop();
        forger.mount.end();
        let takes = policy == "transaction";
        assert_eq!(forger.is_written(), takes, "{policy}, stop\n{}", forger.mount.log());
        let told = forger.mount.log().contains("carried out 1 transaction");
        assert_eq!(told, takes, "{policy}, stop\n{}", forger.mount.log());
        forger.assert_untouched(&format!("{policy}, stop"));
    }
}

/// S52: a daemon hands over another file for its image: what is committed is written there if it has that open for writing, and
/// not if it has no more than its name, as anybody may have.
#[test]
fn s52_a_file_is_no_image_that_the_daemon_cannot_write_to() {
    for writes in [true, false] {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let other = place.path().join("other");
        fs::write(&other, SECRET).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        let yes = Path::new("1");
        // It has no image of its own, so that this one has room where images are handed over.
        let mut variables = vec![("FORGE_LEAVES", other.as_path()), ("FORGE_READS", yes)];
        if !writes {
            variables.push(("FORGE_NAMES", yes));
        }
        let arguments = ["--policy", "transaction"];
        let mut forger = Forger::start_with(&variables, &arguments, |_| forged_transaction());
        forger.order("leave");
        forger.order("words");
        forger.mount.signal("daemon", Signal::KILL);
        forger.mount.wait_for("successor", |status| {
            number(status, "/failed_starts") > 0
                || number(status, "/crashes") > 0 && status["state"] == "serving"
        });
        let stop = ["stop".as_ref(), "--force".as_ref(), forger.mount.mountpoint.as_os_str()];
        Custom::belay(&stop);
        forger.mount.end();
        let found = fs::read(&other).unwrap();
        let expected = if writes { FORGED } else { SECRET.as_bytes() };
        let text = String::from_utf8_lossy(&found);
        assert!(found.starts_with(expected), "writes: {writes}: {text}\n{}", forger.mount.log());
        assert!(!forger.is_written());
        forger.assert_untouched("the files of others");
    }
}

/// The words of a sealed epoch that writes to the image.
pub fn forged_epoch() -> Words {
    let words = Words::default();
    let overlay = Overlay::new(&words, LAYOUT.epochs, overlay::Capacity::MOUNT);
    overlay.discard_current(IMAGE).unwrap();
    let write = overlay.write(0, FORGED, |_, _| Ok::<_, ()>(0));
    assert_eq!(write.ok(), Some(FORGED.len()));
    overlay.seal().unwrap();
    words
}

/// S93: an image that no daemon of the mount has open for writing is not written to, whatever the recorder holds.
#[test]
fn s93_an_image_that_is_only_read_stays_as_it_is() {
    for reads in [true, false] {
        let yes = Path::new("1");
        let variables = [("FORGE_READS", yes)];
        let variables = if reads { &variables[..] } else { &[] };
        let arguments = ["--policy", "epoch"];
        let mut forger = Forger::start_with(variables, &arguments, |_| forged_epoch());
        forger.order("words");
        forger.mount.crash_and_recover();
        let place = forger.mount.mountpoint.clone();
        let stopped = Custom::belay(&["stop".as_ref(), "--force".as_ref(), place.as_os_str()]);
        let status = forger.mount.end();
        let log = forger.mount.log();
        assert_eq!(stopped.status.success(), !reads, "{log}");
        let written = fs::read(&forger.image).unwrap().iter().any(|byte| *byte != 0);
        assert_eq!(written, !reads, "{log}");
        if reads {
            forger.says("no daemon of this mount has opened it for writing");
            assert!(!status.success(), "{log}");
        }
    }
}

/// S52: what belay keeps for itself never gets to a daemon.
#[test]
fn s52_a_daemon_gets_only_what_it_needs() {
    for policy in ["reconcile", "epoch"] {
        let forger = Forger::start(&["--policy", policy], |_| Words::default());
        for _ in 0..2 {
            let entries = fs::read_dir(format!("/proc/{}/fd", forger.mount.pid("daemon"))).unwrap();
            let links: Vec<_> =
                entries.flatten().filter_map(|e| fs::read_link(e.path()).ok()).collect();
            for link in &links {
                let name = link.to_string_lossy();
                let own = ["belay-ledger", "belay-config", "/run/belay", "belay-journal", "pidfd"];
                assert!(!own.iter().any(|own| name.contains(own)), "{links:?}");
            }
            forger.mount.crash_and_recover();
        }
        forger.mount.stop();
    }
}

/// S53: a daemon that makes the descriptors wait which it shares with belay, or fills them up, makes nobody wait but itself.
#[test]
fn s53_shared_descriptors_hold_nobody_up() {
    for policy in ["reconcile", "epoch"] {
        for order in ["block", "fill", "drain"] {
            let mut forger = Forger::start(&["--policy", policy], |_| Words::default());
            let supervisor = forger.mount.pid("supervisor");
            forger.order(order);
            for _ in 0..3 {
                for _ in 0..5 {
                    forger.mount.wait_for("answer", |status| status["state"] == "serving");
                }
                forger.mount.crash_and_recover();
                assert!(fs::metadata(&forger.mount.mountpoint).unwrap().is_dir());
            }
            assert_eq!(forger.mount.pid("supervisor"), supervisor, "{}", forger.mount.log());
            forger.mount.stop();
            forger.mount.end();
        }
    }
}

/// S54: a daemon that names another process for itself is ended, and nothing happens to that one.
#[test]
fn s54_nobody_else_is_taken_for_the_daemon() {
    let mut forger = Forger::start(&[], |_| Words::default());
    let pid = |role| forger.mount.pid(role);
    let (supervisor, keeper) = (pid("supervisor"), pid("keeper"));
    for (crashes, named) in [supervisor, keeper, 1, std::process::id()].into_iter().enumerate() {
        let daemon = pid("daemon");
        let lease = Words::default();
        lease.store(2, (crashes as u64) << 32 | u64::from(named));
        lease.put(&forger.orders());
        forger.order("words");
        forger.mount.wait_for("end of the daemon", |status| {
            number(status, "/crashes") > crashes as u64 && status["state"] == "serving"
        });
        assert_ne!(pid("daemon"), daemon);
        assert_eq!((pid("supervisor"), pid("keeper")), (supervisor, keeper));
        assert!(belay_testbed::process::wait_for_exit(daemon, LIMIT).unwrap());
    }
    forger.mount.stop();
    assert!(forger.mount.end().success(), "{}", forger.mount.log());
}

/// S54: the memory that belay shares with a daemon cannot be made shorter; where it can, as it may have large pages, the mount
/// is given up, once.
#[test]
fn s54_a_daemon_that_takes_its_memory_away_hurts_only_itself() {
    let forger = Forger::start(&[], |_| Words::default());
    let error = fs::create_dir(forger.mount.at("shrink")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{}", forger.mount.log());
    forger.mount.crash_and_recover();
    forger.mount.stop();

    let mut forger = Forger::start(&["--policy", "epoch"], |_| Words::default());
    let path = forger.mount.at("shrink");
    let caller = call(move || fs::create_dir(path));
    assert!(caller.result().is_err());
    let status = forger.mount.end();
    let log = forger.mount.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("destroyed the recorder") && !log.contains("supervisor died"), "{log}");
}

impl Forger {
    /// Bytes that the memory takes that belay shares with its daemon; `None` once belay has ended.
    fn shared_bytes(&self) -> Option<u64> {
        let supervisor = number(&self.mount.status()?, "/supervisor/pid");
        let entries = fs::read_dir(format!("/proc/{supervisor}/fd")).ok()?;
        let files = entries.flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
        let shared = files.filter(|file| file.len() == LAYOUT.bytes() as u64);
        shared.map(|file| file.blocks() * 512).max()
    }
}

/// S55: what a daemon has touched of the memory that belay shares with it does not stay, and the mount goes on.
#[test]
fn s55_memory_that_a_daemon_touches_is_given_back() {
    for (policy, most) in [("reconcile", 64 << 20), ("journal", 64 << 20), ("epoch", 900 << 20)] {
        let mut forger = Forger::start(&["--policy", policy], |_| Words::default());
        let before = forger.shared_bytes().unwrap();
        assert!(before < 64 << 20, "{policy}: {before}");
        let orders = Words::default();
        // All but what is on record, and some of what could be.
        orders.store(LAYOUT.nodes + (1 << 20), LAYOUT.words as u64);
        orders.put(&forger.orders());
        let path = forger.mount.at("touch");
        let caller = call(move || fs::create_dir(path));
        forger.mount.wait_for("end of the daemon", |status| number(status, "/crashes") > 0);
        // The next one is asked the same, and touches nothing.
        fs::write(forger.orders(), "").unwrap();
        assert!(caller.result().is_err());
        forger.mount.wait_for("service", |status| status["state"] == "serving");
        let after = forger.shared_bytes().unwrap();
        assert!(after < most, "{policy}: {after}\n{}", forger.mount.log());
        assert!(fs::metadata(&forger.mount.mountpoint).unwrap().is_dir());
        for said in ["the memory that it shares with belay", "given back"] {
            assert!(forger.mount.log().contains(said), "{policy}: {}", forger.mount.log());
        }
        forger.mount.stop();
        forger.mount.end();
    }
}

/// S55: what a daemon says to be on record is bounded too.
#[test]
fn s55_a_record_beyond_its_limit_is_given_up() {
    let mut forger = Forger::start(&["--recorder-limit", "1G"], |_| {
        let tops = Words::default();
        tops.store(LAYOUT.store, 1 << 24); // nodes
        tops.store(LAYOUT.store + 4, 1 << 28); // units of the heap
        tops
    });
    forger.order("words");
    let orders = Words::default();
    orders.store(LAYOUT.nodes, LAYOUT.copies as u64);
    orders.put(&forger.orders());
    let path = forger.mount.at("touch");
    let caller = call(move || fs::create_dir(path));
    assert!(caller.result().is_err());
    let status = forger.mount.end();
    assert_eq!(status.code(), Some(1), "{}", forger.mount.log());
    forger.says("may take 1024 MiB (--recorder-limit)");
}

/// S55: one that touches all, what is on record as well, has it given back too, or loses its mount.
#[test]
fn s55_a_daemon_that_touches_all_hurts_only_itself() {
    let mut forger = Forger::start(&[], |_| Words::default());
    let orders = Words::default();
    orders.store(0, LAYOUT.words as u64);
    orders.put(&forger.orders());
    let path = forger.mount.at("touch");
    let caller = call(move || fs::create_dir(path));
    assert!(caller.result().is_err());
    let settled = until(|| {
        let serves = forger.mount.status().is_some_and(|status| status["state"] == "serving");
        forger.mount.exited().is_some()
            || serves && forger.shared_bytes().is_some_and(|bytes| bytes < 64 << 20)
    });
    let log = forger.mount.log();
    assert!(settled, "{:?}\n{log}", forger.shared_bytes());
    match forger.mount.exited() {
        Some(status) => {
            assert_eq!(status.code(), Some(1), "{log}");
            forger.says("giving up on");
        }
        None => forger.mount.stop(),
    }
}

/// A FUSE file system that nobody serves.
struct Probe {
    place: TempDir,
    device: OwnedFd,
}

impl Probe {
    fn new() -> Self {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let device =
            rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = CString::new(data).unwrap();
        mount("probe", place.path(), "fuse", MountFlags::empty(), data.as_c_str()).unwrap();
        Self { place, device }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = unmount(self.place.path(), UnmountFlags::DETACH);
    }
}

/// The numbers of a mount and of its file system.
fn numbers(place: &Path) -> Option<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        (Path::new(words[4]) == place).then(|| (words[0].to_owned(), words[2].to_owned()))
    })
}

/// S56: when a mount is gone its numbers are given anew, at once; who got them is left alone.
#[test]
fn s56_a_mount_that_got_the_same_numbers_stays() {
    let met = until(|| {
        // Smaller numbers that are free are taken first.
        let _first: Vec<_> = (0..8).map(|_| Probe::new()).collect();
        let mut forger = Forger::start(&[], |_| Words::default());
        let held = numbers(&forger.mount.mountpoint).expect("a mount");
        let supervisor = forger.mount.signal("supervisor", Signal::STOP);
        forger.mount.tool(&["umount"]);
        // Other tests mount as well.
        let probes: Vec<_> = (0..4).map(|_| Probe::new()).collect();
        let same = probes.iter().find(|probe| numbers(probe.place.path()) == Some(held.clone()));
        kill(supervisor, Signal::CONT).unwrap();
        assert!(forger.mount.end().success(), "{}", forger.mount.log());
        if let Some(probe) = same {
            assert!(numbers(probe.place.path()).is_some(), "{}", forger.mount.log());
        }
        same.is_some()
    });
    assert!(met, "no mount ever got the numbers of another");
}

/// S54: supervisors that all die by themselves, soon after their start, come to an end.
#[test]
fn s54_supervisors_are_not_started_for_ever() {
    let mut forger = Forger::start(&[], |_| Words::default());
    let mut last = 0;
    let mut ended = None;
    let done = until(|| {
        if let Some(status) = forger.mount.status() {
            let pid = u32::try_from(number(&status, "/supervisor/pid")).unwrap();
            if pid != last {
                last = pid;
                let _ = kill(pid, Signal::ABORT);
            }
        }
        ended = forger.mount.exited();
        ended.is_some()
    });
    let log = forger.mount.log();
    assert!(done, "{log}");
    assert_eq!(ended.unwrap().code(), Some(1), "{log}");
    assert!(log.contains("8 supervisors in a row have ended by themselves"), "{log}");
}

/// S34: a daemon that has given up its privileges leaves the device of another mount in the mailbox, which belay would take for
/// the mount's own when that has gone.
#[test]
fn s52_no_other_mount_is_served_in_the_place_of_the_held_one() {
    let other = tempfile::tempdir().unwrap();
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR, Mode::empty()).unwrap();
    let number = device.as_raw_fd();
    let options = CString::new(format!("fd={number},rootmode=40000,user_id=0,group_id=0")).unwrap();
    mount("other", other.path(), "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
    let named = format!("{}:{number}", std::process::id());
    let variables = [("FORGE_LEAVES", Path::new(&named))];
    let mut forger =
        Forger::start_with(&variables, &["--policy", "reconcile"], |_: &Path| Words::default());
    forger.order("post");
    forger.mount.tool(&["umount"]);
    let status = forger.mount.end();
    unmount(other.path(), UnmountFlags::DETACH).unwrap();
    assert_eq!(status.code(), Some(0), "{}", forger.mount.log());
    assert!(!forger.mount.log().contains("generation 1"), "{}", forger.mount.log());
}

impl Forger {
    /// Has the daemon carry out an order that begins with a descriptor from here.
    fn order_with(&self, what: &str, fd: BorrowedFd<'_>) {
        let path = self.image.with_file_name("image.socket");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let at = self.mount.at(what);
        let caller = call(move || fs::create_dir(at));
        let (stream, _) = listener.accept().unwrap();
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
        let error = caller.result().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::XFULL.raw_os_error()), "{what}: {error}");
    }
}

/// S54: whatever device a daemon gets, or puts where belay looks for its own, belay serves the mount that it has begun with, and
/// ends with it.
#[test]
fn s54_the_device_of_another_mount_is_not_adopted() {
    for options in [&[][..], &["-o", "auto_unmount"]] {
        for order in ["receive", "exchange"] {
            for killed in [None, Some("daemon"), Some("supervisor")] {
                let probe = Probe::new();
                let mut forger = Forger::start_as(&[], &[], options, |_| Words::default());
                forger.order_with(order, probe.device.as_fd());
                if let Some(role) = killed {
                    let pid = forger.mount.signal(role, Signal::KILL);
                    let another = |status: &Value| {
                        status["state"] == "serving"
                            && number(status, &format!("/{role}/pid")) != u64::from(pid)
                    };
                    forger.mount.wait_for("service", another);
                }
                let case = format!("{options:?}, {order}, {killed:?}");
                assert!(fs::metadata(&forger.mount.mountpoint).unwrap().is_dir(), "{case}");
                forger.mount.tool(&["umount"]);
                let status = forger.mount.end();
                assert!(status.success(), "{case}: {status}\n{}", forger.mount.log());
                assert!(numbers(probe.place.path()).is_some(), "{case}");
            }
        }
    }
}
