//! The paper's Table 8, with ours beside.

use std::fmt::Write as _;

use super::model::{PHASES, RestartBed, RestartRun};
use crate::stats::median;

/// The paper's figures: seconds without Re-FUSE, seconds with Re-FUSE and one crash, milliseconds of the restart.
fn paper(bed: &str) -> Option<(f64, f64, f64)> {
    match bed {
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
pub fn line(bed: &RestartBed) -> String {
    let blackout = bed.blackout_us.as_ref();
    format!(
        "{:<10} {} crashes: restart {} ms mean, {} median, {} p99; bare start {} ms; sort {} s bare, {} s held, \
         {} s with one crash (medians)",
        bed.bed,
        bed.crashes.len(),
        ms(bed.blackout_mean_us),
        ms(blackout.map(|b| b.median)),
        ms(blackout.map(|b| b.p99)),
        ms(bed.bare_start.as_ref().map(|s| s.median)),
        seconds(&bed.bare_s),
        seconds(&bed.held_s),
        seconds(&bed.crashed_s),
    )
}

/// The table, and where the time goes.
pub fn markdown(run: &RestartRun, foot: &str) -> String {
    let mut text = format!(
        "### Restart time (Table 8)\n\n\
         A sort of {} MB, crashed once, at a random moment in its middle half; {} such sorts for each daemon.\n\n\
         | file system | sort: bare | held | held, one crash | restart: mean | median | p99 | start of the bare daemon \
         | paper: vanilla | Re-FUSE, one crash | restart |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        run.size_mb, run.crashes
    );
    for bed in &run.beds {
        let blackout = bed.blackout_us.as_ref();
        let theirs = paper(&bed.bed).map_or("- | - | -".to_owned(), |(vanilla, with, restart)| {
            format!("{vanilla} s | {with} s | {restart} ms")
        });
        let _ = writeln!(
            text,
            "| {} | {} s | {} s | {} s | {} ms | {} ms | {} ms | {} ms | {theirs} |",
            bed.bed,
            seconds(&bed.bare_s),
            seconds(&bed.held_s),
            seconds(&bed.crashed_s),
            ms(bed.blackout_mean_us),
            ms(blackout.map(|b| b.median)),
            ms(blackout.map(|b| b.p99)),
            ms(bed.bare_start.as_ref().map(|s| s.median)),
        );
    }
    text += "\nTimes of sorts and of the bare start are medians. A restart lasts from the daemon's death to its \
             successor's first reply, or to its readiness if nobody waits for one.\n\nWhen the steps were reached, in ms after the death (median, p99):\n\n\
             | file system |";
    PHASES.iter().for_each(|name| text += &format!(" {} |", name.replace('_', " ")));
    text += "\n|---|";
    PHASES.iter().for_each(|_| text += "---:|");
    text += "\n";
    for bed in &run.beds {
        let _ = write!(text, "| {} |", bed.bed);
        for name in PHASES {
            let found = bed.phases.iter().find(|(phase, _)| phase == name);
            let cell = found.map_or("-".to_owned(), |(_, spread)| {
                format!("{}, {}", ms(Some(spread.median)), ms(Some(spread.p99)))
            });
            let _ = write!(text, " {cell} |");
        }
        text += "\n";
    }
    text += "\n";
    for failure in &run.failures {
        let _ = writeln!(text, "Not measured: {}: {}\n", failure.what, failure.error);
    }
    let _ = writeln!(text, "{}", foot);
    text
}
