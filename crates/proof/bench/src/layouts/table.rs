//! The page: what each layout costs beside the paper's figures, and what it survives.

use std::fmt::Write as _;

use belay_fixtures::table::{numbers, tabulate, words};
use belay_volume_sim::layout::Layout;

use super::model::{Benchmark, Cost, LayoutsRun, Survived};
use super::paper;
use crate::stats::Spread;

/// The most letters of what the simulation says of a loss.
const SAID: usize = 60;

const HEAD: &str = "# What layouts cost, and what they survive\n\n\
    Each block of a volume's metadata has two places, its twins: so many blocks apart as `--twin-offset` says. Each checkpoint has \
    the one that the last checkpoint does not have (Loris IV-A). This is what the paper's section VII-A measures in its Tables I and \
    II, on volumes.\n\n\
    Two of the layouts are unsafe, and there for comparison. With offset 0 metadata are written in place. \u{201c}0, freed at once\u{201d} \
    also uses blocks that were freed before the next checkpoint is taken; `belay volume create` has no switch for that, so the store \
    is made by this program. Data are written out of place, but for the last layout, which has `--data in-place` and so the \
    resynchronization log. The paper's file stores write data in place in all of them, and have that log in Table II alone.\n\n";

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn range(spread: &Spread, show: impl Fn(f64) -> String) -> String {
    format!("{} to {}", show(spread.min), show(spread.max))
}

fn seconds(us: f64) -> String {
    format!("{:.3} s", us / 1e6)
}

/// What a layout came to in the simulation, for the terminal.
pub fn survival_line(survived: &Survived) -> String {
    format!(
        "layout {:<16} {} of {} seeds find a loss; {} power failures, {} blocks torn",
        survived.layout, survived.losses, survived.seeds, survived.power_failures, survived.torn
    )
}

/// A benchmark, for the terminal.
pub fn lines(benchmark: &Benchmark) -> String {
    let mut text = benchmark.name.clone();
    for cost in &benchmark.layouts {
        if let (Some(us), Some(ratio)) = (&cost.us, &cost.ratio) {
            let _ = write!(
                text,
                "\n  {:<16} {:>11} ({}), {} against 0",
                cost.layout,
                seconds(us.median),
                range(us, seconds),
                percent(ratio.median)
            );
        }
    }
    text
}

/// The page.
pub fn markdown(run: &LayoutsRun, foot: &str) -> String {
    let mut text = HEAD.to_owned();
    let _ = write!(
        text,
        "## What they cost\n\nEach benchmark has a new volume with {} of memory each time, on an image that is a file, and with \
         checkpoints as they are taken otherwise. In each of the {} rounds all layouts take turns, another one first. \u{201c}Against \
         0\u{201d} is how much longer it takes than on the volume with offset 0 in the same round: the median of that over all rounds, \
         and its smallest and its largest value. Less is better everywhere.\n\n",
        run.memory, run.rounds
    );
    for benchmark in &run.benchmarks {
        let _ = write!(
            text,
            "### {}\n\n{}.\n\n{}\n",
            benchmark.name,
            benchmark.parameters,
            costs(benchmark)
        );
    }
    for failure in &run.failures {
        let _ = writeln!(text, "Not measured: {}: {}\n", failure.what, failure.error);
    }
    text += "### The paper\n\nPhysFS is a file store that survives no crash, with delayed freeing in the second column. PostMark has \
             40,000 files and 80,000 transactions there, of which alone the time is taken; the disk turns 7,200 times a minute. FileBench is not \
             run here. The peak is the most data that would have to be resynchronized after a crash if all were stored twice; no volume has \
             two copies yet, and it is not measured here.\n\n";
    let _ = write!(text, "{}\n{}\n", paper_1(), paper_2());
    text += "## What they survive\n\nThe file store alone, in the simulation ([simulation.md](simulation.md)): each seed has a store \
             of its own, which is worked with four times until the power fails at one of its writes, and then compared with a model. \
             What was written in place may be torn, as it is said when such a volume is made: reading it is an error, and it counts as \
             no loss here.\n\n";
    let _ = write!(text, "{}\n{foot}\n", survival(&run.survival));
    text
}

fn costs(benchmark: &Benchmark) -> String {
    let known = Layout::ALL.iter().any(|layout| paper::of(&benchmark.name, *layout).is_some());
    let mut columns = vec![
        words("twin offset"),
        numbers("median"),
        numbers("smallest to largest"),
        numbers("against 0"),
        numbers("smallest to largest"),
        numbers("rounds"),
    ];
    if known {
        columns.extend([words("paper"), numbers("time"), numbers("against TwinFS-0")]);
    }
    let rows = benchmark.layouts.iter().map(|cost| {
        let mut row = ours(cost);
        let layout = Layout::ALL.iter().find(|layout| layout.to_string() == cost.layout);
        if let Some(layout) = layout.filter(|_| known) {
            let theirs = paper::of(&benchmark.name, *layout);
            row.extend(theirs.map_or_else(
                || ["-"; 3].map(str::to_owned),
                |(name, seconds, ratio)| [name.into(), format!("{seconds} s"), percent(ratio)],
            ));
        }
        row
    });
    tabulate(&columns, rows)
}

fn ours(cost: &Cost) -> Vec<String> {
    let none = || ["-".to_owned(), "-".to_owned()];
    let us = cost.us.as_ref();
    let us = us.map_or_else(none, |us| [seconds(us.median), range(us, seconds)]);
    let ratio = cost.ratio.as_ref();
    let ratio = ratio.map_or_else(none, |one| [percent(one.median), range(one, percent)]);
    let mut row = vec![cost.layout.clone()];
    row.extend(us.into_iter().chain(ratio));
    row.push(cost.samples.len().to_string());
    row
}

fn paper_1() -> String {
    let mut columns = vec![words("Table I")];
    columns.extend(paper::COLUMNS_1.map(numbers));
    let rows = paper::TABLE_1.iter().map(|(name, row)| {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(row.map(|value| value.to_string()));
        cells
    });
    tabulate(&columns, rows)
}

fn paper_2() -> String {
    let mut columns = vec![words("Table II")];
    columns.extend(paper::COLUMNS_2.map(numbers));
    columns.push(numbers("peak"));
    let rows = paper::TABLE_1.iter().zip(paper::TABLE_2).zip(paper::PEAKS);
    let rows = rows.map(|(((name, _), row), peak)| {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(row.map(|value| value.to_string()));
        cells.push(format!("{peak} KB"));
        cells
    });
    tabulate(&columns, rows)
}

fn survival(all: &[Survived]) -> String {
    let columns = [
        words("twin offset"),
        numbers("seeds tried"),
        numbers("power failures"),
        numbers("seeds with a loss"),
        numbers("the first"),
        words("what is said of it"),
        numbers("blocks torn"),
    ];
    let rows = all.iter().map(|one| {
        let said = one.said.as_deref().and_then(|said| said.lines().next());
        let said = said.map(|said| said.chars().take(SAID).collect::<String>().replace('`', "'"));
        vec![
            one.layout.clone(),
            one.seeds.to_string(),
            one.power_failures.to_string(),
            one.losses.to_string(),
            one.first_seed.map_or("none".to_owned(), |seed| seed.to_string()),
            said.map_or("-".to_owned(), |said| format!("`{said}`")),
            one.torn.to_string(),
        ]
    });
    tabulate(&columns, rows)
}

/// Results for tests.
#[cfg(test)]
pub fn sample() -> LayoutsRun {
    LayoutsRun {
        rounds: 1,
        memory: "64M".into(),
        workdir: "/var/tmp".into(),
        load: crate::model::Load::default(),
        benchmarks: Vec::new(),
        survival: vec![Survived {
            layout: Layout::Twins(0).to_string(),
            seeds: 300,
            power_failures: 900,
            torn: 0,
            losses: 250,
            first_seed: Some(3),
            said: Some("block 7 is wrong\nand more".into()),
        }],
        failures: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Sample;
    use super::*;
    use belay_fixtures::table::unpadded;

    #[test]
    fn the_page_has_our_figures_beside_the_papers() {
        let mut run = sample();
        let cost = |layout: &Layout| Cost {
            layout: layout.to_string(),
            samples: vec![Sample { round: 0, us: 2e6 }],
            us: Spread::of(&[2e6]),
            ratio: Spread::of(&[1.05]),
        };
        for name in ["postmark", "Sequential read"] {
            run.benchmarks.push(Benchmark {
                name: name.into(),
                parameters: "some".into(),
                layouts: Layout::ALL.iter().map(cost).collect(),
            });
        }
        let page = unpadded(&markdown(&run, "where"));
        for row in [
            "| 16 | 2.000 s | 2.000 s to 2.000 s | +5.0 % | +5.0 % to +5.0 % | 1 | TwinFS-16 | 1144 s | +3.9 % |",
            "| 32 | 2.000 s | 2.000 s to 2.000 s | +5.0 % | +5.0 % to +5.0 % | 1 |\n",
            "| 0 | 300 | 900 | 250 | 3 | `block 7 is wrong` | 0 |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
    }
}
