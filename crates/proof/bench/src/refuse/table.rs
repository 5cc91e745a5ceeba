//! The paper's Tables 6 and 7, with ours beside.

use std::fmt::Write as _;

use belay_fixtures::table::{Column, numbers, tabulate, words};

use super::model::{RefuseCase, RefuseRun};
use crate::model::CostCase;
use crate::stats::geometric_mean;

/// A paper's figures.
#[derive(Debug)]
pub struct Paper {
    /// Its table of micro-benchmarks.
    pub micro: u8,
    /// That of whole programs.
    pub whole: u8,
    /// What its file systems are in, for a heading.
    with: &'static str,
    /// Columns: fixtures.
    fixtures: &'static [&'static str],
    /// Seconds by benchmark, without and with, for each of the fixtures.
    seconds: &'static [(&'static str, &'static [f64])],
    /// What is to be said of it.
    note: &'static str,
}

/// Re-FUSE (EuroSys 2011).
pub const REFUSE: Paper = Paper {
    micro: 6,
    whole: 7,
    with: "Re-FUSE",
    fixtures: &["ntfs-3g", "sshfs", "avfs"],
    seconds: &[
        ("Sequential read", &[9.2, 9.2, 91.8, 91.9, 17.1, 17.2]),
        ("Sequential write", &[13.1, 14.2, 519.7, 519.8, 17.9, 17.9]),
        ("Random read", &[150.5, 150.5, 58.6, 59.5, 154.4, 154.4]),
        ("Random write", &[11.3, 12.4, 90.4, 90.8, 53.2, 53.7]),
        ("Create", &[20.6, 23.2, 485.7, 485.8, 17.1, 17.2]),
        ("Delete", &[1.4, 1.4, 2.9, 3.0, 1.6, 1.6]),
        ("sort", &[133.5, 134.2, 145.0, 145.2, 129.0, 130.3]),
        ("openssh", &[32.5, 32.5, 55.8, 56.4, 28.9, 29.3]),
        ("postmark", &[112.0, 113.0, 5683.0, 5689.0, 141.0, 143.0]),
    ],
    note: "",
};

/// Membrane (FAST 2010). What its Table 4 has for ext2 is not in the copy at hand.
pub const MEMBRANE: Paper = Paper {
    micro: 4,
    whole: 5,
    with: "Membrane",
    fixtures: &["fuse2fs-ext3", "fusefat", "fuse2fs-ext2"],
    seconds: &[
        ("Sequential read", &[17.8, 17.8, 17.7, 17.7]),
        ("Sequential write", &[56.3, 56.3, 18.5, 20.2]),
        ("Random read", &[163.2, 163.2, 163.5, 163.6]),
        ("Random write", &[65.5, 65.5, 18.9, 18.9]),
        ("Create", &[33.9, 34.3, 32.4, 34.0]),
        ("Delete", &[18.6, 18.7, 20.8, 21.0]),
        ("sort", &[152.1, 152.5, 146.5, 146.8, 142.2, 142.6]),
        ("openssh", &[28.7, 29.1, 30.1, 30.8, 28.5, 28.9]),
        ("postmark", &[478.2, 484.1, 43.1, 43.8, 46.9, 47.2]),
    ],
    note: "The paper's are ext2, VFAT and ext3 in the kernel of Linux 2.6.15, on a disk, ext3 with a data journal; ext4 did not \
           exist. Its file has 1 GB, of which 100 MB are read and written at random, its files are 1,000 of 1 MB, PostMark has \
           3,000 files of 4 KB to 4 MB and 60,000 transactions: what is scaled down here is in the lists below the tables.\n\n",
};

impl Paper {
    /// What it has for a fixture and a benchmark: seconds without and with.
    fn seconds(&self, fixture: &str, benchmark: &str) -> Option<(f64, f64)> {
        let column = 2 * self.fixtures.iter().position(|name| *name == fixture)?;
        let (_, row) = self.seconds.iter().find(|(name, _)| *name == benchmark)?;
        Some((*row.get(column)?, *row.get(column + 1)?))
    }
}

/// With fewer sessions there is no interval: two of each order are the least that can differ.
const SESSIONS: usize = 4;

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// The confidence interval; of few sessions it would say nothing, or too much.
fn interval(case: &CostCase) -> String {
    let mut sessions: Vec<usize> = case.pairs.iter().map(|pair| pair.session).collect();
    sessions.dedup();
    if sessions.len() < SESSIONS {
        return "too few".to_owned();
    }
    format!("{} to {}", percent(case.estimate.ci_low), percent(case.estimate.ci_high))
}

/// One benchmark in a line, for the terminal.
pub fn line(case: &RefuseCase) -> String {
    let RefuseCase { result, control, .. } = case;
    let control = control.as_ref().map_or("none".to_owned(), |c| percent(c.estimate.ratio));
    format!(
        "{:<16} bare {:>8.3} s  held {:>8.3} s  {} (95 % CI {}; control {control}; {} pairs)",
        result.op,
        result.bare_us / 1e6,
        result.held_us / 1e6,
        percent(result.estimate.ratio),
        interval(result),
        result.ratios.count
    )
}

/// Both tables.
pub fn markdown(paper: &Paper, run: &RefuseRun, foot: &str) -> String {
    let mut text = paper.note.to_owned();
    for (table, what) in [(paper.micro, "Micro-benchmarks"), (paper.whole, "Macro-benchmarks")] {
        let cases: Vec<(&str, &RefuseCase)> = run
            .fixtures
            .iter()
            .flat_map(|fixture| fixture.cases.iter().map(|case| (fixture.fixture.as_str(), case)))
            .filter(|(_, case)| case.table == table)
            .collect();
        if cases.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "### {what} (Table {table})\n\n{}",
            tabulate(
                &columns(paper),
                cases.iter().map(|(fixture, case)| row(paper, fixture, case))
            )
        );
        let mut parameters: Vec<String> = Vec::new();
        for (_, case) in &cases {
            let line = format!("- {}: {}", case.result.op, case.parameters);
            if !parameters.contains(&line) {
                parameters.push(line);
            }
        }
        let _ = write!(text, "\n{}\n\n", parameters.join("\n"));
        let _ = writeln!(text, "{}\n", in_all(&cases));
    }
    for unable in run.fixtures.iter().flat_map(|fixture| &fixture.unable) {
        let why = unable.error.lines().next().unwrap_or_default();
        let _ = writeln!(text, "The bare daemon cannot do it: {}: {why}\n", unable.what);
    }
    for failure in run.fixtures.iter().flat_map(|fixture| &fixture.failures) {
        let _ = writeln!(text, "Not measured: {}: {}\n", failure.what, failure.error);
    }
    if run.belay_anywhere {
        text += "Belay's own process, a thread of which commits in the background, could run on any CPU, as the kernel's own \
                 writeback can; all else as below.\n\n";
    }
    let _ = writeln!(text, "{}", foot);
    text
}

/// What the rows of a table come to.
fn in_all(cases: &[(&str, &RefuseCase)]) -> String {
    let ratios: Vec<f64> = cases.iter().map(|(_, case)| case.result.estimate.ratio).collect();
    let mean = geometric_mean(&ratios).map_or("none".to_owned(), |mean| format!("{mean:.3}"));
    let highest = cases.iter().max_by(|(_, one), (_, other)| {
        one.result.estimate.ratio.total_cmp(&other.result.estimate.ratio)
    });
    let highest = highest.map_or(String::new(), |(fixture, case)| {
        let RefuseCase { result, .. } = case;
        format!("; highest row: {fixture}, {}, {}", result.op, percent(result.estimate.ratio))
    });
    format!("Geometric mean of the {} rows, held over bare: {mean}{highest}.", cases.len())
}

fn columns(paper: &Paper) -> Vec<Column> {
    let with = format!("with {}", paper.with);
    let measured = [
        "bare",
        "held",
        "overhead",
        "95 % interval",
        "middle half of the pairs",
        "pairs",
        "bare against bare",
        "paper: without",
        &with,
        "overhead",
    ];
    [vec![words("file system"), words("benchmark")], measured.map(numbers).to_vec()].concat()
}

fn row(paper: &Paper, fixture: &str, case: &RefuseCase) -> Vec<String> {
    let RefuseCase { result, control, .. } = case;
    let control = control.as_ref().map_or("-".to_owned(), |control| {
        format!("{} ({})", percent(control.estimate.ratio), interval(control))
    });
    let theirs = paper.seconds(fixture, &result.op).map_or_else(
        || ["-"; 3].map(str::to_owned),
        |(without, with)| [format!("{without} s"), format!("{with} s"), percent(with / without)],
    );
    let ours = [
        fixture.to_owned(),
        result.op.clone(),
        format!("{:.3} s", result.bare_us / 1e6),
        format!("{:.3} s", result.held_us / 1e6),
        percent(result.estimate.ratio),
        interval(result),
        format!("{} to {}", percent(result.ratios.q1), percent(result.ratios.q3)),
        result.ratios.count.to_string(),
        control,
    ];
    ours.into_iter().chain(theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refuse::micro::Micro;

    #[test]
    fn every_benchmark_has_the_papers_figures() {
        let micro = Micro::ALL.iter().map(ToString::to_string);
        let names: Vec<String> =
            micro.chain(belay_workloads::Name::ALL.iter().map(ToString::to_string)).collect();
        for name in &names {
            for (paper, fixture) in [
                (&REFUSE, "ntfs-3g"),
                (&REFUSE, "sshfs"),
                (&REFUSE, "avfs"),
                (&MEMBRANE, "fusefat"),
            ] {
                let (without, with) = paper.seconds(fixture, name).unwrap();
                assert!(with >= without, "{fixture}, {name}");
            }
            assert!(REFUSE.seconds("bindfs", name).is_none());
            assert!(MEMBRANE.seconds("fuse2fs-ext4", name).is_none());
        }
        // The papers' own percentages, where they are largest.
        let (without, with) = REFUSE.seconds("ntfs-3g", "Create").unwrap();
        assert_eq!(percent(with / without), "+12.6 %");
        let (without, with) = MEMBRANE.seconds("fuse2fs-ext3", "postmark").unwrap();
        assert_eq!(percent(with / without), "+1.2 %");
        assert!(MEMBRANE.seconds("fuse2fs-ext2", "Create").is_none());
    }
}
