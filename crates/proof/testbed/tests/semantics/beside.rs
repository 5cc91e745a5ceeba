//! S57, S58: what somebody else has put beside an image that root's belay is to work on.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use belay_testbed::Kind;
use belay_testbed::process::run;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};

use crate::common::LIMIT;
use crate::custom::Custom;
use crate::disk::{Disk, FOLDER};
use crate::repair::cut_off;

/// A user without any privilege.
const ID: u32 = 65534;

/// A disk image of that user, and a folder of root's that this user may not enter.
struct Theirs {
    disk: Disk,
    victims: PathBuf,
}

impl Theirs {
    fn new() -> Self {
        let disk = Disk::new(Kind::Fuse2fsExt4);
        chown(disk.image(), Some(ID), Some(ID)).unwrap();
        let victims = disk.at("victims");
        fs::create_dir(&victims).unwrap();
        fs::set_permissions(&victims, Permissions::from_mode(0o700)).unwrap();
        Self { disk, victims }
    }

    /// A link of that user's.
    fn link(&self, to: &Path, name: &str) -> PathBuf {
        let link = self.disk.at(name);
        symlink(to, &link).unwrap();
        lchown(&link, Some(ID), Some(ID)).unwrap();
        link
    }

    /// Has belay run, under `policy`, and repair the image: each is refused, with these words.
    fn refused(&self, policies: &[&str], words: &str) {
        for how in [&[][..], &["--dry-run"], &["--force"], &["--discard"]] {
            let output = self.disk.repair(how);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{how:?}: {output:?}");
            assert!(told.contains(words), "{how:?}: {told}");
        }
        for policy in policies {
            let mut mount = self.start(policy);
            assert_eq!(mount.end().code(), Some(1), "{policy}: {}", mount.log());
            assert!(mount.log().contains(words), "{policy}: {}", mount.log());
        }
    }

    fn start(&self, policy: &str) -> Custom {
        let folder = self.disk.at("folder");
        Custom::start_with(&[(FOLDER, &folder)], &["--policy", policy], |place| {
            let words = ["fuse2fs", "-f", "-o", "fakeroot"].map(Into::into);
            words.into_iter().chain([self.disk.image().into(), place.mountpoint.into()]).collect()
        })
    }
}

/// Tells whether somebody opens a file; to look at it by O_PATH is no opening.
struct Watch(OwnedFd);

impl Watch {
    fn on(path: &Path) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let fd = inotify::init(flags).unwrap();
        inotify::add_watch(&fd, path, inotify::WatchFlags::OPEN).unwrap();
        Self(fd)
    }

    fn was_opened(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 4096]).is_ok_and(|read| read > 0)
    }
}

/// S57: a link beside an image has nothing read, written or removed that belay has not written, whatever it leads to.
#[test]
fn s57_a_link_beside_an_image_leads_to_no_file_of_others() {
    let theirs = Theirs::new();
    let mut ext4 = vec![0; 9000];
    ext4[0x438..0x43a].copy_from_slice(b"\x53\xef");
    let contents = [("empty", vec![]), ("short", vec![0; 100]), ("disk", ext4)];
    for (name, content) in contents {
        let victim = theirs.victims.join(name);
        fs::write(&victim, &content).unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        let link = theirs.link(&victim, "image.belay-journal");
        let watch = Watch::on(&victim);
        theirs.refused(&["epoch", "reconcile", "journal"], "is not to be trusted");
        assert!(!watch.was_opened(), "{name}");
        assert!(fs::read(&victim).unwrap() == content, "{name}");
        // It is no journal's either if it is that user's.
        chown(&victim, Some(ID), Some(ID)).unwrap();
        theirs.refused(&["epoch"], "is not a journal of belay");
        assert!(fs::read(&victim).unwrap() == content, "{name}");
        // Nor if the link is root's.
        lchown(&link, Some(0), Some(0)).unwrap();
        theirs.refused(&["epoch"], "is not a journal of belay");
        assert!(fs::read(&victim).unwrap() == content, "{name}");
        fs::remove_file(link).unwrap();
    }
}

/// S57: what a journal's name or link leads to is not opened before it is known to be a file.
#[test]
fn s57_what_is_no_file_is_not_opened() {
    let theirs = Theirs::new();
    let pipe = theirs.victims.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let watch = Watch::on(&pipe);
    let link = theirs.link(&pipe, "image.belay-journal");
    for owner in [ID, 0] {
        lchown(&link, Some(owner), Some(owner)).unwrap();
        theirs.refused(&["epoch"], "image.belay-journal");
    }
    fs::remove_file(&link).unwrap();
    fs::rename(&pipe, &link).unwrap();
    theirs.refused(&["epoch"], "is not a journal of belay");
    assert!(!watch.was_opened());
}

/// S57: the journal of somebody else's image is no use: a user's link to root's journal is not followed, root's own is.
#[test]
fn s57_whose_link_leads_to_a_journal_matters() {
    let elsewhere = tempfile::tempdir().unwrap();
    let journal = elsewhere.path().canonicalize().unwrap().join("journal");
    let disk = cut_off(&["--journal", journal.to_str().unwrap()]);
    chown(disk.image(), Some(ID), Some(ID)).unwrap();
    lchown(disk.journal(), Some(ID), Some(ID)).unwrap();
    let before = fs::read(&journal).unwrap();
    for how in [&[][..], &["--force"], &["--discard"]] {
        let output = disk.repair(how);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told.contains("is not to be trusted") && told.contains("--journal"), "{told}");
        assert!(fs::read(&journal).unwrap() == before);
    }
    // All of it is that user's, as if they had made it: it is applied.
    chown(&journal, Some(ID), Some(ID)).unwrap();
    assert_eq!(disk.repair(&["--dry-run"]).status.code(), Some(3));
    // A link of root's may lead to either.
    lchown(disk.journal(), Some(0), Some(0)).unwrap();
    assert_eq!(disk.repair(&["--dry-run"]).status.code(), Some(3));
    chown(&journal, Some(0), Some(0)).unwrap();
    assert_eq!(disk.repaired(), "applied");
    assert_eq!((disk.beside(), journal.exists()), (vec!["image".to_owned()], false));
}

/// S57: a journal of a stranger's is not removed either, be it empty.
#[test]
fn s57_empty_journals_of_strangers_stay() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mut mount = disk.hold(&[]);
    let empty = fs::read(disk.journal()).unwrap();
    assert!(empty.starts_with(b"belayjnl"), "it is known for one from its first moment on");
    mount.stop();
    assert!(mount.end().success(), "{}", mount.log());
    for content in [&empty[..], b""] {
        fs::write(disk.journal(), content).unwrap();
        chown(disk.journal(), Some(ID), Some(ID)).unwrap();
        let output = disk.repair(&[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is not to be trusted"));
        assert_eq!(fs::read(disk.journal()).unwrap(), content);
        chown(disk.journal(), Some(0), Some(0)).unwrap();
        assert_eq!(disk.repaired(), "nothing");
        assert_eq!(disk.beside(), ["image"]);
    }
}

/// S58: files that look as if they were kept for an image take no memory and no time of whoever mounts it, and are not opened
/// unless they may be some.
#[test]
fn s58_files_beside_an_image_are_looked_at_with_care() {
    let theirs = Theirs::new();
    let pipe = theirs.victims.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    theirs.link(&pipe, "image.belay-oplog");
    let secret = theirs.victims.join("secret");
    fs::write(&secret, "text").unwrap();
    theirs.link(&secret, "image.belay-oplog.1");
    let watches = [Watch::on(&pipe), Watch::on(&secret)];
    let long = |name: &str, start: &[u8]| {
        let file = File::create_new(theirs.disk.at(name)).unwrap();
        file.write_all_at(start, 0).unwrap();
        file.set_len(1 << 30).unwrap();
        chown(theirs.disk.at(name), Some(ID), Some(ID)).unwrap();
    };
    long("image.belay-oplog.2", b"");
    long("image.belay-oplog.3", b"belayops\x01\0\0\0");
    // One that is more than the numbers that belay gives.
    long("image.belay-oplog.123456", b"");
    let mut mount = Disk::serving(theirs.start("epoch"));
    let log = mount.log();
    assert!(watches.iter().all(|watch| !watch.was_opened()), "{log}");
    for (number, told) in [(".1,", true), (".2,", true), (".3,", true), (".123456", false)] {
        assert_eq!(log.contains(&format!("image.belay-oplog{number}")), told, "{number} {log}");
    }
    let peak = peak(mount.pid("keeper"));
    assert!(peak < 200 << 10, "{peak} KiB\n{log}");
    mount.stop();
    mount.end();
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// S58: nothing is opened, and little read, of what is named on a command line and is something else than it should be.
#[test]
fn s58_odd_arguments_are_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let watch = Watch::on(&pipe);
    let text = pipe.display().to_string();
    for words in [
        &["replay", "--list", &text][..],
        &["replay", &text, "/"],
        &["repair", &text],
        &["repair", "--journal", &text, "/proc/self/comm"],
        &["doctor", &text],
    ] {
        let mut command = belay_testbed::Belay::find().unwrap().command();
        command.args(words);
        let output = run(command, LIMIT).unwrap();
        assert!(!output.status.success(), "{words:?}: {output:?}");
    }
    assert!(!watch.was_opened());
}
