//! Membrane's Table 6, with ours beside.

use std::fmt::Write as _;

use belay_fixtures::table::{numbers, tabulate, words};

use super::model::{RecoveryCase, RecoveryFixture, RecoveryRun, Series};
use crate::stats::median;

fn ms(us: Option<f64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{:.2}", us / 1e3))
}

fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

fn median_of(case: &RecoveryCase, of: impl Fn(&super::model::Crash) -> f64) -> Option<f64> {
    median(&case.samples(of))
}

/// One case in a line, for the terminal.
pub fn line(case: &RecoveryCase, bare_start: &[f64]) -> String {
    let bare = median(bare_start);
    format!(
        "{:>6} {}: pause {} ms median, {} p99; bare start {} ms; op-log: {} requests, the daemon's part {} ms; belay's \
         own {} ms; paper {} ms",
        case.size,
        case.series.unit(),
        ms(median_of(case, |c| c.pause_us)),
        ms(case.spread(|c| c.pause_us).map(|s| s.p99)),
        ms(bare),
        median_of(case, |c| c.records as f64).unwrap_or(0.0),
        ms(median_of(case, |c| c.daemon_us)),
        ms(bare.and_then(|bare| case.own_us(bare))),
        case.series.paper(case.size).map_or("-".to_owned(), |ms| format!("{ms}")),
    )
}

/// All tables.
pub fn markdown(run: &RecoveryRun, foot: &str) -> String {
    let mut text = format!(
        "### Recovery time (Membrane's Table 6)\n\n\
         For each row the daemon is killed {} times with that much uncheckpointed work (policy `{}`, no checkpoints by \
         time). *Pause*: how long an application waits that asks for an attribute at that moment. It consists of the bare \
         daemon's start to its first answer; *replay*, the time the successor's daemon takes for the requests of the op-log; \
         and *belay's own*, the rest. Times are medians in milliseconds unless noted.\n\n\
         The paper produces its log records by reads, which leave no records here: reads are one series, and two more are added. \
         Of writes to the same pages the op-log keeps only the last (the paper's page stealing); changes of times must all \
         be replayed. When the op-log is half full a checkpoint is made, which empties it. Only the last rows have early \
         checkpoints, which by default come long before that.\n\n",
        run.crashes, run.policy
    );
    for fixture in &run.fixtures {
        table(&mut text, fixture);
    }
    for failure in &run.failures {
        let _ = writeln!(text, "Not measured: {}: {}\n", failure.what, failure.error);
    }
    let _ = writeln!(text, "{}", foot);
    text
}

fn table(text: &mut String, fixture: &RecoveryFixture) {
    let bare = median(&fixture.bare_start_us);
    let _ =
        write!(text, "#### {}\n\nStart of the bare daemon: {} ms.\n\n", fixture.fixture, ms(bare));
    let measured = [
        "pause: mean",
        "median",
        "p99",
        "until the shim is loaded",
        "start",
        "op-log and in flight",
        "requests replayed",
        "replay",
        "belay's own",
        "own, per request",
        "CPU of the successor",
        "files open again",
        "paper",
    ];
    let columns = [vec![words("at the crash")], measured.map(numbers).to_vec()].concat();
    let rows = fixture.cases.iter().map(|case| {
        let pauses = case.samples(|c| c.pause_us);
        let amount = match case.series {
            Series::Empty => "nothing".to_owned(),
            series => format!("{} {}", case.size, series.unit()),
        };
        let reopened =
            (case.series == Series::Sessions).then(|| median_of(case, |c| c.reopened_us));
        vec![
            amount,
            ms(mean(&pauses)),
            ms(median(&pauses)),
            ms(case.spread(|c| c.pause_us).map(|s| s.p99)),
            ms(median_of(case, |c| c.attached_us)),
            ms(median_of(case, |c| c.start_us)),
            ms(median_of(case, |c| c.settle_us)),
            median_of(case, |c| c.records as f64).unwrap_or(0.0).to_string(),
            ms(median_of(case, |c| c.daemon_us)),
            ms(bare.and_then(|bare| case.own_us(bare))),
            case.own_per_record_us().map_or("-".to_owned(), |us| format!("{us:.2} us")),
            ms(median_of(case, |c| c.cpu_us)),
            ms(reopened.flatten()),
            case.series.paper(case.size).map_or("-".to_owned(), |ms| format!("{ms}")),
        ]
    });
    let _ = writeln!(text, "{}", tabulate(&columns, rows));
    for series in Series::ALL {
        let cases: Vec<_> = fixture.cases.iter().filter(|case| case.series == series).collect();
        if let Some(told) = growth(&cases, bare) {
            let _ = writeln!(text, "- {}: {told}", series.unit());
        }
    }
    let over = fixture.cases.iter().filter_map(|case| {
        let (own, paper) = (case.own_us(bare?)? / 1e3, case.series.paper(case.size)?);
        (own > paper)
            .then(|| format!("{} {} ({own:.1} ms, paper {paper})", case.size, case.series.unit()))
    });
    let over: Vec<String> = over.collect();
    let told = if over.is_empty() { "none".to_owned() } else { over.join(", ") };
    let _ = writeln!(text, "- belay's own part above the paper's whole recovery: {told}\n");
}

/// How the pause grows from the least to the most, and belay's own part of it. That the whole grows
/// less than what there is says little, as much of it is the same for any size: so what one more
/// costs is told for the first step and for the last.
fn growth(cases: &[&RecoveryCase], bare: Option<f64>) -> Option<String> {
    let (first, last) = (cases.first()?, cases.last()?);
    if first.size == 0 || last.size <= first.size {
        return None;
    }
    let pause = |case: &RecoveryCase| median_of(case, |c| c.pause_us);
    let own = |case: &RecoveryCase| case.own_us(bare?);
    let times = last.size as f64 / first.size as f64;
    let mut told = format!("{times:.0} times as many");
    for (what, of) in
        [("the pause", &pause as &dyn Fn(&RecoveryCase) -> Option<f64>), ("belay's own part", &own)]
    {
        let (Some(least), Some(most)) = (of(first), of(last)) else { continue };
        let more = |one: &RecoveryCase, other: &RecoveryCase| {
            Some((of(other)? - of(one)?) / (other.size - one.size).max(1) as f64)
        };
        let ends = cases.split_first().and_then(|(_, rest)| {
            let (begin, end) = (rest.first()?, cases.get(cases.len() - 2)?);
            Some((more(first, begin)?, more(end, last)?))
        });
        let how =
            if most / least < times { "less than in proportion" } else { "in proportion or more" };
        told += &format!("; {what} grows {:.2} times, {how}", most / least);
        if let Some((begin, end)) = ends.filter(|_| cases.len() > 2) {
            told += &format!(", by {begin:.2} us for one more at first, {end:.2} us in the end");
        }
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::model::Crash;
    use belay_fixtures::table::unpadded;

    fn case(size: u64, pause_us: f64) -> RecoveryCase {
        let crash = Crash { pause_us, ..Crash::default() };
        RecoveryCase { series: Series::Dirty, size, crashes: vec![crash; 2] }
    }

    #[test]
    fn growth_is_told() {
        let (one, other) = (case(10, 10_000.0), case(40, 20_000.0));
        let told = growth(&[&one, &other], Some(2_000.0)).unwrap();
        assert_eq!(
            told,
            "4 times as many; the pause grows 2.00 times, less than in proportion; belay's own part grows 2.25 times, \
             less than in proportion"
        );
        let (middle, steep) = (case(20, 12_000.0), case(40, 50_000.0));
        let told = growth(&[&one, &middle, &steep], None).unwrap();
        assert_eq!(
            told,
            "4 times as many; the pause grows 5.00 times, in proportion or more, by 200.00 us for one more at first, \
             1900.00 us in the end"
        );
        assert!(growth(&[&one], None).is_none());
        let fixture = RecoveryFixture {
            fixture: "fuse2fs-ext2".to_owned(),
            bare_start_us: vec![2_000.0],
            cases: vec![one, other],
            ..RecoveryFixture::default()
        };
        let mut text = String::new();
        table(&mut text, &fixture);
        let text = unpadded(&text);
        assert!(text.contains("| 10 MB of new files | 10.00 | 10.00 | 10.00 |"), "{text}");
        assert!(text.contains("40 MB of new files (18.0 ms, paper 16.1)"), "{text}");
    }
}
