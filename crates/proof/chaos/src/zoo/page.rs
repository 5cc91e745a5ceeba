//! The page about the daemons, made of the table and of the results.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use belay_fixtures::Kind;
use belay_fixtures::zoo::{Work, Zoo, left_out};
use minijinja::{Environment, context};
use serde::{Deserialize, Serialize};

use super::certify::{Certificate, Certificates};
use super::{Outcome, Results, profiles, results};
use belay_fixtures::page::write_or_check;

const TEMPLATE: &str = include_str!("page.md.jinja");

/// Arguments of `zoo-page`.
#[derive(Clone, Debug, clap::Args)]
pub struct PageArgs {
    /// Where the results are: soak.json, certificates.json
    #[arg(long, default_value = "docs/daemons")]
    results: PathBuf,
    /// Belay's own profiles
    #[arg(long, default_value = "profiles")]
    profiles: PathBuf,
    /// The page
    #[arg(long, default_value = "docs/daemons.md")]
    out: PathBuf,
    /// Write nothing; fail if the page is not as it would be written
    #[arg(long)]
    check: bool,
}

/// A run of `away`, of what its result holds.
#[derive(Serialize, Deserialize)]
struct Outages {
    mounts: u64,
    outages: u64,
    broken: u64,
    longest_away_s: f64,
    writes: u64,
    reads: u64,
    failures: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    from: String,
    library: String,
    language: String,
    family: String,
    work: &'static str,
    limit: String,
    caution: String,
    /// What keeps ordinary users from running it is not belay's.
    root_only: bool,
    reads: bool,
    root: Option<Outcome>,
    user: Option<Outcome>,
    certificate: Option<Certificate>,
    /// What went wrong, in a line.
    failure: Option<String>,
}

/// Writes the page, or looks whether it is true.
pub fn run(args: &PageArgs) -> Result<bool> {
    let text = render(&args.results, &args.profiles)?;
    write_or_check(&args.out, &text, args.check, || "make daemons-page".to_owned())
}

fn render(folder: &Path, profiles: &Path) -> Result<String> {
    let soaks: Results = results::read(&folder.join("soak.json"))?;
    let certificates: Certificates = results::read(&folder.join("certificates.json"))?;
    let outages: Vec<Outages> = results::read(&folder.join("away.json"))?;
    let rows: Vec<Row> = Zoo::all()
        .map(|zoo| {
            let daemon = zoo.daemon();
            let soak = |who: &str| soaks.get(&daemon.name).and_then(|by| by.get(who)).cloned();
            let (root, user) = (soak("root"), soak("user"));
            let failed = [&root, &user].into_iter().flatten().find_map(|one| one.failure.as_ref());
            let failure = failed.and_then(|text| text.lines().next()).map(str::to_owned);
            Row {
                name: daemon.name.clone(),
                from: daemon.from.clone(),
                library: daemon.library.clone(),
                language: daemon.language.clone(),
                family: daemon.family.clone(),
                work: match daemon.work {
                    Work::All => "all",
                    Work::WholeFiles => "whole files",
                    Work::Read => "reading",
                },
                limit: daemon.limit.clone(),
                caution: daemon.caution.clone(),
                root_only: daemon.root_only,
                reads: daemon.work == Work::Read,
                root,
                user,
                certificate: certificates.get(&daemon.name).cloned(),
                failure,
            }
        })
        .collect();
    // Those of the other tests, which have no row of their own.
    let fixtures: Vec<(&str, &Certificate)> = Kind::all()
        .filter_map(|kind| Some((kind.name(), certificates.get(kind.name())?)))
        .collect();
    let unlike = profiles::unlike(profiles, &certificates)?;
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.add_template("page", TEMPLATE).context("the page's template")?;
    let template = environment.get_template("page").context("the page's template")?;
    template
        .render(context! { rows, fixtures, unlike, outages, left_out => left_out() })
        .context("rendering the page")
}
