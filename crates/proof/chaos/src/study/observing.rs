//! An operation that nothing disturbs, observed for the points to crash at.

use super::subject::Fixtures;
use anyhow::Result;
use belay_study::{Aim, DryRun, Operation, Stock, Undisturbed};

/// So often an operation is observed until two have seen the same.
const OBSERVATIONS: u32 = 5;

/// Observes an operation until two observations have the same effects: of a daemon whose threads
/// come and go one may miss some, and with them the points to crash at; and one may see a wake-up
/// that comes now and then, and with it a point that is not reached again.
///
/// # Errors
/// If it cannot be done.
pub fn observed(
    stock: &mut Stock<Fixtures>,
    op: &'static Operation,
    aim: &Aim,
    expected: &Undisturbed,
) -> Result<DryRun> {
    let calls =
        |run: &DryRun| run.effects.iter().map(|effect| effect.call.clone()).collect::<Vec<_>>();
    let mut last = stock.observed_at(op, aim, expected)?;
    for _ in 1..OBSERVATIONS {
        let run = stock.observed_at(op, aim, expected)?;
        if calls(&run) == calls(&last) {
            return Ok(run);
        }
        last = run;
    }
    last.differences += "its effects are not the same each time, so some points may be left out\n";
    Ok(last)
}
