//! The paper's Table 8, with ours beside.

use std::fmt::Write as _;

use belay_fixtures::table::{numbers, tabulate, words};

use super::model::{PHASES, RestartFixture, RestartRun};
use crate::stats::median;

/// The paper's figures: seconds without Re-FUSE, seconds with Re-FUSE and one crash, milliseconds
/// of the restart.
fn paper(fixture: &str) -> Option<(f64, f64, f64)> {
    match fixture {
        "ntfs-3g" => Some((133.5, 134.45, 65.54)),
        "sshfs" => Some((145.0, 145.4, 255.8)),
        "avfs" => Some((129.0, 130.7, 6.0)),
        _ => None,
    }
}

fn ms(us: Option<f64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{:.2}", us / 1e3))
}

fn seconds(samples: &[f64]) -> String {
    median(samples).map_or("-".to_owned(), |s| format!("{s:.3}"))
}

/// One daemon in a line, for the terminal.
pub fn line(fixture: &RestartFixture) -> String {
    let blackout = fixture.blackout_us.as_ref();
    format!(
        "{:<10} {} crashes: restart {} ms mean, {} median, {} p99; bare start {} ms; sort {} s bare, {} s held, \
         {} s with one crash (medians)",
        fixture.fixture,
        fixture.crashes.len(),
        ms(fixture.blackout_mean_us),
        ms(blackout.map(|b| b.median)),
        ms(blackout.map(|b| b.p99)),
        ms(fixture.bare_start.as_ref().map(|s| s.median)),
        seconds(&fixture.bare_s),
        seconds(&fixture.held_s),
        seconds(&fixture.crashed_s),
    )
}

/// The table, and where the time goes.
pub fn markdown(run: &RestartRun, foot: &str) -> String {
    let mut text = format!(
        "### Restart time (Table 8)\n\n\
         A sort of {} MB, crashed once, at a random moment in its middle half; {} such sorts for each daemon.\n\n",
        run.size_mb, run.crashes
    );
    let measured = [
        "sort: bare",
        "held",
        "held, one crash",
        "restart: mean",
        "median",
        "p99",
        "start of the bare daemon",
        "paper: vanilla",
        "Re-FUSE, one crash",
        "restart",
    ];
    let columns = [vec![words("file system")], measured.map(numbers).to_vec()].concat();
    let rows = run.fixtures.iter().map(|fixture| {
        let blackout = fixture.blackout_us.as_ref();
        let theirs = paper(&fixture.fixture).map_or_else(
            || ["-"; 3].map(str::to_owned),
            |(vanilla, with, restart)| {
                [format!("{vanilla} s"), format!("{with} s"), format!("{restart} ms")]
            },
        );
        let sorts = [&fixture.bare_s, &fixture.held_s, &fixture.crashed_s];
        let times = [
            fixture.blackout_mean_us,
            blackout.map(|b| b.median),
            blackout.map(|b| b.p99),
            fixture.bare_start.as_ref().map(|s| s.median),
        ];
        let mut row = vec![fixture.fixture.clone()];
        row.extend(sorts.map(|samples| format!("{} s", seconds(samples))));
        row.extend(times.map(|us| format!("{} ms", ms(us))));
        row.extend(theirs);
        row
    });
    text += &tabulate(&columns, rows);
    text += "\nTimes of sorts and of the bare start are medians. A restart lasts from the daemon's death to its \
             successor's first reply, or to its readiness if nobody waits for one.\n\nWhen the steps were reached, in ms after the death (median, p99):\n\n";
    let phases = PHASES.map(|name| numbers(name.replace('_', " ")));
    let columns = [vec![words("file system")], phases.to_vec()].concat();
    let rows = run.fixtures.iter().map(|fixture| {
        let cell = |name| {
            let found = fixture.phases.iter().find(|(phase, _)| phase == name);
            found.map_or("-".to_owned(), |(_, spread)| {
                format!("{}, {}", ms(Some(spread.median)), ms(Some(spread.p99)))
            })
        };
        [vec![fixture.fixture.clone()], PHASES.map(cell).to_vec()].concat()
    });
    text += &tabulate(&columns, rows);
    text += "\n";
    for failure in &run.failures {
        let _ = writeln!(text, "Not measured: {}: {}\n", failure.what, failure.error);
    }
    let _ = writeln!(text, "{}", foot);
    text
}
