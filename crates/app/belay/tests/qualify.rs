//! `belay qualify` on real daemons: it finds the policy that is known to be needed, and leaves
//! nothing behind. These need root, the daemons and a built shim, and are skipped without.

mod common;

use common::{can_hold, run, text};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Directories for a daemon, which is unmounted whatever happens.
struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let scratch = Self { dir };
        // Open to the user that operations are done as.
        std::fs::set_permissions(scratch.dir.path(), Permissions::from_mode(0o755)).expect("chmod");
        for name in ["back", "mnt", "temp"] {
            std::fs::create_dir(scratch.path(name)).expect("mkdir");
        }
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("canonical").join(name)
    }

    /// Runs `belay qualify OPTIONS -- COMMAND`; its output and what it wrote as JSON.
    fn qualify(&self, options: &str, command: &[&Path]) -> (Output, Value) {
        let json = self.path("json");
        let mut belay = common::belay();
        belay.arg("qualify").args(options.split_whitespace()).arg("--json").arg(&json).arg("--");
        belay.args(command).env("XDG_CONFIG_HOME", self.path("config"));
        belay.env("TMPDIR", self.path("temp"));
        let output = in_time(&belay);
        let value = std::fs::read(&json).ok().and_then(|json| serde_json::from_slice(&json).ok());
        (output, value.unwrap_or(Value::Null))
    }

    fn profile(&self, program: &str) -> String {
        let path = self.path("config/belay/profiles").join(program).with_extension("toml");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Nothing is mounted, and no file is left of the study.
    fn is_clean(&self) {
        assert!(!self.is_mounted());
        for name in ["back", "mnt", "temp"] {
            let left: Vec<_> =
                std::fs::read_dir(self.path(name)).expect("list").flatten().collect();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
    }

    fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        table.contains(&format!(" {} ", self.path("mnt").display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(self.path("mnt")).status();
        }
    }
}

/// Like `run`, but one that takes too long is asked first, so that it ends its daemons.
fn in_time(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-k", "20", "90"]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    limited.stdin(Stdio::null()).output().expect("timeout(1)")
}

/// So many of its experiments, and whether the policy was right.
fn column(all: &Value, policy: &str) -> (u64, u64, bool) {
    let columns = all["policies"].as_array().expect("policies");
    let column = columns.iter().find(|column| column["policy"] == policy).expect("a column");
    let number = |name: &str| column[name].as_u64().expect("a number");
    (number("all_right"), number("experiments"), column["right"] == true)
}

#[test]
fn bindfs_needs_the_journal_and_gets_it() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let (back, mnt) = (scratch.path("back"), scratch.path("mnt"));
    let bindfs = Path::new("bindfs");
    // Made by hand: not to be replaced.
    let by_hand = "programs = [\"bindfs\"]\npolicy = \"reconcile\"\n";
    let file = scratch.path("config/belay/profiles/bindfs.toml");
    std::fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
    std::fs::write(&file, by_hand).expect("write");
    let (output, _) = scratch.qualify("--ops mkdir", &[bindfs, &back, &mnt]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--force"), "{}", text(&output));
    assert_eq!(scratch.profile("bindfs"), by_hand);

    let options = format!("--ops mkdir,create,unlink --force --behind {}", back.display());
    let (output, all) = scratch.qualify(&options, &[bindfs, &back, &mnt]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(all["schema_version"], 1);
    assert_eq!(all["certified"], "journal");
    assert_eq!(all["user"], 1234);
    // What is made is given to its owner by a second call, after which nobody asks.
    assert_eq!(column(&all, "journal"), (38, 38, true));
    assert_eq!(column(&all, "reconcile"), (30, 38, false));
    let failed = all["experiments"].as_array().expect("experiments").iter();
    let failed = failed.filter(|e| e["consistent"] == false).map(|e| {
        [&e["operation"], &e["point"], &e["signal"]].map(|v| v.as_str().expect("text")).join(" ")
    });
    let mut known = Vec::new();
    for operation in ["create", "mkdir"] {
        for point in ["after-1", "before-2"] {
            known.extend(["SEGV", "KILL"].map(|signal| format!("{operation} {point} {signal}")));
        }
    }
    assert_eq!(failed.collect::<Vec<_>>(), known);
    let said = text(&output);
    assert!(said.contains("--policies reconcile --only mkdir/after-1/SEGV"), "{said}");
    let profile = scratch.profile("bindfs");
    assert!(
        profile.contains("policy = \"journal\"") && profile.contains("76 experiments"),
        "{profile}"
    );
    scratch.is_clean();

    // One of them again: wrong under the one policy, right under the other, and nothing is written.
    for (policy, code) in [("reconcile", 1), ("journal", 0)] {
        let options = format!("--policies {policy} --only mkdir/after-1/KILL");
        let (output, all) = scratch.qualify(&options, &[bindfs, &back, &mnt]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert_eq!(all["experiments"].as_array().map(Vec::len), Some(1));
        assert_eq!((&all["certified"], &all["profile"]), (&Value::Null, &Value::Null));
        let word = if code == 0 { "the experiment went well" } else { "the experiment went wrong" };
        assert_eq!(all["verdict"], word);
    }
    scratch.is_clean();
    is_picked_up(&scratch, &bindfs_words(&back, &mnt));
}

fn bindfs_words(back: &Path, mnt: &Path) -> Vec<PathBuf> {
    vec!["bindfs".into(), "-f".into(), back.into(), mnt.into()]
}

/// `belay run` goes by the profile of the place.
fn is_picked_up(scratch: &Scratch, words: &[PathBuf]) {
    // One that differs from what belay brings along, and from what is the default.
    let file = scratch.path("config/belay/profiles/bindfs.toml");
    let written = scratch.profile("bindfs");
    assert!(written.contains("journal"));
    for (profile, policy) in
        [(written.clone(), "journal"), (written.replace("journal", "transaction"), "transaction")]
    {
        std::fs::write(&file, profile).expect("write");
        let log = scratch.path("log");
        let mut child = common::belay()
            .args(["run", "-v", "--"])
            .args(words)
            .env("XDG_CONFIG_HOME", scratch.path("config"))
            .env("BELAY_STATE_DIR", scratch.path("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("log"))
            .spawn()
            .expect("belay");
        let ask = |word: &[&str]| {
            let mut belay = common::belay();
            belay.args(word).arg(scratch.path("mnt")).env("BELAY_STATE_DIR", scratch.path("state"));
            run(&belay)
        };
        let mut shown = Value::Null;
        for _ in 0..1000 {
            let output = ask(&["status", "--json"]);
            shown = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            if shown["state"] == "serving" || !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let stopped = ask(&["stop"]);
        if !stopped.status.success() {
            let _ = child.kill();
        }
        let _ = child.wait();
        let said = std::fs::read_to_string(&log).expect("log");
        assert_eq!(shown["policy"], policy, "{said}");
        let source = format!("policy {policy}: {}", file.display());
        assert!(said.contains(&source), "{said}");
    }
}

#[test]
fn what_is_no_daemon_is_told() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let mnt = scratch.path("mnt");
    for (words, expected) in [
        (vec![Path::new("ls"), &mnt], "is it a FUSE daemon"),
        (vec![Path::new("ls"), Path::new("/no/such/file"), &mnt], "No such file"),
        (vec![Path::new("no-such-program"), &mnt], "no-such-program"),
        (
            vec![Path::new("bindfs"), Path::new("/no/such/a"), Path::new("/no/such/b")],
            "--mountpoint",
        ),
    ] {
        let (output, all) = scratch.qualify("--ops mkdir", &words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(text(&output).contains(expected), "{words:?}: {}", text(&output));
        assert_eq!(all, Value::Null);
        scratch.is_clean();
    }
    // A daemon whose root nobody can write to.
    let (back, bindfs) = (scratch.path("back"), Path::new("bindfs"));
    let (output, _) = scratch.qualify("--ops mkdir", &[bindfs, Path::new("-oro"), &back, &mnt]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--dir"), "{}", text(&output));
    // Files that are elsewhere, which is found out after the directory was made.
    let (output, _) = scratch.qualify("--behind /proc", &[bindfs, &back, &mnt]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--behind"), "{}", text(&output));
    scratch.is_clean();
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let log = scratch.path("log");
    let file = std::fs::File::create(&log).expect("log");
    let child = common::belay()
        .args(["qualify", "--no-profile", "--", "bindfs"])
        .args([scratch.path("back"), scratch.path("mnt")])
        .env("TMPDIR", scratch.path("temp"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("dup"))
        .stderr(file)
        .spawn();
    let mut child = child.expect("belay");
    // As soon as it is at work.
    let at_work = || std::fs::read_dir(scratch.path("back")).expect("list").next().is_some();
    for _ in 0..3000 {
        if at_work() || !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    common::signal(i32::try_from(child.id()).expect("pid"), rustix::process::Signal::TERM);
    let status = child.wait().expect("wait");
    let said = std::fs::read_to_string(&log).expect("log");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("not certified: the study is incomplete: interrupted"), "{said}");
    scratch.is_clean();
}

/// libfuse's example, with something put at the start of its `main`; nothing if it cannot be built
/// here.
fn example(scratch: &Scratch, first: &str) -> Option<PathBuf> {
    let begin = "int main(int argc, char *argv[])\n{";
    patched(scratch, |source| source.replace(begin, &format!("{begin}{first}")))
}

/// The same, changed in any way.
fn patched(scratch: &Scratch, patch: impl FnOnce(&str) -> String) -> Option<PathBuf> {
    let examples = Path::new("/usr/share/doc/libfuse3-dev/examples");
    let source = std::fs::read_to_string(examples.join("passthrough_ll.c")).unwrap_or_default();
    let source = patch(&source);
    let (file, program) = (scratch.path("passthrough_ll.c"), scratch.path("passthrough_ll"));
    std::fs::write(&file, source).expect("write");
    let build = format!(
        "cc -O2 -DHAVE_UTIMENSAT -I{} {} -o {} $(pkg-config --cflags --libs fuse3)",
        examples.display(),
        file.display(),
        program.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &build]);
    let built = run(&shell).status.success();
    if !built {
        eprintln!("skipped: needs libfuse3-dev with its examples, and a compiler");
    }
    built.then_some(program)
}

/// It makes everything as the user that it runs as, by one call: nothing is left open that the
/// successor could not be asked for.
#[test]
fn a_passthrough_example_needs_no_more_than_reconcile() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let Some(program) = example(&scratch, "") else { return };
    let options =
        format!("source={},allow_other,default_permissions", scratch.path("back").display());
    let words = [&program, Path::new("-o"), Path::new(&options), &scratch.path("mnt")];
    let (output, all) = scratch.qualify("--ops mkdir,rename,append,stat --signals KILL", &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(all["certified"], "reconcile");
    assert_eq!(column(&all, "reconcile"), (18, 18, true));
    assert_eq!(all["user"], Value::Null, "what is made belongs to root");
    assert!(scratch.profile("passthrough_ll").contains("policy = \"reconcile\""));
    scratch.is_clean();
}

/// Each crash costs a mount, and the next experiment gets another.
#[test]
fn a_daemon_without_a_second_life_is_not_certified() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    // Successors have a mount namespace of their own.
    let first = r#"
        char mine[99] = "", theirs[99] = "", path[99];
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", getppid());
        if (readlink(path, theirs, 98) < 0 || readlink("/proc/self/ns/mnt", mine, 98) < 0) return 4;
        if (strcmp(mine, theirs)) return 3;"#;
    let Some(program) = example(&scratch, first) else { return };
    let options = format!("source={},allow_other", scratch.path("back").display());
    let words =
        [&program, Path::new("-f"), Path::new("-o"), Path::new(&options), &scratch.path("mnt")];
    let (output, all) = scratch.qualify("--ops mkdir,stat --signals KILL", &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    for policy in ["reconcile", "journal"] {
        assert_eq!(column(&all, policy), (0, 8, false));
    }
    let experiments = all["experiments"].as_array().expect("experiments");
    assert!(experiments.iter().all(|e| e["usable"] == false && e["reached"] == true));
    assert_eq!((&all["certified"], &all["profile"]), (&Value::Null, &Value::Null));
    let said = text(&output);
    assert!(said.contains("passthrough_ll is not certified: under each"), "{said}");
    assert!(said.contains("mkdir under journal: 5 of 5 went wrong; received KILL: "), "{said}");
    assert_eq!(scratch.profile("passthrough_ll"), "");
    scratch.is_clean();
}

/// S91: inode numbers that change from life to life are found out, and the profile says so.
#[test]
fn s91_inode_numbers_that_change_are_found_out() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let patch = |source: &str| {
        let own = "static int own_stat(int fd, const char *path, struct stat *st, int flags) {\n\
                   int failed = fstatat(fd, path, st, flags); st->st_ino += getpid() * 4096UL; return failed; }\n\
                   #define fstatat own_stat\nstruct lo_inode {";
        source.replacen("struct lo_inode {", own, 1)
    };
    let Some(program) = patched(&scratch, patch) else { return };
    let options =
        format!("source={},allow_other,default_permissions", scratch.path("back").display());
    let words = [&program, Path::new("-o"), Path::new(&options), &scratch.path("mnt")];
    let (output, all) = scratch.qualify("--ops mkdir,append,read,stat --signals KILL", &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(
        (&all["certified"], &all["inode_numbers"]),
        (&"reconcile".into(), &"volatile".into())
    );
    assert!(text(&output).contains("trying it again with --inode-numbers volatile"));
    let profile = scratch.profile("passthrough_ll");
    assert!(profile.contains("inode_numbers = \"volatile\""), "{profile}");
    scratch.is_clean();
}

/// S91: a policy under which next to nothing can be made is left, and the next one is tried.
#[test]
fn s91_what_cannot_be_tried_under_one_policy_is_tried_under_the_next() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    // It does not start where one of those that have started it was told to be so weak.
    let first = r#"
        int pid = getpid();
        for (int i = 0; i < 4; i++) {
            char path[64], text[5000] = "";
            snprintf(path, sizeof path, "/proc/%d/stat", pid);
            FILE *file = fopen(path, "r");
            if (!file || fscanf(file, "%*d %*s %*c %d", &pid) != 1) return 5;
            fclose(file);
            snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
            if (!(file = fopen(path, "r"))) break;
            size_t got = fread(text, 1, 4096, file);
            fclose(file);
            for (size_t at = 0; at < got; at++)
                if (!memcmp(text + at, "--policy\0reconcile", 19)) return 3;
        }"#;
    let Some(program) = example(&scratch, first) else { return };
    let options =
        format!("source={},allow_other,default_permissions", scratch.path("back").display());
    let words = [&program, Path::new("-o"), Path::new(&options), &scratch.path("mnt")];
    let ops = "--ops mkdir,rename,append,stat,unlink,rmdir,chmod,write --signals KILL";
    let (output, all) = scratch.qualify(ops, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(all["certified"], "journal");
    assert_eq!(column(&all, "reconcile"), (0, 0, false));
    assert_eq!(all["policies"][0]["troubles"].as_array().map(Vec::len), Some(6));
    let said = text(&output);
    assert!(said.contains("reconcile: left, as too much could not be made"), "{said}");
    assert!(scratch.profile("passthrough_ll").contains("policy = \"journal\""));
    scratch.is_clean();

    // Where nothing else is tried, that is the reason.
    let (output, all) = scratch.qualify(&format!("{ops} --policies reconcile"), &words);
    assert_eq!((output.status.code(), &all["certified"]), (Some(1), &Value::Null));
    let said = text(&output);
    assert!(said.contains("is not certified: not all could be tried: reconcile mkdir"), "{said}");
    scratch.is_clean();
}

#[test]
fn ntfs_needs_transactions_and_its_image_is_not_touched() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(24 << 20)).expect("image");
    let mut mkntfs = Command::new("mkntfs");
    mkntfs.args(["-F", "-Q", "-q"]).arg(&image);
    if !Path::new("/usr/bin/ntfs-3g").exists() || !run(&mkntfs).status.success() {
        eprintln!("skipped: needs ntfs-3g");
        return;
    }
    let before = std::fs::read(&image).expect("image");
    let words = [
        Path::new("ntfs-3g"),
        Path::new("-o"),
        Path::new("allow_other,permissions,noatime"),
        &image,
        &scratch.path("mnt"),
    ];
    let (output, all) = scratch.qualify("--ops mkdir --signals KILL --quick", &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(all["certified"], "transaction");
    let (good, made, right) = column(&all, "transaction");
    assert!(right && good == made && made > 5, "{}", text(&output));
    assert!(!column(&all, "reconcile").2);
    assert!(!column(&all, "journal").2);
    assert!(scratch.profile("ntfs-3g").contains("policy = \"transaction\""));
    assert!(std::fs::read(&image).expect("image") == before, "the original was written to");
    scratch.is_clean();

    // A checker that is never content: nothing is certified, and nothing written.
    let (output, all) =
        scratch.qualify("--ops mkdir --policies transaction --quick --force --check false", &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(all["certified"], Value::Null);
    assert!(text(&output).contains("checker `false` failed"), "{}", text(&output));
    assert_eq!(all["profile"], Value::Null);
    assert!(std::fs::read(&image).expect("image") == before);
    scratch.is_clean();
}

/// S79: an archive is no disk image, and what a daemon holds until its end is done again.
#[test]
fn s79_fuse_zip_needs_the_buffer_and_gets_it() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let (archive, mnt) = (scratch.path("scratch.zip"), scratch.path("mnt"));
    // An archive without entries: the end of its directory.
    let empty = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
    std::fs::write(&archive, &empty).expect("write");
    let (output, all) = scratch
        .qualify("--ops mkdir,write --signals KILL", &[Path::new("fuse-zip"), &archive, &mnt]);
    let policies = all["policies"].as_array().expect("policies");
    let tried: Vec<_> = policies.iter().map(|one| one["policy"].as_str().expect("name")).collect();
    assert_eq!(tried, ["reconcile", "journal", "buffer"], "{}", text(&output));
    let (good, made, _) = column(&all, "buffer");
    assert!(good == made && !column(&all, "journal").2, "{}", text(&output));
    // On a machine that is too slow for an experiment nothing is certified.
    if column(&all, "buffer").2 {
        assert_eq!((output.status.code(), &all["certified"]), (Some(0), &"buffer".into()));
        let profile = scratch.profile("fuse-zip");
        assert!(profile.contains("policy = \"buffer\"") && profile.contains("until = \"end\""));
    }
    // Only copies were worked on.
    assert_eq!(std::fs::read(&archive).expect("read"), empty);
    scratch.is_clean();
}
