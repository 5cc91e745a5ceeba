//! The daemons under measurement: `belay-fixtures`'s fixtures, with the settings that a measurement
//! needs.

use anyhow::{Result, bail};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, find_number};

use crate::model::OwnFigures;
use crate::nodes::raise_open_file_limit;

/// What `--fixtures` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixtures(pub Vec<Kind>);

impl std::str::FromStr for Fixtures {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let kinds = match text {
            "all" => Kind::SIX.to_vec(),
            list => list.split(',').map(Kind::parse).collect::<Result<_>>()?,
        };
        if kinds.contains(&Kind::Dir) {
            bail!("a plain directory has no daemon that could be measured");
        }
        Ok(Self(kinds))
    }
}

/// Starts a bare or a held daemon such that every call reaches it: no time-out of the kernel's
/// caches is above zero.
///
/// `nodes` is how many files will be made on it besides a measurement's own.
pub fn start(kind: Kind, held: bool, nodes: u64) -> Result<Fixture> {
    raise_open_file_limit()?;
    let daemon_opts = match kind {
        Kind::PassthroughLl => vec!["cache=never".to_owned()],
        _ => Vec::new(),
    };
    let defaults = FixtureOptions::default();
    // An MFT record is 1 KiB, the content of some files comes on top, and the directories' indexes.
    let image_mib = defaults.image_mib.max(256 + nodes * 3 / 1024);
    let options = FixtureOptions { repeatable: true, daemon_opts, image_mib, ..defaults };
    Fixture::start(kind, &if held { Mode::held() } else { Mode::Bare }, &options)
}

/// How many nodes and open files a daemon of this kind can have, where fewer than asked for.
///
/// `passthrough_ll` holds a descriptor for each node and each open file, and is limited by that.
pub fn capped(kind: Kind, nodes: u64, open_files: u64) -> Result<(u64, u64)> {
    let descriptors = raise_open_file_limit()?.saturating_sub(1_000);
    Ok(match kind {
        Kind::PassthroughLl => {
            let open_files = open_files.min(descriptors / 2);
            (nodes.min(descriptors - open_files), open_files)
        }
        _ => (nodes, open_files.min(descriptors)),
    })
}

/// belay's processes that serve one held fixture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BelayProcesses {
    /// The supervisor.
    pub supervisor: Option<u32>,
    /// The keeper.
    pub keeper: Option<u32>,
}

/// Finds belay's processes; none for a bare fixture.
pub fn belay_processes(fixture: &Fixture) -> Result<BelayProcesses> {
    if !fixture.is_held() {
        return Ok(BelayProcesses::default());
    }
    let status = fixture.belay_status()?;
    let pid = |name: &str| {
        find_number(&status, &[name, "pid"])
            .or_else(|| find_number(&status, &[&format!("{name}_pid")]))
            .filter(|pid| *pid >= 1.0)
            .map(|pid| pid as u32)
    };
    Ok(BelayProcesses {
        supervisor: pid("supervisor").or(fixture.belay_pid()),
        keeper: pid("keeper"),
    })
}

/// The crashes that belay has counted; none for a bare fixture.
pub fn crashes(fixture: &Fixture) -> Result<u64> {
    if !fixture.is_held() {
        return Ok(0);
    }
    let status = fixture.belay_status()?;
    Ok(find_number(&status, &["crashes"]).unwrap_or(0.0) as u64)
}

/// The blackout as belay measured it.
pub fn own_figures(fixture: &Fixture) -> Result<OwnFigures> {
    let status = fixture.belay_status()?;
    let figure = |name| find_number(&status, &["blackout", name]);
    Ok(OwnFigures { median_us: figure("median"), p99_us: figure("p99"), max_us: figure("max") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixture_lists_parse() -> Result<()> {
        assert_eq!("all".parse::<Fixtures>()?.0.len(), 6);
        assert_eq!(
            "passthrough_ll,bindfs".parse::<Fixtures>()?.0,
            [Kind::PassthroughLl, Kind::Bindfs]
        );
        assert!("dir".parse::<Fixtures>().is_err());
        assert!("nonsense".parse::<Fixtures>().is_err());
        Ok(())
    }

    #[test]
    fn nodes_are_capped_where_each_holds_a_descriptor() -> Result<()> {
        let (nodes, open_files) = capped(Kind::PassthroughLl, 1_000_000_000, 1_000_000_000)?;
        assert!(nodes + open_files < raise_open_file_limit()?);
        assert!(nodes >= open_files);
        assert_eq!(capped(Kind::Bindfs, 1_000_000, 10)?, (1_000_000, 10));
        Ok(())
    }
}
