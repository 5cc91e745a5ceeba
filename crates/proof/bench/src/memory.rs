//! What holding a daemon costs in memory: per cached node, fixed, and per open file.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, Kind};

use crate::fixtures::{self, belay_processes};
use crate::model::{MemoryFixture, MemoryPoint, MemorySummary, ProcessMemory};
use crate::nodes::NodeTree;
use crate::procmem::{memfd_bytes, memory};
use crate::stats::fit_line;

/// Measurements between no node and all of them.
const STEPS: u64 = 4;

/// How long to wait at most for the supervisor to have drained what was recorded.
const SETTLE: Duration = Duration::from_secs(10);

/// Measures one daemon with up to `nodes` nodes and `open_files` open files; `aa` compares bare
/// with bare.
pub fn measure(kind: Kind, nodes: u64, open_files: u64, aa: bool) -> Result<MemoryFixture> {
    let (nodes, open_files) = fixtures::capped(kind, nodes, open_files)?;
    let tree = NodeTree::of_nodes(nodes);
    let open_files = open_files.min(tree.files());
    // Both are up at the same time: what the two daemons share is then divided alike.
    let bare = fixtures::start(kind, false, nodes)?;
    let held = fixtures::start(kind, !aa, nodes)?;
    let points = |fixture: &Fixture| climb(fixture, tree, open_files);
    let bare_points = points(&bare).context("on the bare mount")?;
    let held_points = points(&held).context("on the held mount")?;
    bare.stop()?;
    held.stop()?;
    Ok(MemoryFixture {
        fixture: kind.to_string(),
        nodes: NodeTree::nodes_with(tree.files()),
        open_files,
        summary: summarise(&bare_points, &held_points),
        bare: bare_points,
        held: held_points,
    })
}

/// Measures while more and more nodes are looked up, and then with files open.
fn climb(fixture: &Fixture, tree: NodeTree, open_files: u64) -> Result<Vec<MemoryPoint>> {
    // Where the tree must be made through the mount, making it caches its nodes, and there is no
    // climb to watch.
    let behind = fixture.kind().backed_by_directory();
    let mut points = vec![settled(fixture, 0, 0)?];
    tree.build(if behind { fixture.backing() } else { fixture.root() })?;
    let mut done = 0;
    for step in 1..=STEPS {
        let next = tree.files() * step / STEPS;
        NodeTree::look_up(fixture.root(), done, next)?;
        done = next;
        if behind || step == STEPS {
            points.push(settled(fixture, NodeTree::nodes_with(done), 0)?);
        }
    }
    if open_files > 0 {
        let files = NodeTree::open(fixture.root(), open_files)?;
        points.push(settled(fixture, NodeTree::nodes_with(done), open_files)?);
        drop(files);
    }
    Ok(points)
}

/// The memory once it no longer changes.
fn settled(fixture: &Fixture, nodes: u64, open_files: u64) -> Result<MemoryPoint> {
    let deadline = Instant::now() + SETTLE;
    let mut last = point(fixture, nodes, open_files)?;
    let mut calm = 0;
    while calm < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        let next = point(fixture, nodes, open_files)?;
        let (a, b) = (total(&last), total(&next));
        calm = if (a - b).abs() <= a / 1_000 { calm + 1 } else { 0 };
        last = next;
    }
    Ok(last)
}

fn point(fixture: &Fixture, nodes: u64, open_files: u64) -> Result<MemoryPoint> {
    let daemon = fixture.daemon_pid()?;
    let belay = belay_processes(fixture)?;
    let pids: Vec<u32> =
        [Some(daemon), belay.supervisor, belay.keeper].into_iter().flatten().collect();
    Ok(MemoryPoint {
        nodes,
        open_files,
        daemon: memory(daemon)?,
        supervisor: belay.supervisor.map(memory).transpose()?,
        keeper: belay.keeper.map(memory).transpose()?,
        memfd: memfd_bytes(&pids)?,
    })
}

fn outside_shmem(process: &ProcessMemory) -> i64 {
    signed(process.pss) - signed(process.pss_shmem)
}

/// belay's memory: supervisor and keeper outside shared memory, and the recorder.
fn of_belay(point: &MemoryPoint) -> i64 {
    let processes = [&point.supervisor, &point.keeper];
    processes.into_iter().flatten().map(outside_shmem).sum::<i64>() + signed(point.memfd)
}

fn total(point: &MemoryPoint) -> i64 {
    of_belay(point) + outside_shmem(&point.daemon)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes per node of what `value` picks, over the points without open files.
fn per_node(points: &[MemoryPoint], value: impl Fn(&MemoryPoint) -> i64) -> f64 {
    let line: Vec<(f64, f64)> = points
        .iter()
        .filter(|p| p.open_files == 0)
        .map(|p| (p.nodes as f64, value(p) as f64))
        .collect();
    fit_line(&line).map_or(0.0, |(_, slope)| slope)
}

/// More bytes per open file, from the last point without to the one with open files.
fn per_open_file(points: &[MemoryPoint]) -> Option<f64> {
    let with = points.iter().find(|p| p.open_files > 0)?;
    let without = points.iter().rfind(|p| p.open_files == 0)?;
    Some((total(with) - total(without)) as f64 / with.open_files as f64)
}

fn summarise(bare: &[MemoryPoint], held: &[MemoryPoint]) -> MemorySummary {
    let first =
        |points: &[MemoryPoint], value: fn(&MemoryPoint) -> i64| points.first().map_or(0, value);
    let daemon = |point: &MemoryPoint| outside_shmem(&point.daemon);
    let bare_daemon_per_node = per_node(bare, daemon);
    MemorySummary {
        belay_fixed: first(held, of_belay) - first(bare, of_belay),
        belay_per_node: per_node(held, of_belay) - per_node(bare, of_belay),
        daemon_fixed: first(held, daemon) - first(bare, daemon),
        daemon_per_node: per_node(held, daemon) - bare_daemon_per_node,
        bare_daemon_per_node,
        per_open_file: per_open_file(held).zip(per_open_file(bare)).map(|(h, b)| h - b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(private: u64, shmem: u64) -> ProcessMemory {
        ProcessMemory { rss: private + shmem, pss: private + shmem, pss_shmem: shmem, private }
    }

    #[test]
    fn held_minus_bare_is_told_apart_by_owner() {
        // Bare: 1 MB and 300 bytes a node. Held: 50 more in the daemon for each node and 4 KB more
        // fixed; belay has 2 MB in two processes, 64 KB of recorder, and grows by 120 bytes a node
        // and 40 an open file.
        let bare = |nodes: u64, open_files: u64| MemoryPoint {
            nodes,
            open_files,
            daemon: process(1_000_000 + 300 * nodes + 10 * open_files, 0),
            ..MemoryPoint::default()
        };
        let held = |nodes: u64, open_files: u64| MemoryPoint {
            nodes,
            open_files,
            daemon: process(1_004_000 + 350 * nodes + 10 * open_files, 32_000),
            supervisor: Some(process(1_500_000 + 120 * nodes + 40 * open_files, 32_000)),
            keeper: Some(process(500_000, 0)),
            memfd: 64_000,
        };
        let points = [(0, 0), (1_000, 0), (2_000, 0), (2_000, 100)];
        let climb = |f: &dyn Fn(u64, u64) -> MemoryPoint| points.map(|(n, o)| f(n, o)).to_vec();
        let summary = summarise(&climb(&bare), &climb(&held));
        assert_eq!((summary.belay_fixed, summary.daemon_fixed), (2_064_000, 4_000));
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(summary.belay_per_node, 120.0) && close(summary.daemon_per_node, 50.0));
        assert!(close(summary.bare_daemon_per_node, 300.0));
        assert!(summary.per_open_file.is_some_and(|b| close(b, 40.0)));
    }
}
