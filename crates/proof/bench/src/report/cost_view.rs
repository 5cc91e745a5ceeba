//! What the report shows of a run of `cost`.

use serde::Serialize;

use super::judged::{estimated, or_dash, verdict};
use super::{Named, goals, plot};
use crate::model::{CostCase, CostFixture, CostRun};
use crate::run_file::{Results, RunFile};
use crate::stats::geometric_mean;

/// A run of `cost`, as text.
#[derive(Debug, Serialize)]
pub struct CostView {
    file: String,
    aa: bool,
    placement: String,
    rounds: usize,
    sessions: usize,
    batch_ms: u64,
    fixtures: Vec<CostFixtureView>,
    mean_of_all: String,
    plot: String,
}

#[derive(Debug, Serialize)]
struct CostFixtureView {
    fixture: String,
    mean: String,
    mean_verdict: &'static str,
    above: Vec<String>,
    each_verdict: &'static str,
    noise_mean: String,
    daemon_cpus: String,
    load: String,
    cases: Vec<CostCaseView>,
}

#[derive(Debug, Serialize)]
struct CostCaseView {
    op: String,
    threads: usize,
    bare: String,
    held: String,
    ratio: String,
    interval: String,
    quartiles: String,
    range: String,
    noise: String,
    calls: String,
    verdict: &'static str,
}

/// The bare-against-bare run that shows the noise of `cost`: the one with the same placement.
pub fn noise_of<'a>(run: &RunFile, cost: &CostRun, all: &'a [Named]) -> Option<&'a CostRun> {
    if cost.aa {
        return None;
    }
    all.iter().find_map(|other| match &other.run.results {
        Results::Cost(aa) if aa.aa && other.run.placement == run.placement => Some(aa),
        _ => None,
    })
}

/// Prepares one run; `noise` is the bare-against-bare run that belongs to it. `has_aims`: it is
/// judged.
pub fn cost_view(
    name: &str,
    run: &RunFile,
    cost: &CostRun,
    noise: Option<&CostRun>,
    has_aims: bool,
) -> CostView {
    let ratios: Vec<f64> =
        cost.fixtures.iter().flat_map(|b| &b.cases).map(|c| c.estimate.ratio).collect();
    CostView {
        file: name.to_owned(),
        aa: cost.aa,
        placement: run.placement.to_string(),
        rounds: cost.rounds,
        sessions: cost.sessions,
        batch_ms: cost.batch_ms,
        mean_of_all: or_dash(geometric_mean(&ratios), 3),
        plot: plot::cost(&cost.fixtures, has_aims.then_some(goals::COST_EACH)),
        fixtures: cost
            .fixtures
            .iter()
            .map(|fixture| {
                cost_fixture_view(
                    fixture,
                    noise.and_then(|n| n.fixtures.iter().find(|b| b.fixture == fixture.fixture)),
                )
            })
            .collect(),
    }
}

fn cost_fixture_view(fixture: &CostFixture, noise: Option<&CostFixture>) -> CostFixtureView {
    let cases: Vec<CostCaseView> =
        fixture.cases.iter().map(|case| cost_case_view(case, noise)).collect();
    let above: Vec<String> = cases
        .iter()
        .filter(|c| c.verdict != "met")
        .map(|c| format!("{} ×{} {}", c.op, c.threads, c.ratio))
        .collect();
    let worst =
        ["not met", "undecided", "met"].into_iter().find(|v| cases.iter().any(|c| c.verdict == *v));
    CostFixtureView {
        fixture: fixture.fixture.clone(),
        mean: or_dash(fixture.geometric_mean, 3),
        mean_verdict: verdict(fixture.geometric_mean, goals::COST_MEAN),
        above,
        each_verdict: worst.unwrap_or("not measured"),
        noise_mean: or_dash(noise.and_then(|n| n.geometric_mean), 3),
        daemon_cpus: format!("bare {}, held {}", fixture.daemon_cpus[0], fixture.daemon_cpus[1]),
        load: format!("{:.2} → {:.2}", fixture.load.before, fixture.load.after),
        cases,
    }
}

fn cost_case_view(case: &CostCase, noise: Option<&CostFixture>) -> CostCaseView {
    let (estimate, ratios) = (&case.estimate, &case.ratios);
    let same = |c: &&CostCase| c.op == case.op && c.threads == case.threads;
    CostCaseView {
        op: case.op.clone(),
        threads: case.threads,
        bare: format!("{:.2}", case.bare_us),
        held: format!("{:.2}", case.held_us),
        ratio: format!("{:.3}", estimate.ratio),
        interval: format!("{:.3}–{:.3}", estimate.ci_low, estimate.ci_high),
        quartiles: format!("{:.3}–{:.3}", ratios.q1, ratios.q3),
        range: format!("{:.3}–{:.3}", ratios.min, ratios.max),
        noise: or_dash(noise.and_then(|n| n.cases.iter().find(same)).map(|c| c.estimate.ratio), 3),
        calls: case
            .daemon_calls_per_op
            .map_or_else(|| "–".to_owned(), |[b, h]| format!("{b:.1} / {h:.1}")),
        verdict: estimated(estimate.ratio, estimate.ci_low, goals::COST_EACH),
    }
}
