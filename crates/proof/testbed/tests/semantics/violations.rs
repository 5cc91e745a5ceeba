//! S48: replies that break the protocol are faults of the daemon, and no application sees one. S5: what a daemon says of
//! why it gives itself up.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_testbed::process::run;
use serde_json::Value;

use crate::common::{LIMIT, call, number};
use crate::custom::Custom;

/// A mount by `violations.c`, and the directory by which its daemons are controlled.
struct Wrong {
    mount: Custom,
    control: PathBuf,
}

impl Wrong {
    fn start(arguments: &[&str]) -> Self {
        let mut control = PathBuf::new();
        let mount = Custom::start(arguments, |place| {
            let program = place.dir.join("violations");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/violations.c");
            let mut flags = Command::new("pkg-config");
            flags.args(["--cflags", "--libs", "fuse3"]);
            let flags = String::from_utf8(run(flags, LIMIT).unwrap().stdout).unwrap();
            let mut build = Command::new("cc");
            build.args(["-O1", "-g", "-rdynamic", "-Wall", "-Wextra", "-Wno-use-after-free", "-o"]);
            build.arg(&program).arg(source).args(flags.split_whitespace()).arg("-ldl");
            let output = run(build, LIMIT).unwrap();
            assert!(output.status.success(), "{output:?}");
            control = place.dir.join("control");
            fs::create_dir(&control).unwrap();
            let words = vec![program.into(), place.behind.into(), control.clone().into()];
            [words, vec![place.mountpoint.into(), "-f".into()]].concat()
        });
        mount.serves();
        Self { mount, control }
    }

    fn crashes(&self) -> u64 {
        let serving = |status: &Value| status["state"] == "serving";
        number(&self.mount.wait_for("service", serving), "/crashes")
    }

    /// The report of the last crash.
    fn report(&self) -> Value {
        let recovered = |status: &Value| status["state"] == "serving";
        let status = self.mount.wait_for("recovery", recovered);
        let file = format!("{:04}.json", number(&status, "/reports"));
        let path = Path::new(status["report_dir"].as_str().unwrap()).join(file);
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Has the daemon give one such reply to an operation, which `act` leads to.
    fn one(&self, what: &str, act: impl FnOnce(&Custom) -> io::Result<()>) -> Value {
        let before = self.crashes();
        fs::write(self.control.join(what), "").unwrap();
        act(&self.mount).unwrap_or_else(|why| panic!("{what}: {why}\n{}", self.mount.log()));
        assert!(!self.control.join(what).exists(), "{what}: it was not given");
        assert_eq!(self.crashes(), before + 1, "{what}\n{}", self.mount.log());
        self.report()
    }
}

fn detection(report: &Value, part: &str) -> String {
    assert_eq!(report["detection"]["by"], "violation", "{report:#}");
    report["detection"][part].as_str().unwrap().to_owned()
}

/// S48: whatever is wrong with a reply, the caller gets the right one a moment later, and the report says what it was.
#[test]
fn s48_replies_that_break_the_protocol() {
    for arguments in [&[][..], &["--no-resend"], &["--policy", "journal"]] {
        let wrong = Wrong::start(arguments);
        let kinds = [
            ("length", "its length"),
            ("node", "no node"),
            ("asked", "another type"),
            ("type", "no type"),
            ("errno", "error number"),
            ("failure", "has a body"),
            ("header", "its header"),
            ("unique", "has not made"),
        ];
        for (kind, rule) in kinds {
            let report =
                wrong.one(&format!("{kind}.mkdir"), |mount| fs::create_dir(mount.at(kind)));
            assert!(detection(&report, "rule").contains(rule), "{report:#}");
            assert!(wrong.mount.behind.join(kind).is_dir(), "{kind}");
            let request = detection(&report, "request");
            let named = request.contains("MKDIR") && request.contains(kind);
            assert!(named || kind == "unique", "{request}");
            assert!(detection(&report, "reply").contains("unique="), "{report:#}");
            assert_eq!(report["crash"]["signal"], "SIGABRT", "{report:#}");
        }
        let report = wrong.one("longer.read", |mount| {
            assert_eq!(fs::read_to_string(mount.at("file"))?, "text");
            Ok(())
        });
        assert!(detection(&report, "request").contains("READ"));
        let report = wrong.one("size.getattr", |mount| {
            assert_eq!(fs::symlink_metadata(mount.at("file"))?.len(), 4);
            Ok(())
        });
        assert!(
            detection(&report, "request").contains("GETATTR")
                || detection(&report, "request").contains("LOOKUP")
        );
        let report = wrong.one("entry.readdir", |mount| {
            let mut names = crate::common::names(&mount.mountpoint);
            names.retain(|name| name == "file" || name == "length");
            assert_eq!(names, ["file", "length"]);
            Ok(())
        });
        assert!(detection(&report, "rule").contains("entry"));
        let report = wrong.one("count.write", |mount| {
            let mut file = fs::OpenOptions::new().write(true).open(mount.at("file"))?;
            file.write_all(b"next")
        });
        assert!(detection(&report, "rule").contains("written"));
        assert_eq!(fs::read_to_string(wrong.mount.behind.join("file")).unwrap(), "next");
        assert_eq!(number(&wrong.mount.status().unwrap(), "/requests/failed"), 0);
    }
}

/// S48, S40: a request to which each daemon gives such a reply is one that daemons die of.
#[test]
fn s48_who_breaks_it_each_time_fails_that_request_alone() {
    let wrong = Wrong::start(&[]);
    fs::write(wrong.control.join("always"), "").unwrap();
    fs::write(wrong.control.join("node.mkdir"), "").unwrap();
    let path = wrong.mount.at("never");
    let error = call(move || fs::create_dir(path)).result().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{}", wrong.mount.log());
    assert_eq!(number(&wrong.mount.status().unwrap(), "/requests/poisoned"), 1);
    fs::remove_file(wrong.control.join("node.mkdir")).unwrap();
    fs::create_dir(wrong.mount.at("well")).unwrap();
    assert!(wrong.mount.behind.join("well").is_dir());
}

/// S5: a failed assertion and a corrupt heap are reported in the C library's words.
#[test]
fn s5_the_report_says_why_a_daemon_gave_itself_up() {
    let wrong = Wrong::start(&[]);
    for (kind, words) in [("assert", "blocks_in_use == 0"), ("heap", "free")] {
        let report = wrong.one(&format!("{kind}.mkdir"), |mount| fs::create_dir(mount.at(kind)));
        assert_eq!(report["detection"]["by"], "death");
        let message = report["crash"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{report:#}");
    }
}
