//! Wrong input: each refusal names its cause and the next step, and starts nothing.

mod common;

use common::{belay, can_hold, can_mount, run, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs belay with a state directory of its own and a library that does nothing for a shim.
fn fails(words: &[&str], parts: &[&str]) {
    let state = tempfile::tempdir().expect("tempdir");
    let mut command = belay();
    command.args(words).env("BELAY_STATE_DIR", state.path().join("state"));
    let output = run(&command);
    let text = text(&output);
    assert!(!output.status.success(), "{words:?} succeeded: {text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    let left = std::fs::read_dir(state.path().join("state")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "{words:?} left something behind");
}

#[test]
fn programs_that_cannot_be_held_are_refused() {
    fails(&["run", "--", "no-such-daemon"], &["no such program in PATH", "install the daemon"]);
    fails(&["run", "--", "/no/such"], &["/no/such: no such program; check the path"]);
    fails(&["run", "--", ""], &["the daemon: its name is empty; name its program behind `--`"]);
    let mut command = belay();
    let output = run(command.args(["run", "--", "bindfs"]).env_remove("PATH"));
    assert!(text(&output).contains("bindfs: PATH is not set; set PATH"), "{}", text(&output));
    fails(&["run", "--", "/etc/passwd"], &["not an executable file"]);
    if Command::new("/sbin/mount.fuse3").output().is_ok() {
        fails(
            &["run", "--", "/sbin/mount.fuse3", "sshfs#h:", "/mnt"],
            &["it starts a daemon", "hold the daemon: `belay run -- sshfs -f h: /mnt`"],
        );
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nexec sshfs\n").expect("write");
    Command::new("chmod").arg("+x").arg(&script).status().expect("chmod");
    let script = script.to_string_lossy();
    fails(
        &["run", "--", &script],
        &["script for /bin/sh", "name the daemon that the script starts"],
    );
}

/// S58: nor does anything wait for what somebody has put where profiles are looked for.
#[test]
fn s58_a_profile_that_is_a_pipe_is_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let profiles = dir.path().join("belay/profiles");
    std::fs::create_dir_all(&profiles).expect("mkdir");
    let made = Command::new("mkfifo").arg(profiles.join("a.toml")).status();
    assert!(made.expect("mkfifo").success());
    let mut command = belay();
    command.args(["run", "--", "bindfs", "/no/such", "/mnt"]);
    command.env("XDG_CONFIG_HOME", dir.path()).env("BELAY_STATE_DIR", dir.path().join("state"));
    let output = run(&command);
    let said = text(&output);
    if !can_mount() {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a.toml"), "{said}");
}

/// A mount would hide a state directory at or below it, by whichever path that is named.
#[test]
fn s58_a_state_directory_below_the_mountpoint_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let (place, link) = (dir.path().join("mnt"), dir.path().join("link"));
    std::fs::create_dir(&place).expect("mkdir");
    std::os::unix::fs::symlink(&place, &link).expect("symlink");
    for (state, mountpoint) in [
        (place.clone(), &place),
        (place.join("state/deep"), &place),
        (link.join("state"), &place),
        (place.join("state"), &link),
    ] {
        let mut command = belay();
        command.args(["run", "--", "bindfs", "-f", "/no/such"]).arg(mountpoint);
        let output = run(command.env("BELAY_STATE_DIR", &state));
        let said = text(&output);
        assert!(!output.status.success() && said.contains("the mount would hide it"), "{said}");
        assert!(said.contains("--state-dir"), "{said}");
        assert_eq!(std::fs::read_dir(&place).expect("place").count(), 0, "nothing is made there");
    }
}

/// What belay needs besides, by whichever name.
#[test]
fn s58_a_mount_over_what_belay_needs_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/proc", &link).expect("symlink");
    for place in [Path::new("/proc"), Path::new("/dev"), &link] {
        let mut command = belay();
        command.args(["run", "--", "bindfs", "-f", "/no/such"]).arg(place);
        let output = run(command.env("BELAY_STATE_DIR", dir.path().join("state")));
        let said = text(&output);
        assert!(!output.status.success() && said.contains("choose another mountpoint"), "{said}");
    }
}

#[test]
fn wrong_options_are_explained() {
    fails(&["run"], &["--help"]);
    fails(&["run", "--memory-limit", "lots", "--", "true"], &["lots is not a size", "512M"]);
    fails(&["run", "--recorder-limit", "1M", "--", "true"], &["1M is too little", "1G"]);
    fails(&["run", "--hang-timeout", "soon", "--", "true"], &["--hang-timeout"]);
    fails(&["crash", "/mnt", "--signal", "SIGNOPE"], &["no signal is called SIGNOPE", "kill -l"]);
}

#[test]
fn mounts_that_are_not_held_are_named() {
    for command in ["status", "stop", "crash", "restart"] {
        fails(&[command, "/no/such"], &["/no/such: belay holds no mount there", "belay status"]);
        fails(&[command, "/no/such"], &["state directory", "is not there"]);
    }
}

#[test]
fn hidden_commands_refuse_a_user() {
    for command in ["supervise", "keep"] {
        fails(&[command], &["use `belay run`"]);
    }
}

#[test]
fn a_missing_shim_is_explained() {
    if !can_mount() {
        return;
    }
    let mut command = belay();
    command.args(["run", "--", "true"]).env("BELAY_SHIM_LIB", "/no/such.so");
    let output = run(&command);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(text.contains("/no/such.so: no such library; set BELAY_SHIM_LIB"), "{text}");
}

/// What would leave a mount that nobody holds is refused, with the command that holds it.
#[test]
fn mount_commands_are_refused_with_the_daemon_to_hold() {
    let remedy = "`belay run -- bindfs -f -o ro /etc /mnt`";
    for words in [
        &["mount", "-t", "fuse.bindfs", "/etc", "/mnt", "-o", "ro,noauto"][..],
        &["mount", "-t", "fuse", "bindfs#/etc", "/mnt", "-o", "ro"],
        &["mount.fuse3", "bindfs#/etc", "/mnt", "-o", "ro"],
    ] {
        fails(&[&["run", "--"], words].concat(), &["it starts a daemon", remedy]);
        fails(
            &[&["doctor", "--"], words].concat(),
            &["it starts a daemon", remedy, "cannot work here"],
        );
    }
}

#[test]
fn the_doctor_refuses_what_run_refuses() {
    for behind in [&[][..], &["-o", "ro"], &["-o", "ro", "--extpass", "cat"]] {
        let words = [&["doctor", "--", "bindfs", "/etc", "/no/such"], behind].concat();
        fails(&words, &["/no/such is not there", "mkdir"]);
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let daemon = dir.path().join("daemon");
    std::fs::copy("/usr/bin/env", &daemon).expect("copy");
    let words = ["chown nobody", "chmod 4755"];
    let able = words.iter().all(|words| {
        let (tool, what) = words.split_once(' ').expect("two");
        Command::new(tool).arg(what).arg(&daemon).status().is_ok_and(|status| status.success())
    });
    if able {
        let shown = daemon.to_string_lossy();
        for command in ["doctor", "run"] {
            fails(&[command, "--", &shown, "/mnt"], &["the system loads no library of yours"]);
        }
    }
}

/// A profile that cannot be read may be any daemon's.
#[test]
fn a_broken_profile_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let profiles = dir.path().join("belay/profiles");
    std::fs::create_dir_all(&profiles).expect("mkdir");
    std::fs::write(profiles.join("other.toml"), "programs = [\"other\"]\npolicy = \"fast\"\n")
        .expect("write");
    for words in [&["doctor"][..], &["doctor", "--", "bindfs", "/etc", "/mnt"]] {
        let output = run(belay().args(words).env("XDG_CONFIG_HOME", dir.path()));
        let text = text(&output);
        assert!(!output.status.success(), "{words:?}: {text}");
        assert!(text.contains("other.toml") && text.contains("docs/policies.md"), "{text}");
    }
}

/// A start that lacks something of its own says so at once: another try would lack it as well.
fn is_refused(limit: &str, remedy: &str) {
    let dir = tempfile::tempdir().expect("tempdir");
    let (behind, place) = (dir.path().join("behind"), dir.path().join("mnt"));
    std::fs::create_dir(&behind).expect("mkdir");
    std::fs::create_dir(&place).expect("mkdir");
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(env!("CARGO_BIN_EXE_belay"));
    command.args(["run", "--", "bindfs", "-f"]).arg(&behind).arg(&place);
    command.env("BELAY_STATE_DIR", dir.path().join("state"));
    let begin = std::time::Instant::now();
    let output = run(&command);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{limit}: {text}");
    assert!(text.starts_with("belay: error: ") && text.contains(remedy), "{limit}: {text}");
    assert!(begin.elapsed().as_secs() < 10, "{limit}: {text}");
}

/// A name that is looked for from the working directory on is one like any other.
#[test]
fn the_doctor_misses_a_relative_mountpoint() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("rd")).expect("mkdir");
    let mut command = belay();
    command.args(["doctor", "--", "bindfs", "rd", "nope"]).current_dir(dir.path());
    let output = run(&command);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("/nope is not there") && text.contains("mkdir"), "{text}");
}

/// Programs that start others, which nobody has a list of, are told by what they are: not by their
/// names.
#[test]
fn the_doctor_names_what_starts_others() {
    let dir = tempfile::tempdir().expect("tempdir");
    let place = dir.path().to_str().expect("a name in UTF-8");
    let check = |words: &[&str]| {
        let output = run(belay().args(["doctor", "--json", "--"]).args(words));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
        let checks = found["checks"].as_array().expect("checks").clone();
        let named = |name: &str| checks.iter().find(|check| check["name"] == name).cloned();
        (named("daemon").expect("the check"), named("wrapper"))
    };
    let copy = dir.path().join("nobody-knows-it");
    std::fs::copy("/usr/bin/flock", &copy).expect("copy");
    let copy = copy.to_str().expect("a name in UTF-8");
    let daemon = ["bindfs", "-f", "/etc", place];
    for wrapper in [
        &["flock", "/tmp/x"][..],
        &[copy, "/tmp/x"],
        &["chroot", "/"],
        &["prlimit", "--nofile=20000"],
        &["setarch", "-R"],
        &["choom", "-n", "0", "--"],
        &["xargs"],
    ] {
        let (checked, found) = check(&[wrapper, &daemon].concat());
        let found = found.unwrap_or_else(|| panic!("{wrapper:?}: {checked}"));
        assert_eq!(found["level"], "note", "{found}");
        let remedy = found["remedy"].as_str().expect("a remedy");
        assert!(remedy.contains("belay run -- bindfs"), "{remedy}");
    }
    // One word that is a whole command line.
    let line = daemon.join(" ");
    for wrapper in [&["script", "-c", &line][..], &["watch", &line]] {
        assert!(check(wrapper).1.is_some(), "{wrapper:?}");
        assert!(run(belay().args(["doctor", "--"]).args(wrapper)).status.success(), "{wrapper:?}");
    }
    let script = dir.path().join("fs.py");
    std::fs::write(&script, "#!/usr/bin/python3\n").expect("write");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let script = script.to_str().expect("a name in UTF-8");
    for daemon in [
        &daemon[..],
        &["bindfs", "-f", "-o", "fsname=cat", "/bin/cat", place],
        &["/usr/bin/python3", script, place],
        &[script, "cat", place],
        &["sshfs", "cat:", place],
    ] {
        let (checked, found) = check(daemon);
        assert!(found.is_none(), "{daemon:?}: {found:?}");
        assert_eq!(checked["level"], "ok", "{daemon:?}: {checked}");
    }
}

/// However few files may be open, the remedy is to have more.
#[test]
fn too_few_descriptors_are_said() {
    if !can_hold() {
        return;
    }
    // With fewer not even the libraries come to be opened.
    for limit in [4, 8, 16, 24, 30, 40, 60] {
        is_refused(&format!("--nofile={limit}"), "ulimit -n");
    }
}

/// A stack that is too small for belay, which would be ended by the kernel.
#[test]
fn too_small_a_stack_is_said() {
    if !can_hold() {
        return;
    }
    for limit in [64 << 10, 128 << 10] {
        is_refused(&format!("--stack={limit}"), "ulimit -s");
    }
}

/// Who reads no further is not told an error: belay ends as other tools do.
#[test]
fn a_pipe_that_nobody_reads_ends_it_quietly() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().expect("tempdir");
    for words in
        [&["status"][..], &["status", "--json"], &["doctor"], &["man"], &["completions", "bash"]]
    {
        let (read, write) = std::io::pipe().expect("pipe");
        drop(read);
        let mut command = belay();
        command.args(words).env("BELAY_STATE_DIR", dir.path()).stdout(write);
        let output = command.stderr(std::process::Stdio::piped()).output().expect("belay");
        assert_eq!(text(&output), "", "{words:?}");
        assert_eq!(output.status.signal(), Some(13), "{words:?}: {output:?}");
    }
}

/// What belay makes is its owner's, whatever the umask; and so is a state directory that an earlier
/// one has made too narrow.
#[test]
fn s58_a_state_directory_is_its_owners_whatever_the_umask() {
    if !can_hold() {
        return;
    }
    for user in ["0", "65534"] {
        let dir = tempfile::tempdir().expect("tempdir");
        let (home, device) = (dir.path().join("home"), dir.path().join("device"));
        std::fs::create_dir(&home).expect("mkdir");
        std::fs::create_dir(&device).expect("mkdir");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("chmod");
        let owner = user.parse().ok();
        std::os::unix::fs::chown(&home, owner, owner).expect("chown");
        for left in [None, Some(0o000), Some(0o500)] {
            let state = home.join("run/state");
            if let Some(mode) = left {
                std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode))
                    .expect("chmod");
            }
            // In a mount namespace of its own, where everybody may open the device.
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-euc"]).arg(
                "mount -t tmpfs none \"$3\"; mknod -m 666 \"$3/fuse\" c 10 229
                 mount --bind \"$3/fuse\" /dev/fuse
                 exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups \\
                   sh -c 'umask 777; exec \"$0\" run -- true' \"$2\"",
            );
            command.args(["sh", user, env!("CARGO_BIN_EXE_belay")]).arg(&device);
            command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
            let output = run(command.env("BELAY_STATE_DIR", &state));
            let text = text(&output);
            assert!(text.contains("did not mount anything"), "user {user}, {left:?}: {text}");
            for made in [&state, &home.join("run")] {
                let mode = std::fs::metadata(made).expect("made").permissions().mode();
                assert_eq!(mode & 0o7777, 0o700, "user {user}, {left:?}: {}", made.display());
            }
        }
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_is_said() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let mount =
        |words: &[&str]| run(Command::new("mount").args(words).arg(dir.path())).status.success();
    assert!(mount(&["-t", "tmpfs", "-o", "ro", "none"]));
    let mut command = belay();
    command.args(["run", "--", "true"]).env("BELAY_STATE_DIR", dir.path().join("state"));
    let output = run(&command);
    assert!(run(Command::new("umount").arg(dir.path())).status.success());
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Read-only file system") && text.contains("--state-dir"), "{text}");
}

#[test]
fn programs_that_mount_nothing_are_not_started_again() {
    if !can_mount() {
        return;
    }
    // Any library will do for a shim: these programs never open the device.
    let library = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"];
    let Some(library) = library.iter().find(|path| std::path::Path::new(path).exists()) else {
        eprintln!("skipped: found no library to load");
        return;
    };
    let state = tempfile::tempdir().expect("tempdir");
    let start = |words: &[&str]| {
        let mut command = belay();
        command.args(["run", "--"]).args(words);
        command.env("BELAY_STATE_DIR", state.path()).env("BELAY_SHIM_LIB", library);
        let output = run(&command);
        (output.status.code(), text(&output))
    };
    let (code, text) = start(&["true"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("did not mount anything: it says nothing itself"), "{text}");
    let (code, text) = start(&["ls", "/no/such/file"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("cannot access '/no/such/file'"), "its own message: {text}");
    assert!(
        text.contains("exited with code 2 before it had mounted anything; what it says"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(state.path()).expect("state").count(), 0);
}

#[test]
fn the_doctor_tells_what_it_finds() {
    let output = run(belay().args(["doctor", "--json", "--", "no-such-daemon"]));
    assert_eq!(output.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(found["schema_version"], 1);
    assert_eq!(found["able"], false);
    let checks = found["checks"].as_array().expect("checks");
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).expect("the check");
    assert_eq!(check("daemon")["level"], "missing");
    assert!(check("daemon")["remedy"].as_str().is_some_and(|text| text.contains("install")));
    check("kernel");
    check("/dev/fuse");
    check("right to mount");
    check("shim library");
}

/// Who is root in a user namespace alone has the state directory on a file system of its own, and
/// the doctor says where it may not be.
#[test]
fn s58_state_directories_in_a_namespace_of_a_user() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let copy = dir.path().join("belay");
    std::fs::copy(env!("CARGO_BIN_EXE_belay"), &copy).expect("copy");
    let own = dir.path().join("own");
    std::fs::create_dir(&own).expect("directory");
    std::os::unix::fs::chown(&own, Some(4322), Some(4322)).expect("owner");
    let found = |state: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "4322", "--regid", "4322", "--clear-groups"]);
        command.args([
            "unshare",
            "-Urm",
            "sh",
            "-c",
            "mount -t tmpfs none /mnt && exec \"$@\"",
            "sh",
        ]);
        command.arg(&copy).args(["doctor", "--json"]).env("BELAY_STATE_DIR", state);
        let output = run(&command);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{why}: {}", text(&output)));
        let checks = found["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["name"] == "state directory").expect("check").clone()
    };
    for place in ["/mnt/state", "/mnt/new/state"] {
        let found = found(Path::new(place));
        assert_eq!(found["level"], "ok", "{found}");
    }
    // Whose the folders above are nobody can tell.
    let found = found(&own.join("state"));
    assert_eq!(found["level"], "missing", "{found}");
    assert!(found["remedy"].as_str().is_some_and(|text| text.contains("BELAY_STATE_DIR")));
}

#[test]
fn completions_and_manual_pages_are_made() {
    let output = run(belay().args(["completions", "bash"]));
    assert!(output.status.success() && text(&output).contains("belay"));
    let dir = tempfile::tempdir().expect("tempdir");
    for (words, place) in [(&["man"][..], "old"), (&["man", "--dir"], "new")] {
        let place = dir.path().join(place);
        let output = run(belay().args(words).arg(&place));
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("manual pages written"), "{}", text(&output));
        assert!(place.join("belay.1").exists() && place.join("belay-run.1").exists());
        assert!(!place.join("belay-supervise.1").exists() && !place.join("belay-help.1").exists());
    }
    // A command's page is printed, and no folder of its name is made.
    let mut command = Command::new("sh");
    command.args(["-euc", "cd \"$1\"; exec \"$0\" man run"]).arg(env!("CARGO_BIN_EXE_belay"));
    let output = run(command.arg(dir.path()));
    assert!(text(&output).contains(".TH belay-run 1"), "{}", text(&output));
    assert!(text(&output).contains(r"\fB\-\-\fR \fICMD\fR..."), "{}", text(&output));
    assert!(!dir.path().join("run").exists());
    for words in [&["volume", "mount"][..], &["volume-mount"]] {
        let output = run(belay().arg("man").args(words));
        assert!(
            output.status.success() && text(&output).contains("belay\\-volume\\-mount"),
            "{words:?}"
        );
    }
    fails(&["man", "volume", "mint"], &["belay has no command volume mint"]);
    fails(&["man", "rum"], &["belay has no command rum", "belay man --dir rum"]);
}

#[test]
fn help_is_a_command_too() {
    for words in [&["help"][..], &["help", "run"], &["help", "man"]] {
        let (said, same) = (run(belay().args(words)), {
            let mut command = belay();
            run(command.args(words.get(1..).unwrap_or_default()).arg("--help"))
        });
        assert!(said.status.success(), "{words:?}: {}", text(&said));
        assert_eq!(text(&said), text(&same), "{words:?}");
    }
}

#[test]
fn the_dashes_before_a_daemons_command_are_asked_for() {
    for command in ["run", "doctor", "qualify"] {
        let words = [command, "bindfs", "-f", "/a", "/b"];
        fails(&words, &[&format!("`belay {command} -- bindfs -f /a /b`"), "write `--`"]);
    }
    fails(&["cat", "-f", "/a"], &["belay has no command `cat`", "`belay run -- cat -f /a`"]);
    assert_eq!(run(belay().args(["run", "bindfs"])).status.code(), Some(2));
}

/// A mountpoint that is missing is named, with the command that makes it.
#[test]
fn a_study_names_the_directory_that_is_missing() {
    if !can_hold() {
        return;
    }
    let words = ["qualify", "--no-profile", "--", "nice", "bindfs", "/etc", "/no/such"];
    fails(&words, &["starts another program", "`nice belay qualify -- bindfs /etc /no/such`"]);
    let words = ["qualify", "--no-profile", "--", "bindfs", "/etc", "/no/such"];
    fails(&words, &["/no/such is not there", "mkdir -p /no/such", "--mountpoint"]);
    let words = ["qualify", "--no-profile", "--mountpoint", "/no/such", "--", "bindfs", "/etc"];
    fails(&words, &["--mountpoint /no/such: there is no such directory", "mkdir -p /no/such"]);
}

/// A profile that takes the place of one that belay brings along is not taken without a word.
#[test]
fn a_profile_that_replaces_another_is_said() {
    if !can_hold() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let profiles = dir.path().join("belay/profiles");
    std::fs::create_dir_all(&profiles).expect("mkdir");
    let text = "programs = [\"bindfs\"]\npolicy = \"reconcile\"\n";
    std::fs::write(profiles.join("mine.toml"), text).expect("write");
    let mount = dir.path().join("mount");
    std::fs::create_dir(&mount).expect("mkdir");
    let start = |options: &[&str]| {
        let mut command = belay();
        command.arg("run").args(options).args(["--", "bindfs", "/no/such"]).arg(&mount);
        command.env("XDG_CONFIG_HOME", dir.path()).env("BELAY_STATE_DIR", dir.path().join("state"));
        text_of(&command)
    };
    let said = start(&[]);
    assert!(said.contains("policy reconcile, as ") && said.contains("mine.toml says"), "{said}");
    assert!(said.contains("instead of the built-in profile bindfs (policy journal)"), "{said}");
    assert!(!start(&["--policy", "journal"]).contains("instead of"));
}

fn text_of(command: &Command) -> String {
    text(&run(command))
}

/// What an ordinary user lacks for a daemon that others are to see is said when its start fails of
/// that.
#[test]
fn what_allow_other_takes_is_said() {
    if !can_hold() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let (home, device) = (dir.path().join("home"), dir.path().join("device"));
    for place in [&home, &device, &home.join("source"), &home.join("mount")] {
        std::fs::create_dir(place).expect("mkdir");
        std::os::unix::fs::chown(place, Some(4323), Some(4323)).expect("chown");
    }
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    std::fs::write(dir.path().join("fuse.conf"), "#user_allow_other\n").expect("write");
    // In a mount namespace of its own, where everybody may open the device.
    let start = |daemon: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc"]).arg(
            "mount -t tmpfs none \"$1\"; mknod -m 666 \"$1/fuse\" c 10 229
             mount --bind \"$1/fuse\" /dev/fuse; mount --bind \"$2\" /etc/fuse.conf; shift 2
             exec setpriv --reuid 4323 --regid 4323 --clear-groups \"$0\" run -- \"$@\"",
        );
        command.arg(env!("CARGO_BIN_EXE_belay")).arg(&device).arg(dir.path().join("fuse.conf"));
        command.args(daemon).arg(home.join("source")).arg(home.join("mount"));
        text_of(command.env("HOME", &home).env("BELAY_STATE_DIR", home.join("state")))
    };
    for daemon in [&["bindfs", "-f"][..], &["bindfs", "-f", "--no-allow-other", "-o", "allow_root"]]
    {
        let said = start(daemon);
        assert!(said.contains("add a line user_allow_other to /etc/fuse.conf"), "{said}");
    }
    let said = start(&["bindfs", "-f", "--no-allow-other", "-o", "no_such_option"]);
    assert!(said.contains("Not started again") && !said.contains("user_allow_other"), "{said}");
}

/// What has nothing to do with FUSE is not said to be a daemon that can be held.
#[test]
fn the_doctor_knows_what_is_no_daemon() {
    let output = run(belay().args(["doctor", "--", "ls"]));
    let said = text(&output);
    assert!(said.contains("/ls does not look like a FUSE daemon"), "{said}");
    assert!(
        !said.contains("can be held") && said.contains("probably not on this program"),
        "{said}"
    );
}

/// The state directory that is looked at is the one that `belay run` would have.
#[test]
fn the_doctor_looks_at_the_named_state_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    let place = dir.path().join("place");
    let output = run(belay().args(["doctor", "--state-dir"]).arg(&place));
    let line = format!("state directory: {}", place.display());
    assert!(text(&output).contains(&line), "{}", text(&output));
}

/// Each reason why belay holds no mount at a place is said as what it is.
#[test]
fn why_nothing_is_held_is_said() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (state, missing) = (dir.path().join("state"), dir.path().join("missing"));
    std::fs::create_dir(&state).expect("mkdir");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let status = |state: &Path, words: &[&str]| {
        let mut command = belay();
        command
            .arg("status")
            .args(words)
            .arg("--state-dir")
            .arg(state)
            .env_remove("BELAY_STATE_DIR");
        let output = run(&command);
        (output.status.code(), text(&output))
    };
    for words in [&[][..], &["/no/such"], &["--json"]] {
        let (code, said) = status(&missing, words);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("missing is not there"), "{said}");
    }
    let (code, said) = status(&state, &[]);
    assert!(code == Some(0) && said.contains("belay holds no mount"), "{said}");
    let (code, said) = status(&state, &["/no/such"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing is mounted there, and no other mount is held"), "{said}");
    let (_, said) = status(&state, &["/proc"]);
    assert!(said.contains("a proc file system is mounted there"), "{said}");
    // By the variable as well.
    let output = run(belay().arg("status").env("BELAY_STATE_DIR", &missing));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}
