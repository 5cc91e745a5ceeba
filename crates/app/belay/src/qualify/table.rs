//! The results for people.

use super::model::{Experiment, Qualification};
use super::options::Tried;
use belay_study::table;
use std::fmt::Write;

/// Operations down, policies across, then what went wrong, then the verdict.
pub fn text(all: &Qualification) -> String {
    let policies: Vec<_> = all.policies.iter().map(|column| column.policy).collect();
    let mut rows = vec![vec!["operation".to_owned(), "request".to_owned()]];
    if let Some(head) = rows.first_mut() {
        head.extend(policies.iter().map(|policy| policy.name().to_owned()));
    }
    for op in &all.operations {
        let mut row = vec![op.name.to_owned()];
        if op.supported {
            let mut runs = all.dry_runs.iter().filter(|o| o.operation == op.name);
            let request = runs.find_map(|o| o.run.title());
            row.push(request.unwrap_or_else(|| "none".to_owned()));
            row.extend(policies.iter().map(|policy| cell(all, op.name, *policy)));
        } else {
            row.push(format!("not supported: {}", op.outcome));
        }
        rows.push(row);
    }
    let mut out = aligned(&rows);
    out.push('\n');
    if let Some(user) = all.user {
        let _ = writeln!(out, "operations were done as user {user}");
    }
    for policy in &policies {
        for op in &all.operations {
            failures(&mut out, all, op.name, *policy);
        }
    }
    let missed = all.experiments.iter().filter(|e| !e.crash.reached).count();
    if missed > 0 {
        let _ = writeln!(out, "{missed} points were not reached, which says nothing about them");
    }
    for column in &all.policies {
        let name = column.policy.name();
        for trouble in &column.troubles {
            let _ = writeln!(out, "trouble: {trouble}");
        }
        if column.left_early && column.troubles.is_empty() {
            let _ = writeln!(out, "{name}: left at its first failure (--quick)");
        } else if column.left_early {
            let _ = writeln!(out, "{name}: left, as too much could not be made");
        }
    }
    for trouble in &all.troubles {
        let _ = writeln!(out, "trouble: {trouble}");
    }
    let _ = writeln!(out, "{}", all.verdict);
    out
}

/// So many of how many went well.
fn cell(all: &Qualification, operation: &str, policy: Tried) -> String {
    let made: Vec<_> = all.of(policy).filter(|e| e.operation == operation).collect();
    let good = made.iter().filter(|e| !e.failed()).count();
    let mut runs = all.dry_runs.iter().filter(|o| o.policy == policy && o.operation == operation);
    let disturbed = runs.any(|o| o.run.differs());
    let mark = if good < made.len() || disturbed { " !" } else { "" };
    if made.is_empty() && mark.is_empty() {
        return "-".to_owned();
    }
    format!("{good}/{}{mark}", made.len())
}

fn failures(out: &mut String, all: &Qualification, operation: &str, policy: Tried) {
    let mut runs = all.dry_runs.iter().filter(|o| o.policy == policy && o.operation == operation);
    if let Some(o) = runs.next().filter(|o| o.run.differs()) {
        let line = o.run.differences.trim().lines().next().unwrap_or_default();
        let _ = writeln!(out, "{operation} under {}, without a crash: {line}", policy.name());
    }
    let made: Vec<_> = all.of(policy).filter(|e| e.operation == operation).collect();
    let failed: Vec<&&Experiment> = made.iter().filter(|e| e.failed()).collect();
    let Some(first) = failed.first() else { return };
    let crash = &first.crash;
    let title = table::title(&[&crash.point], crash.call.as_deref(), &crash.signal.to_string());
    let _ = writeln!(
        out,
        "{operation} under {}: {} of {} went wrong; {title}: {}\n  again: {}",
        policy.name(),
        failed.len(),
        made.len(),
        crash.judged.reason(),
        first.replay
    );
}

/// Columns as wide as their widest cell; the last of a row may be longer.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let full = rows.iter().filter(|row| row.len() > column + 1);
        full.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{experiment, qualification};
    use super::*;
    use snapbox::{assert_data_eq, file};

    #[test]
    fn the_table_counts_and_explains() {
        let mut all = qualification(vec![
            experiment(Tried::Reconcile, "received", true),
            experiment(Tried::Reconcile, "after-1", false),
            experiment(Tried::Reconcile, "before-reply", false),
            experiment(Tried::Journal, "received", true),
        ]);
        all.policies.reverse();
        assert_data_eq!(text(&all), file!["../../tests/snapshots/qualify.txt"].raw());
    }

    #[test]
    fn what_is_not_asked_or_not_the_same_is_seen() {
        let mut all = qualification(Vec::new());
        assert!(text(&all).contains("mkdir      MKDIR: mkdir  -        -"), "{}", text(&all));
        all.dry_runs[0].run.differences = "new: only on found\nmore".to_owned();
        assert!(text(&all).contains("0/0 !"));
        assert!(
            text(&all).contains("mkdir under reconcile, without a crash: new: only on found\n")
        );
    }
}
