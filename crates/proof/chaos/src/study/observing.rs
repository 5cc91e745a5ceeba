//! An operation that nothing disturbs, observed for the points to crash at.

use super::subject::Fixtures;
use anyhow::Result;
use belay_study::{Aim, DryRun, Operation, Stock, Undisturbed};

/// So often an operation is observed until two have seen the same.
const OBSERVATIONS: usize = 5;

/// Observes an operation until two observations have the same effects: of a daemon whose threads
/// come and go one may miss some, and with them the points to crash at; and one may see an effect
/// that is there now and then, and with it a point that is not reached again. (fuse2fs writes the
/// time of the superblock, too, if a second has begun since it did so last.)
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
    let (mut run, alike) = seen_twice(|| stock.observed_at(op, aim, expected), calls)?;
    if !alike {
        run.differences +=
            "its effects are not the same each time, so some points may be left out\n";
    }
    Ok(run)
}

/// The first run that is like any before it, and true; or the last of all, and false.
fn seen_twice<T, K: PartialEq>(
    mut observe: impl FnMut() -> Result<T>,
    kind: impl Fn(&T) -> K,
) -> Result<(T, bool)> {
    let mut run = observe()?;
    let mut before = Vec::new();
    while before.len() + 1 < OBSERVATIONS {
        before.push(kind(&run));
        run = observe()?;
        if before.contains(&kind(&run)) {
            return Ok((run, true));
        }
    }
    Ok((run, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of runs that are seen one after the other, and how many there were.
    fn of(runs: &[u32]) -> (u32, bool, usize) {
        let mut seen = 0;
        let next = || {
            seen += 1;
            Ok(runs[seen - 1])
        };
        let (run, alike) = seen_twice(next, |run| *run).unwrap();
        (run, alike, seen)
    }

    #[test]
    fn two_alike_need_not_follow_each_other() {
        assert_eq!(of(&[2, 2]), (2, true, 2));
        assert_eq!(of(&[2, 3, 2]), (2, true, 3));
        assert_eq!(of(&[2, 3, 3]), (3, true, 3));
        assert_eq!(of(&[1, 2, 3, 4, 1]), (1, true, 5));
        assert_eq!(of(&[1, 2, 3, 4, 5]), (5, false, 5));
    }
}
