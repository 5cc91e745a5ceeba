//! What came of it, and the page about that.

use anyhow::Result;
use belay_fixtures::table::{numbers, tabulate, words};
use belay_volume_sim::disk::{FAULTS, TROUBLES};
use belay_volume_sim::outcome::Outcome;
use minijinja::{Environment, context};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const TEMPLATE: &str = include_str!("page.md.jinja");

/// What the result file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Of this file's form.
    pub schema_version: u32,
    /// The first seed of each scenario.
    pub first_seed: u64,
    /// So many operations were asked for.
    pub asked: u64,
    /// Operations of all scenarios.
    pub operations: u64,
    /// By their names.
    pub scenarios: BTreeMap<String, Counts>,
    /// What was done wrong on purpose.
    pub on_purpose: Vec<Found>,
}

/// What came of a scenario.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// How many seeds were run.
    pub seeds: u64,
    /// What came of them.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Something that was done wrong on purpose.
#[derive(Debug, Serialize, Deserialize)]
pub struct Found {
    /// What it is.
    pub what: String,
    /// The first seed that finds it.
    pub seed: u64,
    /// The beginning of what is said of it.
    pub said: String,
}

/// The page.
///
/// # Errors
/// If the template is wrong.
pub fn render(results: &Results) -> Result<String> {
    let mut all = Outcome::default();
    results.scenarios.values().for_each(|one| all.join(&one.outcome));
    let row = |name: &str, seeds: u64, outcome: &Outcome| {
        // What is done to a block, what is answered for a while, and when.
        let done: u64 = outcome.faults.values().chain(outcome.troubles.values()).sum();
        let counts = [
            seeds,
            outcome.operations,
            outcome.module_deaths,
            outcome.cache_deaths,
            outcome.store_deaths,
            outcome.power_failures,
            done + outcome.stalls,
        ];
        let mut row = vec![name.to_owned()];
        row.extend(counts.map(|count| count.to_string()));
        row.push((outcome.bytes >> 20).to_string());
        // A run with a divergence writes no page.
        row.push("0".to_owned());
        row
    };
    let seeds = results.scenarios.values().map(|one| one.seeds).sum();
    let scenarios = results.scenarios.iter().map(|(name, one)| row(name, one.seeds, &one.outcome));
    let columns = [
        words("scenario"),
        numbers("seeds"),
        numbers("operations"),
        numbers("deaths: module"),
        numbers("cache"),
        numbers("stores"),
        numbers("power failures"),
        numbers("faults of disks"),
        numbers("MiB compared"),
        numbers("divergences"),
    ];
    let scenarios = tabulate(&columns, scenarios.chain([row("all", seeds, &all)]));
    let kind = |kind: &dyn std::fmt::Debug, count: Option<&u64>| {
        vec![words_of(&format!("{kind:?}")), count.copied().unwrap_or(0).to_string()]
    };
    let faults = FAULTS.iter().map(|fault| kind(fault, all.faults.get(fault)));
    let faults = tabulate(&[words("what a block is"), numbers("times")], faults);
    let troubles = TROUBLES.iter().map(|trouble| kind(trouble, all.troubles.get(trouble)));
    let troubles = tabulate(&[words("what fails"), numbers("times")], troubles);
    let found = results.on_purpose.iter().map(|one| {
        vec![one.what.clone(), one.seed.to_string(), format!("`{}`", one.said.replace('`', "'"))]
    });
    let columns = [words("on purpose"), numbers("found by seed"), words("what is said")];
    let on_purpose = tabulate(&columns, found);
    let mut environment = Environment::new();
    environment.set_keep_trailing_newline(true);
    environment.add_template("page", TEMPLATE)?;
    let context = context! { results, all, scenarios, faults, troubles, on_purpose };
    Ok(environment.get_template("page")?.render(context)?)
}

/// `OldCopy` as `old copy`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
