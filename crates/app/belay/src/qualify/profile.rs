//! Writing the profile of a daemon that was certified.

use super::options::Options;
use crate::profile::{self, Profile};
use anyhow::{Context, Result, bail};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the profile of a program goes; nowhere if none is wanted.
///
/// # Errors
/// If there is no place for it, or somebody else's is there.
pub fn path(options: &Options, program: &str) -> Result<Option<PathBuf>> {
    if options.no_profile || options.only.is_some() {
        return Ok(None);
    }
    let path = match &options.profile {
        Some(path) => std::path::absolute(path).context("the profile's path")?,
        None => {
            let folders = profile::folders();
            let folder =
                folders.first().context("no folder for profiles: name a file by --profile")?;
            folder.join(format!("{program}.toml"))
        }
    };
    may_replace(&path, options.force)?;
    Ok(Some(path))
}

/// Refuses to replace what somebody has written by hand.
fn may_replace(path: &Path, force: bool) -> Result<()> {
    if force || !path.try_exists().with_context(|| format!("looking at {}", path.display()))? {
        return Ok(());
    }
    let shown = path.display();
    match profile::read(path) {
        Ok(profile) if profile.qualified.is_some() => Ok(()),
        _ => bail!(
            "{shown} is there and was not written by `belay qualify`: say --force to replace it, or name another file by \
             --profile"
        ),
    }
}

/// Writes it, whole or not at all.
///
/// # Errors
/// If it cannot be written, or somebody else's has come to be there.
pub fn write(path: &Path, force: bool, profile: &Profile) -> Result<()> {
    may_replace(path, force)?;
    let text = format!("# Written by `belay qualify`.\n{}", toml::to_string(profile)?);
    let shown = path.display();
    let folder = path.parent().context("a profile's file is in a folder")?;
    let store = || -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        // Profiles are read by everybody who starts daemons.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    store().with_context(|| format!("writing the profile {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_supervisor::Policy;

    fn stored(path: &Path, force: bool, policy: Policy) -> Result<()> {
        let qualified = "d 2026-01-01 5 experiments, belay 0.1.0".to_owned();
        write(path, force, &Profile::new("d", policy, qualified)?)
    }

    #[test]
    fn profiles_are_written_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/d.toml");
        stored(&path, false, Policy::Journal).unwrap();
        let profile = profile::read(&path).unwrap();
        assert!(profile.is_for(Path::new("/usr/bin/d")));
        assert_eq!(profile.policy(), Policy::Journal);
        assert!(profile.qualified.unwrap().contains("5 experiments"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        // One of our own is replaced, and nothing is left beside it.
        stored(&path, false, Policy::Reconcile).unwrap();
        assert_eq!(profile::read(&path).unwrap().policy(), Policy::Reconcile);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // `blind` is nothing that anybody may be certified for.
        assert!(stored(&path, false, Policy::Blind).is_err());
    }

    #[test]
    fn what_somebody_else_has_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.toml");
        for text in ["programs = [\"d\"]\npolicy = \"transaction\"\n", "no profile at all"] {
            std::fs::write(&path, text).unwrap();
            let error = stored(&path, false, Policy::Journal).unwrap_err().to_string();
            assert!(error.contains("--force"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        stored(&path, true, Policy::Journal).unwrap();
        assert_eq!(profile::read(&path).unwrap().policy(), Policy::Journal);
    }
}
