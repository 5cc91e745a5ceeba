//! A disk image that outlives belay and its daemon, for tests of what is left on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use belay_testbed::process::run;
use belay_testbed::{Belay, Kind, image};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{LIMIT, names};
use crate::custom::Custom;

pub const EPOCH: [&str; 4] = ["--policy", "epoch", "--checkpoint-interval", "1h"];

/// Where journals lie that cannot be beside their image.
pub const FOLDER: &str = "BELAY_JOURNAL_DIR";

/// A file as a block device.
pub struct Loop(pub PathBuf);

impl Loop {
    /// `None` where there are none.
    pub fn attach(file: &Path) -> Option<Self> {
        Self::attach_at(file, 0)
    }

    /// The same of what is in the file from `offset` on.
    pub fn attach_at(file: &Path, offset: u64) -> Option<Self> {
        Self::attach_with(file, &["--offset", &offset.to_string()])
    }

    /// The same with options of losetup(8).
    pub fn attach_with(file: &Path, options: &[&str]) -> Option<Self> {
        let mut command = Command::new("/sbin/losetup");
        command.args(["--find", "--show"]).args(options).arg(file);
        let output = run(command, LIMIT).ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut command = Command::new("/sbin/losetup");
        command.arg("--detach").arg(&self.0);
        let _ = run(command, LIMIT);
    }
}

/// An image in a directory of its own.
pub struct Disk {
    pub kind: Kind,
    dir: TempDir,
}

impl Disk {
    pub fn new(kind: Kind) -> Self {
        let dir = tempfile::Builder::new().prefix("belay-disk-").tempdir_in("/dev/shm").unwrap();
        let disk = Self { kind, dir };
        image::make(kind, &disk.image(), 16).unwrap();
        disk
    }

    /// A path beside the image.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.at("image")
    }

    pub fn journal(&self) -> PathBuf {
        self.at("image.belay-journal")
    }

    /// Names beside the image, its own among them.
    pub fn beside(&self) -> Vec<String> {
        names(self.dir.path())
    }

    /// Starts belay on the image under the policy `epoch`, without waiting for anything.
    pub fn start(&self, variables: &[(&str, &Path)], arguments: &[&str]) -> Custom {
        Self::start_on(&self.image(), variables, arguments)
    }

    /// The same on any image.
    pub fn start_on(image: &Path, variables: &[(&str, &Path)], arguments: &[&str]) -> Custom {
        let arguments: Vec<&str> = EPOCH.iter().chain(arguments).copied().collect();
        Custom::start_with(variables, &arguments, |place| {
            let words = ["fuse2fs", "-f", "-o", "allow_other,default_permissions,fakeroot"];
            let words = words.into_iter().map(OsString::from);
            words.chain([image.into(), place.mountpoint.into()]).collect()
        })
    }

    /// The same, and waits until it serves.
    pub fn hold(&self, arguments: &[&str]) -> Custom {
        self.hold_with(&[], arguments)
    }

    pub fn hold_with(&self, variables: &[(&str, &Path)], arguments: &[&str]) -> Custom {
        Self::serving(self.start(variables, arguments))
    }

    /// Waits until it serves.
    pub fn serving(mount: Custom) -> Custom {
        mount.wait_for("service", |status| status["state"] == "serving");
        fs::metadata(&mount.mountpoint).unwrap();
        mount
    }

    /// `belay repair ARGUMENTS IMAGE`.
    pub fn repair(&self, arguments: &[&str]) -> Output {
        self.repair_of(&self.image(), arguments)
    }

    /// The same of any image.
    pub fn repair_of(&self, image: &Path, arguments: &[&str]) -> Output {
        let mut command = Belay::find().unwrap().command();
        command.arg("repair").args(arguments).arg(image);
        command.env(FOLDER, self.at("folder"));
        run(command, LIMIT).unwrap()
    }

    /// What `belay repair --json` says it has done; it must succeed.
    pub fn repaired(&self) -> String {
        let output = self.repair(&["--json"]);
        assert!(output.status.success(), "{output:?}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["error"], Value::Null);
        let journals = value["journals"].as_array().unwrap();
        assert!(journals.len() < 2, "{value}");
        journals.first().map_or("none", |one| one["done"].as_str().unwrap()).to_owned()
    }

    /// Has the file system's own checker look at the image.
    pub fn check(&self) {
        image::check(self.kind, &self.image()).unwrap();
    }

    /// All files in the image's root, as the file system's own tool reads them: no daemon, no belay.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let dump = tempfile::tempdir().unwrap();
        let mut command = Command::new("debugfs");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.arg("-R").arg(format!("rdump / {}", dump.path().display())).arg(self.image());
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}");
        let read = |name: String| {
            let path = dump.path().join(&name);
            path.is_file().then(|| (name, fs::read(path).unwrap()))
        };
        names(dump.path()).into_iter().filter_map(read).collect()
    }
}
