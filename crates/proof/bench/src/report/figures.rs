//! The figures as CSV files, one line for each thing measured.

use anyhow::{Context, Result};
use serde::Serialize;

use super::Named;
use crate::run_file::Results;

#[derive(Serialize)]
struct CostLine<'a> {
    file: &'a str,
    comparison: &'a str,
    placement: &'a str,
    fixture: &'a str,
    op: &'a str,
    threads: usize,
    pairs: usize,
    bare_us: f64,
    held_us: f64,
    ratio: f64,
    ratio_ci_low: f64,
    ratio_ci_high: f64,
    ratio_q1: f64,
    ratio_q3: f64,
    ratio_min: f64,
    ratio_max: f64,
    bare_calls_per_op: Option<f64>,
    held_calls_per_op: Option<f64>,
}

#[derive(Serialize)]
struct MemoryLine<'a> {
    file: &'a str,
    fixture: &'a str,
    mode: &'a str,
    nodes: u64,
    open_files: u64,
    process: &'a str,
    rss: u64,
    pss: u64,
    pss_shmem: u64,
    private: u64,
    memfd: u64,
}

#[derive(Serialize)]
struct BlackoutLine<'a> {
    file: &'a str,
    fixture: &'a str,
    nodes: u64,
    open_files: u64,
    what: &'a str,
    sample: usize,
    us: f64,
}

/// The CSV files of a report, by name. All three are there, if need be with a header only.
pub fn csv_files(runs: &[Named]) -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("cost.csv", csv(cost(runs), COST_HEADER)?),
        ("memory.csv", csv(memory(runs), MEMORY_HEADER)?),
        ("blackout.csv", csv(blackout(runs), BLACKOUT_HEADER)?),
    ])
}

const COST_HEADER: &[&str] = &[
    "file",
    "comparison",
    "placement",
    "fixture",
    "op",
    "threads",
    "pairs",
    "bare_us",
    "held_us",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "ratio_q1",
    "ratio_q3",
    "ratio_min",
    "ratio_max",
    "bare_calls_per_op",
    "held_calls_per_op",
];
const MEMORY_HEADER: &[&str] = &[
    "file",
    "fixture",
    "mode",
    "nodes",
    "open_files",
    "process",
    "rss",
    "pss",
    "pss_shmem",
    "private",
    "memfd",
];
const BLACKOUT_HEADER: &[&str] =
    &["file", "fixture", "nodes", "open_files", "what", "sample", "us"];

fn csv<T: Serialize>(lines: Vec<T>, header: &[&str]) -> Result<String> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(header).context("write the CSV header")?;
    for line in lines {
        writer.serialize(line).context("write a CSV line")?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error()).context("finish the CSV text")?;
    String::from_utf8(bytes).context("the CSV text is not UTF-8")
}

fn cost(runs: &[Named]) -> Vec<CostLine<'_>> {
    let mut lines = Vec::new();
    for Named { name, run } in runs {
        let Results::Cost(cost) = &run.results else {
            continue;
        };
        for fixture in &cost.fixtures {
            lines.extend(fixture.cases.iter().map(|case| CostLine {
                file: name,
                comparison: if cost.aa { "bare/bare" } else { "held/bare" },
                placement: if matches!(run.placement, crate::model::Placement::Free) {
                    "free"
                } else {
                    "pinned"
                },
                fixture: &fixture.fixture,
                op: &case.op,
                threads: case.threads,
                pairs: case.ratios.count,
                bare_us: case.bare_us,
                held_us: case.held_us,
                ratio: case.estimate.ratio,
                ratio_ci_low: case.estimate.ci_low,
                ratio_ci_high: case.estimate.ci_high,
                ratio_q1: case.ratios.q1,
                ratio_q3: case.ratios.q3,
                ratio_min: case.ratios.min,
                ratio_max: case.ratios.max,
                bare_calls_per_op: case.daemon_calls_per_op.map(|c| c[0]),
                held_calls_per_op: case.daemon_calls_per_op.map(|c| c[1]),
            }));
        }
    }
    lines
}

fn memory(runs: &[Named]) -> Vec<MemoryLine<'_>> {
    let mut lines = Vec::new();
    for Named { name, run } in runs {
        let Results::Memory(memory) = &run.results else {
            continue;
        };
        for fixture in &memory.fixtures {
            for (mode, points) in [("bare", &fixture.bare), ("held", &fixture.held)] {
                for point in points {
                    let processes = [
                        ("daemon", Some(point.daemon)),
                        ("supervisor", point.supervisor),
                        ("keeper", point.keeper),
                    ];
                    lines.extend(
                        processes.into_iter().filter_map(|(process, m)| Some((process, m?))).map(
                            |(process, m)| MemoryLine {
                                file: name,
                                fixture: &fixture.fixture,
                                mode,
                                nodes: point.nodes,
                                open_files: point.open_files,
                                process,
                                rss: m.rss,
                                pss: m.pss,
                                pss_shmem: m.pss_shmem,
                                private: m.private,
                                memfd: point.memfd,
                            },
                        ),
                    );
                }
            }
        }
    }
    lines
}

fn blackout(runs: &[Named]) -> Vec<BlackoutLine<'_>> {
    let mut lines = Vec::new();
    for Named { name, run } in runs {
        let Results::Blackout(blackout) = &run.results else {
            continue;
        };
        for fixture in &blackout.fixtures {
            for (what, samples) in
                [("bare start", &fixture.bare_start_us), ("pause", &fixture.pause_us)]
            {
                lines.extend(samples.iter().enumerate().map(|(sample, us)| BlackoutLine {
                    file: name,
                    fixture: &fixture.fixture,
                    nodes: fixture.nodes,
                    open_files: fixture.open_files,
                    what,
                    sample,
                    us: *us,
                }));
            }
        }
    }
    lines
}
