//! What the report shows of a run of `path`, beside one of earlier code.

use serde::Serialize;

use super::goals;
use super::judged::{estimated, or_dash};
use crate::path::{changes, model::PathRun};

/// Of `path.json`, the results of earlier code are in `path-before.json`.
const BEFORE: &str = "-before.json";

/// A run of `path`, as text.
#[derive(Debug, Serialize)]
pub struct PathView {
    file: String,
    /// The file with the results of earlier code.
    before: Option<String>,
    cases: Vec<PathCaseView>,
}

#[derive(Debug, Serialize)]
struct PathCaseView {
    operation: String,
    requests: u32,
    instructions_before: String,
    instructions: String,
    ns_before: String,
    ns: String,
    interval: String,
    range: String,
    aim: String,
    verdict: &'static str,
}

/// Prepares one run; `None` if it is shown beside another one of `all`.
pub fn path_view(file: &str, run: &PathRun, all: &[(&str, &PathRun)]) -> Option<PathView> {
    let is_there = |name: &str| all.iter().any(|(other, _)| *other == name);
    if file.strip_suffix(BEFORE).is_some_and(|stem| is_there(&format!("{stem}.json"))) {
        return None;
    }
    let earlier = format!("{}{BEFORE}", file.strip_suffix(".json").unwrap_or(file));
    let before = all.iter().find(|(other, _)| *other == earlier).map(|(_, run)| run);
    let cases = run.cases.iter().map(|case| {
        let same =
            before.and_then(|run| run.cases.iter().find(|one| one.operation == case.operation));
        let aim = changes(&case.operation).map(|changes| match changes {
            true => goals::CHANGING_REQUEST_NS,
            false => goals::REQUEST_NS,
        });
        PathCaseView {
            operation: case.operation.clone(),
            requests: case.requests,
            instructions_before: or_dash(same.and_then(|one| one.instructions), 0),
            instructions: or_dash(case.instructions, 0),
            ns_before: or_dash(same.map(|one| one.ns.median), 0),
            ns: format!("{:.0}", case.ns.median),
            interval: format!("{:.0}–{:.0}", case.ns.ci_low, case.ns.ci_high),
            range: format!("{:.0}–{:.0}", case.ns.min, case.ns.max),
            aim: or_dash(aim, 0),
            verdict: aim.map_or("–", |aim| estimated(case.ns.median, case.ns.ci_low, aim)),
        }
    });
    let cases = cases.collect();
    Some(PathView { file: file.to_owned(), before: before.map(|_| earlier), cases })
}
