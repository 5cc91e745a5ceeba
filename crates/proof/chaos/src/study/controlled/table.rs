//! The study as a page of tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use belay_fixtures::table::{tabulate, words};
use belay_study::{Application, OPERATIONS, table};

use super::model::{Experiment, Study};
use crate::study::column::Column;

/// So many failures are told on the page.
const TOLD: usize = 50;
const OK: &str = "√";
const BAD: &str = "×";
const UNSEEN: &str = "–";

/// Tables in Markdown, one for each fixture, and what was found wrong with belay.
pub fn markdown(study: &Study) -> String {
    let mut text = String::from("# Controlled faults\n\n");
    let _ = writeln!(
        text,
        "The daemon dies at every point of the one request that an operation is about: when it has the request, before\n\
         and after each system call with an effect, before and after the reply; of {}.\n\n\
         Application: {OK} nothing noticed, {BAD} the error of a file system that has gone, e another error, a wrong\n\
         result or no end. Consistent: the tree (and image) is as it is without a crash; for the bare daemon the tree\n\
         before will do as well if the application was told of a failure; – where nobody else can read what is behind a\n\
         daemon. Usable: without mounting again. Numbers are experiments. Linux {}.\n",
        signals(study),
        study.kernel
    );
    let mut fixtures: Vec<_> = study.dry_runs.iter().map(|run| run.fixture).collect();
    fixtures.dedup();
    for fixture in fixtures {
        let _ = writeln!(text, "## {fixture}\n");
        let mut columns = vec![words("operation"), words("request")];
        for column in &study.columns {
            let first = format!("{}: application", column.name());
            columns.extend([words(first), words("consistent"), words("usable")]);
        }
        let mut rows = Vec::new();
        for op in OPERATIONS {
            let runs =
                || study.dry_runs.iter().filter(|r| r.fixture == fixture && r.operation == op.name);
            if runs().next().is_none() {
                continue;
            }
            // As the first column has it; belay may add effects of its own.
            let request = runs().find_map(|o| o.run.title());
            let request = request.unwrap_or_else(|| "none".to_owned());
            let mut row = vec![op.name.to_owned(), request];
            for column in &study.columns {
                let cell: Vec<_> = study
                    .experiments
                    .iter()
                    .filter(|e| {
                        e.fixture == fixture && e.operation == op.name && e.column == *column
                    })
                    .filter(|e| e.crash.reached)
                    .collect();
                row.extend(cells(&cell));
            }
            rows.push(row);
        }
        let _ = writeln!(text, "{}", tabulate(&columns, rows));
    }
    text + &summary(study)
}

/// The signals that daemons have died of.
fn signals(study: &Study) -> String {
    let names: BTreeSet<_> = study.experiments.iter().map(|e| e.crash.signal.to_string()).collect();
    let names: Vec<_> = names.iter().map(|name| format!("SIG{name}")).collect();
    names.join(" and of ")
}

fn cells(experiments: &[&Experiment]) -> [String; 3] {
    let count = |symbol: &dyn Fn(&Experiment) -> &'static str| {
        let mut counts = BTreeMap::new();
        for experiment in experiments {
            *counts.entry(symbol(experiment)).or_insert(0_usize) += 1;
        }
        let order = [OK, BAD, "e"];
        let parts = order.iter().filter_map(|s| counts.get(s).map(|n| format!("{s} {n}")));
        let text = parts.collect::<Vec<_>>().join(", ");
        if text.is_empty() { UNSEEN.to_owned() } else { text }
    };
    let mark = |good: bool| if good { OK } else { BAD };
    [
        count(&|e| match e.crash.judged.application {
            Application::Ok => OK,
            Application::Aborted => BAD,
            Application::Wrong => "e",
        }),
        count(&|e| if e.crash.judged.unseen { UNSEEN } else { mark(e.crash.judged.consistent) }),
        count(&|e| mark(e.crash.judged.usable)),
    ]
}

/// Sums, and everything that is to be looked into.
pub fn summary(study: &Study) -> String {
    let mut text = String::new();
    for column in &study.columns {
        let of = || study.experiments.iter().filter(|e| e.column == *column && e.crash.reached);
        let share = |good: &dyn Fn(&&Experiment) -> bool| of().filter(good).count();
        let _ = writeln!(
            text,
            "{}: {} experiments; application unaware in {}, consistent in {}{}, usable in {}, all three in {}\n",
            column.name(),
            of().count(),
            share(&|e| e.crash.judged.application == Application::Ok),
            share(&|e| e.crash.judged.consistent && !e.crash.judged.unseen),
            match share(&|e| e.crash.judged.unseen) {
                0 => String::new(),
                unseen => format!(" of the {} that could be looked at", of().count() - unseen),
            },
            share(&|e| e.crash.judged.usable),
            share(&|e| e.crash.judged.is_all_right()),
        );
    }
    let failed: Vec<_> = study.experiments.iter().filter(|e| failed(e)).collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "## Not all right with belay\n\n```text");
        for e in failed.iter().take(TOLD) {
            let _ = writeln!(text, "{}", account(e));
        }
        text += "```\n";
        if failed.len() > TOLD {
            let _ =
                writeln!(text, "\nAnd {} more; controlled.json has them all.", failed.len() - TOLD);
        }
    }
    let missed: Vec<_> = study.experiments.iter().filter(|e| !e.crash.reached).collect();
    if !missed.is_empty() {
        let _ = writeln!(text, "\n{} points were not reached:\n", missed.len());
        for e in missed {
            let _ = writeln!(text, "- {}", e.replay);
        }
    }
    for o in study.dry_runs.iter().filter(|o| o.run.differs()) {
        let (op, column) = (&o.operation, o.column.name());
        let _ =
            writeln!(text, "\n{} {op} {column}, undisturbed:\n{}", o.fixture, o.run.differences);
    }
    for trouble in &study.troubles {
        let _ = writeln!(text, "\ntrouble: {trouble}");
    }
    text
}

/// Whether an experiment speaks against belay.
pub fn failed(experiment: &Experiment) -> bool {
    experiment.column == Column::Belay && experiment.crash.went_wrong()
}

/// What went wrong in an experiment, and how to see it again.
pub fn account(e: &Experiment) -> String {
    let (fixture, signal) = (e.fixture.to_string(), e.crash.signal.to_string());
    let title =
        table::title(&[&fixture, &e.operation, &e.crash.point], e.crash.call.as_deref(), &signal);
    format!("{title}:{}\n  replay: {}", e.crash.judged.account(), e.replay)
}

#[cfg(test)]
mod tests {
    use belay_faults::{Effect, FaultSignal};
    use belay_fixtures::Kind;
    use belay_fixtures::table::unpadded;
    use belay_study::{Crash, DryRun, Judged, Told};

    use super::*;
    use crate::study::controlled::model::Observed;

    fn experiment(column: Column, application: Application) -> Experiment {
        Experiment {
            fixture: Kind::Bindfs,
            operation: "mkdir".into(),
            column,
            crash: Crash {
                point: "after-1".to_owned(),
                call: Some("mkdir".into()),
                signal: FaultSignal::Kill,
                reached: true,
                judged: Judged {
                    application,
                    outcome: "File exists".to_owned(),
                    expected: "done".to_owned(),
                    consistent: true,
                    unseen: false,
                    differences: String::new(),
                    usable: application == Application::Ok,
                    trouble: String::new(),
                },
                told: Told::default(),
                seconds: 0.0,
            },
            replay: "again".to_owned(),
        }
    }

    #[test]
    fn tables_count() {
        let run = Observed {
            fixture: Kind::Bindfs,
            operation: "mkdir".into(),
            column: Column::Belay,
            run: DryRun {
                request: Some("MKDIR".to_owned()),
                effects: vec![Effect { call: "mkdirat".into(), result: None }],
                differences: String::new(),
            },
        };
        let (good, bad) = (Application::Ok, Application::Wrong);
        let experiments = vec![
            experiment(Column::Restart, bad),
            experiment(Column::Belay, good),
            experiment(Column::Belay, good),
            experiment(Column::Belay, bad),
        ];
        let study = Study {
            version: 1,
            kernel: "6".to_owned(),
            columns: vec![Column::Restart, Column::Belay],
            dry_runs: vec![run],
            experiments,
            troubles: Vec::new(),
        };
        let page = markdown(&study);
        let kept = serde_json::to_string(&study).expect("results are JSON");
        let read = serde_json::from_str(&kept).expect("results are read back");
        assert_eq!(markdown(&read), page, "the page is made of what is kept");
        let text = unpadded(&page);
        assert!(
            text.contains(
                "| mkdir | MKDIR: mkdirat | e 1 | √ 1 | × 1 | √ 2, e 1 | √ 3 | √ 2, × 1 |"
            ),
            "{text}"
        );
        assert!(
            text.contains("application: File exists; expected: done")
                && text.contains("replay: again")
        );
    }
}
