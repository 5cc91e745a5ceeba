//! Fixtures as subjects of the study.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::process::{behind_relay, wait_for_exit};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, find_number, mounts};
use belay_study::{Look, Snapshot, Source, Subject, User};
use serde_json::Value;

use super::column::Column;
use super::inspection;

/// Fixtures of one kind, run in one way.
#[derive(Debug)]
pub struct Fixtures {
    pub kind: Kind,
    pub column: Column,
    /// Arguments of `belay run` with which it is held as it should be.
    pub best: Vec<String>,
    pub workdir: Option<PathBuf>,
    /// How long an unmount may take.
    pub limit: Duration,
}

impl Source for Fixtures {
    type Subject = Mounted;

    fn start(&mut self) -> Result<Mounted> {
        let options = FixtureOptions {
            workdir: self.workdir.clone(),
            repeatable: true,
            // Small, as it is made anew for each experiment.
            image_mib: 24,
            ..FixtureOptions::default()
        };
        // A volume is never without belay: what nobody disturbs stands for the bare daemon.
        let mode = match self.kind {
            Kind::Volume | Kind::VolumeInPlace => Mode::held(),
            _ => self.column.mode(&self.best),
        };
        let fixture = Fixture::start(self.kind, &mode, &options)?;
        Ok(Mounted { fixture, limit: self.limit, checked: Cell::new(None) })
    }

    fn stop(&mut self, subject: Mounted) -> Result<()> {
        subject.fixture.stop()
    }

    /// The image must be looked at without its daemon.
    fn is_reusable(&self) -> bool {
        self.kind.backed_by_directory() || self.kind.is_volume()
    }

    fn is_bare(&self) -> bool {
        self.column == Column::Bare
    }
}

/// A fixture that is mounted.
#[derive(Debug)]
pub struct Mounted {
    fixture: Fixture,
    limit: Duration,
    /// What the checker said.
    checked: Cell<Option<bool>>,
}

/// How long belay may take to say what it has noticed.
const NOTICE: Duration = Duration::from_secs(5);

impl Mounted {
    /// The journal by which belay brings checkpoints to the image, if there can be one.
    fn journal(&self) -> PathBuf {
        let mut name = self.fixture.backing().as_os_str().to_owned();
        name.push(".belay-journal");
        name.into()
    }

    /// Whether no checkpoint is on its way to the image.
    fn is_committed(&self) -> bool {
        // Of its header: what it holds, 0 for nothing.
        let mut state = [0; 4];
        let read = File::open(self.journal()).and_then(|file| file.read_exact_at(&mut state, 12));
        read.is_err() || state == [0; 4]
    }

    /// The signal that the daemon died of, by belay's first report, or that there is a new
    /// supervisor.
    fn notice(&self, status: &Value) -> Option<String> {
        let takeovers = find_number(status, &["takeovers"]).unwrap_or(0.0);
        let takeover = (takeovers >= 1.0).then(|| "takeover".to_owned());
        if find_number(status, &["reports"]).is_some_and(|reports| reports >= 1.0) {
            let dir = status.get("report_dir").and_then(Value::as_str)?;
            let text = std::fs::read(Path::new(dir).join("0001.json")).ok()?;
            let report: Value = serde_json::from_slice(&text).ok()?;
            let signal = report.pointer("/exit/signal").and_then(Value::as_i64);
            // A new supervisor need not know how the daemon of the old one ended.
            return signal.map(|signal| format!("signal {signal}")).or(takeover);
        }
        takeover
    }
}

impl Subject for Mounted {
    fn root(&self) -> &Path {
        self.fixture.root()
    }

    fn daemon_pid(&self) -> Result<u32> {
        behind_relay(self.fixture.daemon_pid()?)
    }

    fn supervisor_pid(&self) -> Result<u32> {
        let status = self.fixture.belay_status()?;
        let pid = status.pointer("/supervisor/pid").and_then(Value::as_u64);
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        pid.with_context(|| format!("no supervisor.pid in belay's status: {status}"))
    }

    fn commit_files(&self) -> Vec<PathBuf> {
        vec![self.fixture.backing().to_owned(), self.journal()]
    }

    fn noticed(&self) -> Option<String> {
        if !self.fixture.is_held() {
            return None;
        }
        let deadline = Instant::now() + NOTICE;
        loop {
            let found = self.fixture.belay_status().ok().and_then(|status| self.notice(&status));
            if found.is_some() || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn checked(&self) -> Option<bool> {
        self.checked.get()
    }

    /// sshfs and avfs do everything as the user that they run as, and to fusefat all files are that
    /// user's. Those of the zoo may let nobody else in.
    fn user(&self) -> User {
        let own =
            matches!(self.fixture.kind(), Kind::Sshfs | Kind::Avfs | Kind::Fusefat | Kind::Zoo(_));
        if own { User::Own } else { User::ORDINARY }
    }

    fn numbers_tell_links(&self) -> bool {
        self.fixture.kind().numbers_tell_links()
    }

    /// What a volume has in memory goes to its stores some seconds later, or now.
    fn store(&self) -> Result<()> {
        if self.fixture.kind().is_volume() { self.fixture.take_checkpoint() } else { Ok(()) }
    }

    fn is_idle(&self) -> bool {
        !mounts::requests_waiting(self.fixture.mountpoint()).is_ok_and(|n| n > 0)
            && self.is_committed()
    }

    fn abandon(&self) {
        mounts::unmount_by_force(self.fixture.mountpoint());
    }

    /// For an image that is the end of the mount: another daemon tells what is on it, and how much
    /// is free, of which a daemon that has written to it has a view of its own.
    fn look_behind(&self, name: &str, look: Look) -> Result<Option<Snapshot>> {
        let backing = self.fixture.backing();
        if self.fixture.kind().backed_by_directory() {
            return Snapshot::read(&backing.join(name), look).map(Some);
        }
        if matches!(self.fixture.kind(), Kind::Zoo(_)) || self.fixture.kind().is_volume() {
            return Ok(None); // what is behind it nobody else can read
        }
        // What becomes of it is seen in the image.
        let last = self.fixture.belay_pid().or_else(|| self.fixture.daemon_pid().ok());
        let _ = mounts::unmount_clean(self.fixture.mountpoint(), self.limit);
        mounts::unmount_by_force(self.fixture.mountpoint());
        if let Some(pid) = last {
            ensure!(wait_for_exit(pid, self.limit)?, "process {pid} does not end");
        }
        let complaint = inspection::complaint(self.fixture.kind(), backing);
        self.checked.set(Some(complaint.is_none()));
        if let Some(complaint) = complaint {
            bail!("{complaint}");
        }
        let look = Look { free: true, ..look };
        inspection::look_into(self.fixture.kind(), backing, name, look).map(Some)
    }

    fn has_server(&self) -> bool {
        self.fixture.kind() == Kind::Sshfs
    }
}
