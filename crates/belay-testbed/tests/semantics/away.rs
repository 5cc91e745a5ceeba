//! S60: servers that are away, and daemons that cannot start for other reasons.

use std::fs;

use belay_testbed::process::wait_for_exit;
use belay_testbed::{Kind, Signal};

use crate::common::{Held, LIMIT, call, held};

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
