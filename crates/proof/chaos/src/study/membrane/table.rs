//! The study as a page of tables.

use std::fmt::Write;

use belay_fixtures::Kind;
use belay_fixtures::table::{numbers, tabulate, words};
use belay_study::{Application, table};

use super::model::{Experiment, Study};
use super::rows::Group;
use crate::study::column::Column;

/// So many failures are told on the page.
const TOLD: usize = 30;

/// What the paper says of its Table 3.
const PAPER: &str = "The paper's Table 3: 47 faults in ext2 (20), VFAT (13) and ext3 (14). On their own, about 91 % came to an \
    oops of the kernel, the application was always killed, and a third of the file systems could not be used \
    any more; with checks at the boundary alone, most applications were still killed or got errors, and the file system \
    was inconsistent, unusable, or both; with Membrane all 47 were detected, unnoticed by the application, consistent \
    and usable.";

/// What the columns mean.
const LEGEND: &str = "A daemon dies at every point of an operation's request: when it has it, before and after each of its calls, \
    before and after the reply. On its own, and where it is only restarted (`--policy blind`), these are its system calls with an \
    effect. Under belay (`--policy epoch`) they are in addition its reads and writes of the image, which are no system calls \
    there, and those of the requests by which belay has it write all that it holds (*flush*); and belay's supervisor dies, alone or in \
    the same moment as the daemon, before and after each of the system calls by which it brings a checkpoint to the image \
    (*commit*). Before each, 31 directories were made that nobody has asked to be made safe.\n\n\
    Detected: belay's report names what the daemon died of, or its status says that the supervisor was replaced. Unaware: the \
    application got what it gets without a crash. Checker: `e2fsck -fn` or `fsck.fat -n` has nothing to say after the unmount. \
    Tree: that, and what the mount shows, and what another daemon finds on the image, is as without a crash: names, contents, \
    modes, owners, links, free blocks. For the bare daemon the tree before will do as well if the application was told of a \
    failure. Usable: without mounting again.";

/// Tables in Markdown.
pub fn markdown(study: &Study) -> String {
    let mut text =
        format!("# Crashes on disk images\n\n{LEGEND}\n\n{}\n{PAPER}\n\n", overview(study));
    for fixture in fixtures(study) {
        let _ = writeln!(text, "## {fixture}\n");
        let mut columns = vec![words("operation"), words("request of the bare daemon")];
        for column in &study.columns {
            columns.push(numbers(format!("{}: crashes", column.name())));
            columns.extend(judgements(*column).iter().map(|judgement| numbers(judgement.0)));
        }
        let mut rows = Vec::new();
        for name in operations(study, fixture) {
            let of = |e: &&Experiment| e.fixture == fixture && operation(e) == name;
            let request = request(study, fixture, &name);
            let mut row = vec![name.clone(), request];
            for column in &study.columns {
                let all: Vec<_> =
                    study.experiments.iter().filter(of).filter(|e| e.column == *column).collect();
                row.extend(cells(&all, *column));
            }
            rows.push(row);
        }
        let _ = writeln!(text, "{}", tabulate(&columns, rows));
    }
    text + &summary(study)
}

fn fixtures(study: &Study) -> Vec<Kind> {
    let mut fixtures: Vec<_> = study.dry_runs.iter().map(|run| run.fixture).collect();
    fixtures.dedup();
    fixtures
}

/// The row of the page that an experiment belongs to: points at system calls and at accesses are
/// one.
fn operation(e: &Experiment) -> String {
    base(&e.row).to_owned()
}

fn base(row: &str) -> &str {
    row.strip_suffix(":accesses").unwrap_or(row)
}

fn operations(study: &Study, fixture: Kind) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in
        study.dry_runs.iter().filter(|run| run.fixture == fixture && run.run.request.is_some())
    {
        let name = base(&run.row);
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    // Those of belay's own last.
    names.sort_by_key(|name| name.contains(':'));
    names
}

/// What the bare daemon does for an operation; what belay has it do, where there is nothing of the
/// kind.
fn request(study: &Study, fixture: Kind, name: &str) -> String {
    let of = |column: Option<Column>| {
        let mut runs = study.dry_runs.iter().filter(|r| r.fixture == fixture && r.row == name);
        runs.find(|r| column.is_none_or(|column| r.column == column)).and_then(|r| r.run.title())
    };
    of(Some(Column::Bare)).or_else(|| of(None)).unwrap_or_else(|| "none".to_owned())
}

type Judgement = (&'static str, fn(&Experiment) -> bool);

fn judgements(column: Column) -> Vec<Judgement> {
    let mut list: Vec<Judgement> = Vec::new();
    if column == Column::Belay {
        list.push(("detected", Experiment::is_detected));
    }
    list.push(("unaware", |e| e.crash.judged.application == Application::Ok));
    list.push(("checker", |e| e.crash.told.checked == Some(true)));
    list.push(("tree", |e| e.crash.judged.consistent));
    list.push(("usable", |e| e.crash.judged.usable));
    list
}

/// How many crashes there were, and of how many each judgement is good.
fn cells(experiments: &[&Experiment], column: Column) -> Vec<String> {
    let reached: Vec<_> = experiments.iter().filter(|e| e.crash.reached).collect();
    let mut cells = vec![reached.len().to_string()];
    cells.extend(judgements(column).iter().map(|(_, holds)| {
        if reached.is_empty() {
            return "–".to_owned();
        }
        reached.iter().filter(|e| holds(e)).count().to_string()
    }));
    if reached.is_empty() {
        cells[0] = "–".to_owned();
    }
    cells
}

/// A line for each file system and way to run it.
fn overview(study: &Study) -> String {
    let counts = ["crashes", "detected", "unaware", "checker", "tree", "usable", "all of these"];
    let columns =
        [vec![words("file system"), words("daemon")], counts.map(numbers).to_vec()].concat();
    let mut rows = Vec::new();
    for fixture in fixtures(study) {
        for column in &study.columns {
            let of = |e: &&Experiment| e.fixture == fixture && e.column == *column;
            let all: Vec<_> = study.experiments.iter().filter(of).collect();
            if all.is_empty() {
                continue;
            }
            let good = all.iter().filter(|e| e.crash.reached && e.crash.judged.is_all_right());
            let how = match column {
                Column::Bare => "bare",
                Column::Restart => "restarted only",
                Column::Belay => "belay",
            };
            let mut row = vec![fixture.to_string(), how.to_owned()];
            row.extend(cells(&all, *column));
            if *column != Column::Belay {
                // Nothing of theirs detects.
                row.insert(3, "–".to_owned());
            }
            row.push(good.count().to_string());
            rows.push(row);
        }
    }
    tabulate(&columns, rows)
}

/// What is to be looked into.
pub fn summary(study: &Study) -> String {
    let mut text = String::new();
    for group in [Group::Calls, Group::Accesses, Group::Flush, Group::Commit] {
        let of = |e: &&Experiment| e.column == Column::Belay && e.group == group && e.crash.reached;
        let all: Vec<_> = study.experiments.iter().filter(of).collect();
        if !all.is_empty() {
            let what = match group {
                Group::Calls => "at system calls of a request",
                Group::Accesses => "at accesses to the image",
                Group::Flush => "in the flush of a checkpoint",
                Group::Commit => "in its commit",
            };
            let bad = all.iter().filter(|e| e.failed()).count();
            let _ = writeln!(text, "- belay, {what}: {} crashes, {bad} not all right", all.len());
        }
    }
    let failed: Vec<_> = study.experiments.iter().filter(|e| e.failed()).collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "\n## Not all right with belay\n\n```text");
        for e in failed.iter().take(TOLD) {
            let _ = writeln!(text, "{}", account(e));
        }
        text += "```\n";
        if failed.len() > TOLD {
            let _ =
                writeln!(text, "\nAnd {} more; membrane.json has them all.", failed.len() - TOLD);
        }
    }
    let missed: Vec<_> = study.experiments.iter().filter(|e| !e.crash.reached).collect();
    if !missed.is_empty() {
        let _ = writeln!(text, "\n{} points were not reached:\n", missed.len());
        missed.iter().for_each(|e| {
            let _ = writeln!(text, "- {}", e.replay);
        });
    }
    if !study.left_out.is_empty() {
        let _ = writeln!(
            text,
            "\nLeft out, as the bare daemon does not do it right without a crash:\n"
        );
        for out in study.left_out.iter().filter(|out| out.row == base(&out.row)) {
            let _ = writeln!(text, "- {} {}: {}", out.fixture, out.row, out.why);
        }
    }
    for trouble in &study.troubles {
        let _ = writeln!(text, "\nTrouble: {trouble}");
    }
    let _ = writeln!(text, "\n`{}`, Linux {}.", study.command, study.kernel);
    text
}

/// What went wrong in an experiment, and how to see it again.
pub fn account(e: &Experiment) -> String {
    let (fixture, signal) = (e.fixture.to_string(), e.crash.signal.to_string());
    let title = table::title(&[&fixture, &e.row, &e.crash.point], e.crash.call.as_deref(), &signal);
    let noticed = e.crash.told.noticed.as_deref().unwrap_or("nothing");
    let detection = if e.is_detected() { String::new() } else { format!("\n  noticed: {noticed}") };
    format!("{title}:{}{detection}\n  replay: {}", e.crash.judged.account(), e.replay)
}

#[cfg(test)]
mod tests {
    use belay_faults::FaultSignal;
    use belay_fixtures::table::unpadded;
    use belay_study::{Crash, DryRun, Judged, Told};

    use super::*;
    use crate::study::membrane::model::Observed;

    fn experiment(row: &str, column: Column, consistent: bool) -> Experiment {
        let differences =
            if consistent { String::new() } else { "new: only on found\n".to_owned() };
        Experiment {
            fixture: Kind::Fuse2fsExt2,
            row: row.to_owned(),
            group: Group::Calls,
            column,
            crash: Crash {
                point: "after-1".to_owned(),
                call: Some("pwrite64".into()),
                signal: FaultSignal::Abrt,
                reached: true,
                judged: Judged {
                    application: Application::Ok,
                    outcome: "done".to_owned(),
                    expected: "done".to_owned(),
                    consistent,
                    unseen: false,
                    differences,
                    usable: true,
                    trouble: String::new(),
                },
                told: Told {
                    noticed: Some("signal 6".to_owned()),
                    checked: Some(consistent),
                    ..Told::default()
                },
                seconds: 0.0,
            },
            replay: "again".to_owned(),
        }
    }

    #[test]
    fn tables_count() {
        let observed = |row: &str| Observed {
            fixture: Kind::Fuse2fsExt2,
            row: row.to_owned(),
            column: Column::Belay,
            run: DryRun {
                request: Some("MKDIR".to_owned()),
                effects: Vec::new(),
                differences: String::new(),
            },
        };
        let study = Study {
            version: 1,
            kernel: "6".to_owned(),
            command: "belay-chaos study membrane".to_owned(),
            columns: vec![Column::Bare, Column::Belay],
            dry_runs: vec![
                observed("mkdir"),
                observed("mkdir:accesses"),
                observed("flush:FSYNCDIR"),
            ],
            experiments: vec![
                experiment("mkdir", Column::Bare, false),
                experiment("mkdir", Column::Belay, true),
                experiment("mkdir:accesses", Column::Belay, false),
            ],
            left_out: Vec::new(),
            troubles: Vec::new(),
        };
        assert!(!study.is_good());
        let text = unpadded(&markdown(&study));
        assert!(
            text.contains("| mkdir | MKDIR | 1 | 1 | 0 | 0 | 1 | 2 | 2 | 2 | 1 | 1 | 2 |"),
            "{text}"
        );
        assert!(text.contains("| fuse2fs-ext2 | belay | 2 | 2 | 2 | 1 | 1 | 2 | 1 |"), "{text}");
        assert!(text.contains("| fuse2fs-ext2 | bare | 1 | – | 1 | 0 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("fuse2fs-ext2 mkdir:accesses after-1 (pwrite64) ABRT:"), "{text}");
    }
}
