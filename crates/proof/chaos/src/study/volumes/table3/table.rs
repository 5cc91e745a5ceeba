//! What came of the faults, for programs and for people.

use super::super::spread::Spread;
use super::Injection;
use crate::report::Blackout;
use crate::study::results;
use anyhow::Result;
use belay_fixtures::table::{numbers, tabulate, words};
use belay_workloads::{Name, Scale};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Of each kind and for each workload, as many as the paper has injected: all crashed the module,
/// and were survived.
const PAPER: u64 = 1500;

/// What a faulty module has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It has died.
    Crashed,
    /// It has hung, and belay has killed it.
    Hung,
    /// Neither, so it was killed in the end: the next injection needs clean code.
    Survived,
}

/// An injection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shot {
    /// When, in seconds since the begin of its session.
    pub at_s: f64,
    /// How often faults were put in until the module crashed.
    pub rounds: u32,
    /// What the module has come to.
    pub end: End,
    /// From the first fault to that, in microseconds.
    pub crash_us: u64,
    /// From that to an answer of its successor, in microseconds.
    pub dark_us: u64,
}

/// A volume, until there were enough injections or something was wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub seed: u64,
    pub seconds: f64,
    /// Runs of the workload.
    pub runs: u64,
    /// What did not come out as it should.
    pub wrong: Vec<String>,
    /// What was found when the volume was unmounted and checked.
    pub damage: Option<String>,
    /// What belay said last, if something was wrong.
    pub last_words: String,
    /// The command that repeats it.
    pub replay: Option<String>,
    /// When the last run began, in seconds.
    pub last_run_s: f64,
    /// As belay has measured it.
    pub blackout: Blackout,
    pub shots: Vec<Shot>,
}

impl Session {
    fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.damage.is_none()
    }

    /// Crashes that nobody has noticed. In a wrong run it is not known which one it was; if the
    /// volume is damaged, all count.
    fn recovered(&self) -> u64 {
        let unnoticed =
            |shot: &&Shot| self.is_right() || self.damage.is_none() && shot.at_s < self.last_run_s;
        self.crashes().filter(unnoticed).count() as u64
    }

    fn crashes(&self) -> impl Iterator<Item = &Shot> {
        self.shots.iter().filter(|shot| shot.end != End::Survived)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} injections, {} crashes in {} runs, {:.1} s (seed {})",
            self.shots.len(),
            self.crashes().count(),
            self.runs,
            self.seconds,
            self.seed
        )?;
        for line in self.wrong.iter().chain(&self.damage) {
            write!(f, "\n    WRONG: {line}")?;
        }
        if let Some(replay) = &self.replay {
            write!(f, "\n    replay: {replay}")?;
        }
        Ok(())
    }
}

/// One workload with one kind of injection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub workload: Name,
    pub parameters: String,
    pub undisturbed_seconds: f64,
    pub injection: Injection,
    pub sessions: Vec<Session>,
}

impl Cell {
    fn shots(&self) -> impl Iterator<Item = &Shot> {
        self.sessions.iter().flat_map(|session| &session.shots)
    }

    pub fn injected(&self) -> u64 {
        self.shots().count() as u64
    }

    fn crashed(&self) -> u64 {
        self.sessions.iter().map(|session| session.crashes().count() as u64).sum()
    }

    fn recovered(&self) -> u64 {
        self.sessions.iter().map(Session::recovered).sum()
    }

    /// Sessions in which something was wrong.
    pub fn wrong(&self) -> usize {
        self.sessions.iter().filter(|session| !session.is_right()).count()
    }

    /// Whether each fault that was fail-stop has come to a crash that was survived. Others may do
    /// anything.
    pub fn is_good(&self) -> bool {
        let all = self.injected() > 0
            && self.wrong() == 0
            && self.crashed() == self.injected()
            && self.recovered() == self.injected();
        self.injection == Injection::Overwrite || all
    }

    fn dark(&self) -> Spread {
        Spread::of(self.shots().map(|shot| shot.dark_us))
    }

    fn name(&self) -> String {
        match self.workload {
            Name::Verified => "PostMark, verified".to_owned(),
            Name::Openssh => "OpenSSH, verified".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<18} {:?}: {} injected, {} crashed, {} recovered, {} sessions wrong; dark {}",
            self.name(),
            self.injection,
            self.injected(),
            self.crashed(),
            self.recovered(),
            self.wrong(),
            self.dark()
        )
    }
}

/// All workloads and kinds of injections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Of this format.
    pub version: u32,
    pub seed: u64,
    pub scale: Scale,
    pub faults: usize,
    pub every_ms: u64,
    /// Of the module.
    pub functions: usize,
    pub instructions: usize,
    pub code_bytes: u64,
    pub cells: Vec<Cell>,
}

impl Table {
    /// Writes `table3.json` and `table3.md` into a directory.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn write(&self, dir: &Path) -> Result<()> {
        results::write(dir, "table3", self, &self.page())
    }

    /// The page in Markdown.
    pub fn page(&self) -> String {
        let mut text = format!(
            "# Faults in the namespace module\n\n\
             Table III of the paper on namespace transactions, for the POSIX module: its row \"POSIX\". A program works on a volume again and \
             again, and each run is compared with an undisturbed one in a plain directory. PostMark writes patterns and compares what it \
             reads with them; what OpenSSH's build makes is run. Faults are injected at random, {} ms on average after the module has \
             answered.\n\n\
             - kill: the process is killed by a signal.\n\
             - swifi: {} of the {} instructions in the {} functions of the module are replaced by ones that trap, at random; {} others \
             after 300 ms without a crash, and so on. The successor has clean code.\n\n    \
             belay-chaos study table3 --scale {} --faults {} --every {}ms --seed {}\n\n",
            self.every_ms,
            self.faults,
            self.instructions,
            self.functions,
            self.faults,
            self.scale,
            self.faults,
            self.every_ms,
            self.seed
        );
        text += &self.fail_stop();
        text += "\nIn each column: injected / crashed / recovered. Recovered are crashes in runs that came to their right end, with a volume that \
                 is clean in the end.\n\n";
        text += &self.times();
        text += "\nTimes are median / p99 / max: from the death of a module to an answer of the next to who asks for the room on the volume, and \
                 the blackout as belay measures it (that of the longest session).\n\n";
        text += &self.others();
        let mut told: Vec<String> = Vec::new();
        for cell in &self.cells {
            let line = format!("- {}: {}\n", cell.name(), cell.parameters);
            if !told.contains(&line) {
                told.push(line);
            }
        }
        text + "\n" + &told.concat()
    }

    fn of(&self, workload: Name, injection: Injection) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.workload, cell.injection) == (workload, injection))
    }

    fn workloads(&self) -> Vec<Name> {
        let mut all: Vec<Name> = self.cells.iter().map(|cell| cell.workload).collect();
        all.dedup();
        all
    }

    fn fail_stop(&self) -> String {
        let columns = [
            words("benchmark"),
            numbers("kill"),
            numbers("paper"),
            numbers("swifi"),
            numbers("paper"),
        ];
        let counts = |cell: &Cell| {
            format!("{} / {} / {}", cell.injected(), cell.crashed(), cell.recovered())
        };
        let paper = format!("{PAPER} / {PAPER} / {PAPER}");
        let rows = self.workloads().into_iter().map(|workload| {
            let ours =
                |injection| self.of(workload, injection).map_or_else(|| "-".to_owned(), counts);
            let name = self.cells.iter().find(|cell| cell.workload == workload).map(Cell::name);
            vec![
                name.unwrap_or_default(),
                ours(Injection::Kill),
                paper.clone(),
                ours(Injection::Swifi),
                paper.clone(),
            ]
        });
        tabulate(&columns, rows)
    }

    fn times(&self) -> String {
        let columns = [
            words("benchmark"),
            words("injection"),
            numbers("runs compared"),
            numbers("crash after"),
            numbers("rounds of faults"),
            numbers("until the successor answers"),
            numbers("blackout"),
        ];
        let rows =
            self.cells.iter().filter(|cell| cell.injection != Injection::Overwrite).map(|cell| {
                let rounds: u64 = cell.shots().map(|shot| u64::from(shot.rounds)).sum();
                let longest = cell.sessions.iter().max_by_key(|session| session.shots.len());
                vec![
                    cell.name(),
                    format!("{:?}", cell.injection).to_lowercase(),
                    cell.sessions.iter().map(|session| session.runs).sum::<u64>().to_string(),
                    Spread::of(cell.shots().map(|shot| shot.crash_us)).to_string(),
                    rounds.to_string(),
                    cell.dark().to_string(),
                    longest.map(|session| session.blackout.to_string()).unwrap_or_default(),
                ]
            });
        tabulate(&columns, rows)
    }

    /// What is not fail-stop, apart.
    fn others(&self) -> String {
        let cells: Vec<&Cell> =
            self.cells.iter().filter(|cell| cell.injection == Injection::Overwrite).collect();
        if cells.is_empty() {
            return String::new();
        }
        let columns = [
            words("benchmark"),
            numbers("injected"),
            numbers("crashed"),
            numbers("hung"),
            numbers("no effect seen"),
            numbers("volumes on which a program failed or saw something wrong"),
            numbers("volumes that were damaged"),
        ];
        let rows = cells.iter().map(|cell| {
            let ended = |end| cell.shots().filter(|shot| shot.end == end).count().to_string();
            let sessions =
                |holds: fn(&&Session) -> bool| cell.sessions.iter().filter(holds).count();
            vec![
                cell.name(),
                cell.injected().to_string(),
                ended(End::Crashed),
                ended(End::Hung),
                ended(End::Survived),
                sessions(|session| !session.wrong.is_empty()).to_string(),
                sessions(|session| session.damage.is_some()).to_string(),
            ]
        });
        let mut text = format!(
            "## Arbitrary overwrites\n\n\
             The same with 1 to 8 random bytes at each of {} random places of the module's code. Such faults are not fail-stop: the module \
             may do anything before it crashes, and what it does then is believed. So neither the paper nor belay promises anything. A \
             module that has not ended within six seconds is killed. After a run that went wrong, the next injections have a new volume.\n\n",
            self.faults
        );
        text += &tabulate(&columns, rows);
        let mut first: Vec<&str> = Vec::new();
        for session in cells.iter().flat_map(|cell| &cell.sessions) {
            first.extend(
                session.wrong.first().into_iter().chain(&session.damage).map(String::as_str),
            );
        }
        if !first.is_empty() {
            text += "\nWhat was wrong:\n\n";
            for line in first {
                let line: String =
                    line.lines().next().unwrap_or_default().chars().take(200).collect();
                text += &format!("- {line}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_fixtures::table::unpadded;

    fn session(wrong: &[&str]) -> Session {
        let shot = |at_s, end| Shot { at_s, rounds: 1, end, crash_us: 10, dark_us: 2000 };
        Session {
            seed: 1,
            seconds: 9.0,
            runs: 2,
            wrong: wrong.iter().map(|line| (*line).to_owned()).collect(),
            damage: None,
            last_words: String::new(),
            replay: None,
            last_run_s: 5.0,
            blackout: Blackout::default(),
            shots: vec![shot(1.0, End::Crashed), shot(4.0, End::Crashed), shot(6.0, End::Crashed)],
        }
    }

    #[test]
    fn crashes_in_a_wrong_run_are_not_recovered() {
        let cell = |injection, sessions| Cell {
            workload: Name::Verified,
            parameters: "some files".into(),
            undisturbed_seconds: 1.0,
            injection,
            sessions,
        };
        let mut bad = cell(Injection::Swifi, vec![session(&["a byte"])]);
        assert_eq!((bad.injected(), bad.crashed(), bad.recovered()), (3, 3, 2));
        assert!(!bad.is_good());
        let good = cell(Injection::Kill, vec![session(&[])]);
        assert!(good.is_good());
        let page = Table {
            version: 1,
            seed: 1,
            scale: Scale::Tiny,
            faults: 100,
            every_ms: 20,
            functions: 5,
            instructions: 600,
            code_bytes: 2000,
            cells: vec![good, bad.clone()],
        };
        let text = unpadded(&page.page());
        let row = "| PostMark, verified | 3 / 3 / 3 | 1500 / 1500 / 1500 | 3 / 3 / 2 | 1500 / 1500 / 1500 |";
        assert!(text.contains(row), "{text}");
        bad.sessions[0].damage = Some("a block".into());
        assert_eq!(bad.recovered(), 0);
        bad.sessions[0] = session(&[]);
        bad.sessions[0].shots[0].end = End::Survived;
        assert!(!bad.is_good());
    }
}
