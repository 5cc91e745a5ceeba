//! S6, S30, S32, S33: the processes.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use belay_testbed::process::{kill, wait_for_exit};
use belay_testbed::{Kind, Signal};

use crate::common::{
    Held, LIMIT, Trap, When, caching, call, content, held, number, state_of, uncached, until,
};
use crate::custom::Custom;
use crate::poison::Deadly;

/// Waits until another process has this role, and everything is served.
fn replaced(bed: &Held, role: &str, old: u32) {
    bed.wait_for(&format!("new {role}"), |status| {
        let pid = status.pointer(&format!("/{role}/pid")).and_then(serde_json::Value::as_u64);
        pid.is_some_and(|pid| pid > 0 && pid != u64::from(old)) && status["state"] == "serving"
    });
}

/// Kills the process in this role, and waits for its successor.
pub fn killed(bed: &Held, role: &str) {
    let old = bed.pid(role);
    kill(old, Signal::KILL).unwrap();
    replaced(bed, role, old);
}

/// S32: without its supervisor the daemon serves on; the next supervisor recovers from the next crash.
#[test]
fn s32_the_supervisor_is_killed() {
    let bed = caching();
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).open(bed.at("file")).unwrap();
    let daemon = bed.pid("daemon");
    for round in 0..3 {
        killed(&bed, "supervisor");
        assert_eq!(bed.pid("daemon"), daemon, "the daemon noticed");
        write!(file, "{round}").unwrap();
    }
    bed.crash_and_recover();
    write!(file, "3").unwrap();
    killed(&bed, "supervisor");
    bed.crash_and_recover();
    write!(file, "4").unwrap();
    assert_eq!(content(&file), "01234");
    assert_eq!(bed.number("/takeovers"), 4);
    drop(file);
    bed.stop();
}

/// S32: of a mount whose supervisor is stuck it is said that it does not answer; the others' commands do not wait for it.
#[test]
fn s32_a_stuck_supervisor_holds_up_nobody_else() {
    let (stuck, other) = (Custom::low_level(&[], &[]), Custom::low_level(&[], &[]));
    let supervisor = stuck.pid("supervisor");
    kill(supervisor, Signal::STOP).unwrap();
    assert!(until(|| state_of(supervisor) == 'T'));
    let begin = Instant::now();
    assert_eq!(other.status().unwrap()["state"], "serving");
    let took = begin.elapsed();
    let (asked, all) = std::thread::scope(|scope| {
        let all = scope.spawn(|| Custom::belay(&["status".as_ref()]));
        let asked = Custom::belay(&["status".as_ref(), stuck.mountpoint.as_ref()]);
        (asked, all.join().unwrap())
    });
    kill(supervisor, Signal::CONT).unwrap();
    // belay would wait for the other one for five seconds.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && said.contains("no answer within 5s"), "{said}");
    // Of all mounts those are shown that answer, and it is said that there are more.
    let shown = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(shown.contains(&other.mountpoint.display().to_string()), "{shown}");
    assert_eq!(all.status.code(), Some(1), "{shown}");
    stuck.serves();
}

/// S33: the keeper is replaced as well.
#[test]
fn s33_the_keeper_is_killed() {
    let bed = caching();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(bed.at("f"))
        .unwrap();
    for _ in 0..2 {
        killed(&bed, "keeper");
        killed(&bed, "supervisor");
        bed.crash_and_recover();
        (&file).write_all(b"x").unwrap();
    }
    assert_eq!(content(&file), "xx");
    drop(file);
}

/// S6: daemon and supervisor at once, in either order, with callers at work.
#[test]
fn s06_daemon_and_supervisor_at_once() {
    for arguments in [&["--max-crashes", "0"][..], &["--max-crashes", "0", "--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], arguments);
        let root = bed.at("");
        let worker = call(move || {
            let mut log = OpenOptions::new().append(true).create(true).open(root.join("log"))?;
            for round in 0..2000 {
                writeln!(log, "{round}")?;
                if round % 10 == 0 {
                    fs::rename(root.join("log"), root.join("gol"))?;
                    fs::rename(root.join("gol"), root.join("log"))?;
                }
            }
            Ok::<_, std::io::Error>(())
        });
        let mut round = 0;
        while !worker.is_done() {
            let (daemon, supervisor) = (bed.pid("daemon"), bed.pid("supervisor"));
            let order = if round % 2 == 0 { [daemon, supervisor] } else { [supervisor, daemon] };
            for pid in order {
                let _ = kill(pid, Signal::KILL);
            }
            replaced(&bed, "supervisor", supervisor);
            bed.wait_for("successor", |status| {
                status["state"] == "serving"
                    && status["daemon"]["pid"].as_u64() != Some(u64::from(daemon))
            });
            round += 1;
        }
        worker.result().unwrap();
        let expected: String = (0..2000).map(|round| format!("{round}\n")).collect();
        assert!(fs::read_to_string(bed.behind("log")).unwrap() == expected, "after {round} rounds");
        assert!(round > 0);
        bed.stop();
    }
}

/// S6: the supervisor dies in the middle of a recovery.
#[test]
fn s06_the_supervisor_dies_in_the_blackout() {
    let bed = uncached();
    fs::write(bed.at("file"), "text").unwrap();
    let open = File::open(bed.at("file")).unwrap();
    for _ in 0..5 {
        let blackout = bed.blackout();
        let supervisor = blackout.supervisor();
        let path = bed.at("file");
        let caller = call(move || fs::read_to_string(path));
        bed.wait_for_requests(1);
        kill(supervisor, Signal::KILL).unwrap();
        assert_eq!(caller.result().unwrap(), "text");
        assert_eq!(content(&open), "text");
        replaced(&bed, "supervisor", supervisor);
    }
    drop(open);
    bed.stop();
}

/// The ssh of a bed's sshfs, which has no parent but belay: sshfs starts it through a process that ends at once.
pub fn ssh(bed: &Held) -> u32 {
    let mark = bed.behind("").display().to_string();
    let mut found = None;
    until(|| {
        let list = fs::read_dir("/proc").unwrap();
        let pids =
            list.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let is_ssh = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let identity = Path::new(mark.trim_end_matches('/')).with_file_name("sshd");
            name.trim() == "ssh"
                && String::from_utf8_lossy(&line).contains(&identity.display().to_string())
                && crate::common::state_of(*pid) != 'Z'
        };
        found = pids.into_iter().find(is_ssh);
        found.is_some()
    });
    found.expect("sshfs has an ssh")
}

fn descriptors(of: u32) -> Vec<String> {
    let dir = fs::read_dir(format!("/proc/{of}/fd")).unwrap();
    let links = dir.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// S30: what the daemon starts is not preloaded, and holds nothing of belay's: sshfs's ssh, in each generation.
#[test]
fn s30_children_of_the_daemon_inherit_nothing() {
    let bed = held(Kind::Sshfs, &[], &[]);
    for _ in 0..2 {
        let ssh = ssh(&bed);
        let environment = fs::read(format!("/proc/{ssh}/environ")).unwrap();
        for line in environment.split(|byte| *byte == 0) {
            let line = String::from_utf8_lossy(line);
            assert!(!line.starts_with("LD_PRELOAD=") && !line.starts_with("BELAY_SH"), "{line}");
            assert!(!line.starts_with("BELAY_PRELOAD="), "{line}");
        }
        let maps = fs::read_to_string(format!("/proc/{ssh}/maps")).unwrap();
        assert!(!maps.contains("belay"), "{maps}");
        for link in descriptors(ssh) {
            assert!(link != "/dev/fuse" && !link.contains("belay"), "{link}");
            assert!(!link.contains("eventfd"), "{link}");
        }
        bed.crash_and_recover();
    }
    bed.stop();
}

/// S38: the children of a dead generation do not go on working: its ssh ends with it.
#[test]
fn s38_the_dead_generation_is_fenced() {
    let bed = held(Kind::Sshfs, &[], &[]);
    fs::write(bed.at("file"), "text").unwrap();
    for _ in 0..3 {
        let old = ssh(&bed);
        bed.crash_and_recover();
        assert!(wait_for_exit(old, LIMIT).unwrap(), "{old} outlived its generation");
        assert_eq!(fs::read_to_string(bed.at("file")).unwrap(), "text");
    }
    bed.stop();
}

/// S38: writes that sshfs had on their way do not come after later ones.
#[test]
fn s38_no_late_writes() {
    let bed = held(Kind::Sshfs, &["max_conns=1"], &["--max-crashes", "0"]);
    let mut file = File::create(bed.at("file")).unwrap();
    let mut expected = Vec::new();
    for round in 0..12u8 {
        let data = vec![round; 300_000];
        file.write_all(&data).unwrap();
        expected.extend(&data);
        bed.crash();
        // Written over at once: what the dead one still had must not come on top.
        let at = expected.len() - 200_000;
        let over = vec![round + 100; 100_000];
        std::os::unix::fs::FileExt::write_all_at(&file, &over, at as u64).unwrap();
        expected[at..at + over.len()].copy_from_slice(&over);
    }
    file.sync_all().unwrap();
    drop(file);
    bed.wait_until_closed();
    assert!(fs::read(bed.behind("file")).unwrap() == expected);
    bed.stop();
}

/// S38: many small writes fit into what an SFTP server reads at once, and it forgets those when its
/// input ends.
#[test]
fn s38_small_writes_are_not_forgotten() {
    let bed = held(Kind::Sshfs, &["max_conns=1"], &["--max-crashes", "0"]);
    let mut file = File::create(bed.at("file")).unwrap();
    let mut expected: Vec<u8> = Vec::new();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| (0..12).for_each(|_| bed.crash_and_recover()));
        while !killer.is_finished() {
            // sshfs acknowledges these faster than the server takes them.
            for block in 0..1000_u16 {
                let block = block.to_le_bytes().repeat(2048);
                file.write_all(&block).unwrap();
                expected.extend(block);
            }
            if expected.len() > 40_000_000 {
                expected.clear();
                file.set_len(0).unwrap();
                file.rewind().unwrap();
            }
        }
    });
    file.sync_all().unwrap();
    drop(file);
    bed.wait_until_closed();
    assert!(fs::read(bed.behind("file")).unwrap() == expected);
    bed.stop();
}

/// S5: a crash is reported, with its signal and what was in flight.
#[test]
fn s05_crashes_are_reported() {
    let deadly = Deadly::start(&[], &[]);
    let caller = deadly.mkdir("gate");
    deadly.await_at_the_gate(1);
    deadly.mount.signal("daemon", Signal::SEGV);
    deadly.await_at_the_gate(2);
    deadly.open_the_gate();
    caller.result().unwrap();
    let status = deadly.mount.wait_for("report", |status| number(status, "/reports") == 1);
    let dir = Path::new(status["report_dir"].as_str().unwrap()).to_path_buf();
    let report = fs::read_to_string(dir.join("0001.txt")).unwrap();
    assert!(report.contains("SIGSEGV"), "{report}");
    assert!(report.contains("MKDIR") && report.contains("name=\"gate\""), "{report}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("0001.json")).unwrap()).unwrap();
    assert_eq!(json["generation"], 0);
    deadly.serves_on();
}

/// S5: the report names what was in flight at the death, also if the successor has settled it before the supervisor comes
/// to write the report.
#[test]
fn s05_late_reports_tell_of_the_death() {
    let deadly = Deadly::start(&[], &[]);
    let caller = deadly.mkdir("gate");
    deadly.await_at_the_gate(1);
    // When the successor is on its way, the supervisor first looks what the keeper has to say.
    let late = Trap::set_for_one(deadly.mount.pid("supervisor"), "^recvmsg", 1, When::Before);
    deadly.mount.signal("daemon", Signal::SEGV);
    deadly.await_at_the_gate(2);
    deadly.open_the_gate();
    caller.result().unwrap();
    drop(late);
    let status = deadly.mount.wait_for("report", |status| number(status, "/reports") == 1);
    let report = Path::new(status["report_dir"].as_str().unwrap()).join("0001.json");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let in_flight = json["in_flight"].to_string();
    assert!(in_flight.contains("MKDIR") && in_flight.contains("gate"), "{json}");
    deadly.serves_on();
}

/// S33: keeper and supervisor killed together while the daemon lives: belay is gone, and the daemon serves on.
#[test]
fn s33_keeper_and_supervisor_at_once() {
    let bed = uncached();
    fs::write(bed.at("file"), "text").unwrap();
    let (keeper, supervisor) = (bed.pid("keeper"), bed.pid("supervisor"));
    kill(keeper, Signal::KILL).unwrap();
    kill(supervisor, Signal::KILL).unwrap();
    assert!(wait_for_exit(supervisor, LIMIT).unwrap() && wait_for_exit(keeper, LIMIT).unwrap());
    assert_eq!(fs::read_to_string(bed.at("file")).unwrap(), "text");
}
