//! S60: servers that are away, and daemons that cannot start for other reasons.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use belay_testbed::process::{kill, wait_for_exit};
use belay_testbed::{Kind, Signal};

use crate::common::{Held, LIMIT, call, held, number, start, until};

fn sshfs(arguments: &[&str]) -> Held {
    let bed = held(Kind::Sshfs, &["dir_cache=no", "max_conns=1"], arguments);
    fs::write(bed.behind("file"), "text").unwrap();
    bed
}

/// S60: the server is away when the daemon dies, and comes back: a writer and a reader wait, and go on.
#[test]
fn s60_a_server_that_is_away_is_waited_for() {
    let mut bed = sshfs(&[]);
    bed.bed.server().unwrap().stop().unwrap();
    // Without its connection it may have ended by itself meanwhile.
    let _ = bed.bed.kill_daemon(Signal::KILL);
    let status = bed.wait_for("wait", |status| status["state"] == "waiting");
    // Neither has a descriptor of the mount yet: one that a child closes at its exec would have that wait, too.
    let (path, other) = (bed.at("file"), bed.at("written"));
    let reader = call(move || fs::read_to_string(path));
    let writer = call(move || fs::write(other, "written"));
    bed.wait_for("second try", |status| status["waiting"]["tries"].as_u64() >= Some(2));
    assert!(!reader.is_done() && !writer.is_done(), "{status}");
    // Whoever looks for the reason finds it in the log: ssh says it, and sshfs hands it on.
    let said = || {
        let words = bed.bed.last_words();
        let mut lines = words.lines().filter(|line| line.contains("the daemon does not start:"));
        lines.any(|line| {
            let own = line.split("; its last words: ").nth(1).unwrap_or_default();
            let refused = own.contains("Connection refused") || own.contains("Connection reset");
            refused && own.contains("Applications wait; try ")
        })
    };
    assert!(until(said), "{}", bed.bed.last_words());
    bed.bed.server().unwrap().start_again().unwrap();
    assert_eq!(reader.result().unwrap(), "text");
    writer.result().unwrap();
    assert_eq!(fs::read_to_string(bed.behind("written")).unwrap(), "written");
    let status = bed.wait_for("service", |status| status["state"] == "serving");
    assert!(status["waiting"].is_null(), "{status}");
    bed.stop();
}

/// S60: a daemon that ends by itself because its connection has broken has not been asked to.
#[test]
fn s60_a_connection_that_breaks_is_a_crash() {
    let mut bed = sshfs(&[]);
    let daemon = bed.bed.daemon_pid().unwrap();
    bed.bed.server().unwrap().stop().unwrap();
    assert!(wait_for_exit(daemon, LIMIT).unwrap(), "sshfs lives on without its ssh");
    bed.wait_for("wait", |status| status["state"] == "waiting");
    let path = bed.at("file");
    let reader = call(move || fs::read_to_string(path));
    bed.bed.server().unwrap().start_again().unwrap();
    assert_eq!(reader.result().unwrap(), "text");
    bed.stop();
}

/// S105: what is in flight when the connection breaks is answered by no error: sshfs answers EIO before it ends.
#[test]
fn s105_requests_of_a_connection_that_breaks_are_issued_again() {
    let mut bed = sshfs(&[]);
    for round in 0..3 {
        if round % 2 == 1 {
            // A daemon that has not answered anything yet.
            let generation = number(&bed.bed.belay_status().unwrap(), "/generation");
            bed.bed.kill_daemon(Signal::KILL).unwrap();
            bed.wait_for("successor", |status| number(status, "/generation") > generation);
        }
        let status = bed.wait_for("service", |status| status["state"] == "serving");
        let before = number(&status, "/generation");
        bed.bed.server().unwrap().freeze().unwrap();
        let calls: Vec<_> = (0..4)
            .map(|i| {
                let (file, made) = (bed.at("file"), bed.at(&format!("made-{round}-{i}")));
                call(move || {
                    if i % 2 == 0 {
                        fs::read_to_string(file)
                    } else {
                        fs::create_dir(&made).map(|()| "text".to_owned())
                    }
                })
            })
            .collect();
        bed.wait_for_requests(1); // the others may wait for the folder's lock
        bed.bed.server().unwrap().stop().unwrap();
        bed.wait_for("wait", |status| status["state"] == "waiting");
        let mut waiting = Vec::new();
        for call in calls {
            let done = call.is_done();
            if done {
                panic!("round {round}: {:?}{}", call.result(), bed.bed.last_words());
            }
            waiting.push(call);
        }
        bed.bed.server().unwrap().start_again().unwrap();
        for call in waiting {
            assert_eq!(call.result().unwrap(), "text");
        }
        let status = bed.bed.belay_status().unwrap();
        assert!(number(&status, "/generation") > before, "{status}");
        assert_eq!(number(&status, "/requests/failed"), 0, "{status}");
    }
    bed.stop();
}

/// Writes and syncs when it is told to, and says when it has. A process of its own: a descriptor of the mount that the server's
/// process closes at its exec would have that wait for itself.
const WRITER: &str = "import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
for line in sys.stdin:
    os.write(file, line.strip().encode()) if line.strip() != 'sync' else os.fsync(file)
    print('done', flush=True)
";

/// L43: the server dies with sshfs, before it has got what sshfs has acknowledged. That this may be lost is said; under the
/// policy `buffer` it is not.
#[test]
fn l43_what_sshfs_may_lose_is_said_and_can_be_kept() {
    for (arguments, keeps) in [(&[][..], false), (&["--policy", "buffer"], true)] {
        let mut bed = sshfs(arguments);
        let status = bed.bed.belay_status().unwrap();
        let said = status["policy_reason"].as_str().unwrap().contains("is lost if the connection");
        assert_eq!(said, !keeps, "{status}");
        assert_eq!(bed.bed.last_words().contains("sshfs_sync"), !keeps, "{}", bed.bed.last_words());
        let mut python = Command::new("python3");
        let mut writer = start(python.args(["-c", WRITER]).arg(bed.at("data")));
        let mut orders = writer.child().stdin.take().unwrap();
        let mut answers = BufReader::new(writer.child().stdout.take().unwrap()).lines();
        let mut order = |words: &str| {
            writeln!(orders, "{words}").unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), "done", "{words}");
        };
        order("confirmed");
        // Its connection outlives it, and brings what is on its way.
        bed.crash_and_recover();
        let status = bed.bed.belay_status().unwrap();
        assert_eq!(status["degraded"], false, "{status}");
        order("sync");
        let daemon = bed.bed.daemon_pid().unwrap();
        // It must not get it: what it confirms before it is killed is not lost, and no loss is told.
        bed.bed.server().unwrap().freeze().unwrap();
        order("acknowledged");
        kill(daemon, Signal::KILL).unwrap();
        bed.bed.server().unwrap().stop().unwrap();
        bed.bed.server().unwrap().start_again().unwrap();
        order("sync");
        drop(orders);
        assert!(writer.wait(LIMIT).unwrap().is_some_and(|status| status.success()));
        let found = fs::read_to_string(bed.behind("data")).unwrap();
        assert_eq!(found, if keeps { "confirmedacknowledged" } else { "confirmed" });
        let status = bed.bed.belay_status().unwrap();
        let told = status["degraded_reasons"].as_array().unwrap();
        let is_told = |reason: &serde_json::Value| {
            reason["kind"] == "data" && reason["what"].as_str().unwrap().starts_with("/data: ")
        };
        assert_eq!(told.iter().any(is_told), !keeps, "{status}");
        bed.stop();
    }
}
