//! Where definitions are, and how one is found, added and removed.

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::folder;
use crate::name::VolumeName;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where root's are, which everybody's names may lead to.
const SYSTEM: &str = "/etc/belay/volumes";
/// How a file with a definition ends.
const END: &str = ".toml";

/// The definitions that a user has.
#[derive(Clone, Debug)]
pub struct Registry {
    /// This user's own.
    own: PathBuf,
    /// Where else is looked.
    others: Vec<PathBuf>,
}

/// A volume of a list.
#[derive(Debug)]
pub struct Listed {
    /// What it is called.
    pub name: VolumeName,
    /// Where its definition is.
    pub path: PathBuf,
    /// That; or why it cannot be had.
    pub definition: Result<Definition>,
}

impl Registry {
    /// That of the user who runs this: `$BELAY_VOLUMES_DIR`, and nothing else, if that is set; else
    /// `/etc/belay/volumes`, and before that, for others than root,
    /// `$XDG_CONFIG_HOME/belay/volumes` or `~/.config/belay/volumes`.
    ///
    /// # Errors
    /// [`Error::NoPlace`].
    pub fn of_user() -> Result<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        if let Some(own) = variable("BELAY_VOLUMES_DIR") {
            return Ok(Self { own: absolute(own.into()), others: Vec::new() });
        }
        let system = PathBuf::from(SYSTEM);
        if rustix::process::geteuid().is_root() {
            return Ok(Self { own: system, others: Vec::new() });
        }
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        let own = absolute(config.ok_or(Error::NoPlace)?.join("belay/volumes"));
        Ok(Self { own, others: vec![system] })
    }

    /// With definitions in that folder alone.
    pub fn at(folder: &Path) -> Self {
        Self { own: folder.to_owned(), others: Vec::new() }
    }

    /// Where this user's own are.
    pub fn own(&self) -> &Path {
        &self.own
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.own).chain(&self.others)
    }

    /// The definition of a volume, and where that is: this user's own, or else root's.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; those of reading it.
    pub fn find(&self, name: &VolumeName) -> Result<(Definition, PathBuf)> {
        let mut hidden = None;
        for folder in self.folders() {
            let opened = match folder::open(folder) {
                Ok(opened) => opened,
                Err(Error::System { why, path, .. })
                    if why.kind() == ErrorKind::PermissionDenied && *folder != self.own =>
                {
                    hidden = Some(path);
                    continue;
                }
                Err(why) => return Err(why),
            };
            let Some(opened) = opened else { continue };
            let path = path_in(folder, name);
            if let Some(text) = folder::read(&opened, &file_name(name), &path)? {
                return Ok((parse(&text, &path)?, path));
            }
        }
        Err(match hidden {
            Some(path) => Error::Hidden { name: name.clone(), path },
            None => Error::NoVolume(name.clone()),
        })
    }

    /// All volumes, by their names. What cannot be read is among them.
    ///
    /// # Errors
    /// Those of looking into this user's own folder.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut found = BTreeMap::new();
        for folder in self.folders() {
            let opened = match folder::open(folder) {
                Err(_) if *folder != self.own => None,
                opened => opened?,
            };
            let Some(opened) = opened else { continue };
            let failed = |why| Error::System { what: "list", path: folder.clone(), why };
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?.file_name();
                let name = entry.to_str().and_then(|name| name.strip_suffix(END)?.parse().ok());
                let Some(name): Option<VolumeName> = name else { continue };
                let path = path_in(folder, &name);
                let read = match folder::read(&opened, &file_name(&name), &path) {
                    Ok(None) => continue,
                    Ok(Some(text)) => parse(&text, &path),
                    Err(why) => Err(why),
                };
                found.entry(name.clone()).or_insert(Listed { name, path, definition: read });
            }
        }
        Ok(found.into_values().collect())
    }

    /// Says whether this user has a volume of that name.
    ///
    /// # Errors
    /// [`Error::Exists`]; those of the system.
    pub fn check_new(&self, name: &VolumeName) -> Result<()> {
        let path = path_in(&self.own, name);
        match folder::open(&self.own)?.is_some() && path.symlink_metadata().is_ok() {
            true => Err(Error::Exists { name: name.clone(), path }),
            false => Ok(()),
        }
    }

    /// Writes the definition of a new volume, all of it or nothing; gives where it is.
    ///
    /// # Errors
    /// [`Error::Exists`]; those of the system.
    pub fn add(&self, name: &VolumeName, definition: &Definition) -> Result<PathBuf> {
        let path = path_in(&self.own, name);
        let wrong = |why| Error::Wrong { path: path.clone(), why };
        let text = definition.to_text().map_err(wrong)?;
        folder::make(&self.own)?;
        let failed = |why| Error::System { what: "write", path: path.clone(), why };
        let new = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.own);
        let mut new = new.map_err(failed)?;
        new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
        new.persist_noclobber(&path).map_err(|why| match why.error.kind() {
            ErrorKind::AlreadyExists => Error::Exists { name: name.clone(), path: path.clone() },
            _ => failed(why.error),
        })?;
        if let Err(why) = sync(&self.own) {
            // Nobody is told of a name that may be gone after a power failure.
            let _ = std::fs::remove_file(&path);
            return Err(failed(why));
        }
        Ok(path)
    }

    /// Removes the definition of a volume of this user's, whatever is in it; gives where it was.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; those of the system.
    pub fn remove(&self, name: &VolumeName) -> Result<PathBuf> {
        let path = path_in(&self.own, name);
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() == ErrorKind::NotFound => {
                // It may be root's: whoever is told so knows what to do.
                return Err(match self.find(name) {
                    Ok(_) => Error::System {
                        what: "remove",
                        path: path_in(self.others.first().unwrap_or(&self.own), name),
                        why: std::io::Error::other("it belongs to root"),
                    },
                    Err(why) => why,
                });
            }
            done => {
                done.map_err(|why| Error::System { what: "remove", path: path.clone(), why })?
            }
        }
        let _ = sync(&self.own);
        Ok(path)
    }
}

fn file_name(name: &VolumeName) -> String {
    format!("{name}{END}")
}

fn path_in(folder: &Path, name: &VolumeName) -> PathBuf {
    folder.join(file_name(name))
}

fn parse(text: &str, path: &Path) -> Result<Definition> {
    Definition::from_text(text).map_err(|why| Error::Wrong { path: path.to_owned(), why })
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
