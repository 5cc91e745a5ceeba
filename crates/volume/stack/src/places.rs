//! In which folder the memory of a volume is. There are several that can be a user's: one that was
//! there when a volume was mounted may be second to another one at the next mount, as it is with
//! what a session of a user brings. So all of them are looked into.

use crate::memory;
use crate::place::{Place, make_private};
use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, mkdirat, statat, statfs};
use rustix::io::Errno;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What statfs(2) says of a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// How many names are tried for a folder beside those of others.
const TRIES: u64 = 64;

impl Place {
    /// The folder of the volume with that id: the one with its memory, if there is one; it is made
    /// if there is none.
    ///
    /// # Errors
    /// If there is no file system in memory for it, the folder is not this user's alone, or several
    /// have data of the volume that are not on its stores.
    pub fn of(volume: [u8; 16]) -> Result<Self> {
        Homes::of_user().place(volume)
    }

    /// The same, if there is one.
    ///
    /// # Errors
    /// As for [`Place::of`].
    pub fn find(volume: [u8; 16]) -> Result<Option<Self>> {
        Homes::of_user().find(volume)
    }
}

/// File systems in memory that have folders of a user.
struct Homes {
    uid: u32,
    /// The user's own, if there is one: the folder in it.
    own: Option<PathBuf>,
    /// One that all users share, and in which each can remove but what is theirs.
    shared: Option<PathBuf>,
}

impl Homes {
    /// By the user alone: what a mount has left is found whatever the environment of the next one
    /// is.
    fn of_user() -> Self {
        let uid = rustix::process::getuid().as_raw();
        let run = if uid == 0 { "/run".to_owned() } else { format!("/run/user/{uid}") };
        Self::new(uid, Path::new(&run), Path::new("/dev/shm"))
    }

    fn new(uid: u32, own: &Path, shared: &Path) -> Self {
        let in_memory = |dir: &&Path| statfs(*dir).is_ok_and(|it| it.f_type as u64 == TMPFS);
        Self {
            uid,
            own: Some(own).filter(in_memory).map(|own| own.join("belay")),
            shared: Some(shared).filter(in_memory).map(Path::to_owned),
        }
    }

    fn place(&self, volume: [u8; 16]) -> Result<Place> {
        if let Some(found) = self.find(volume)? {
            return Ok(found);
        }
        let top = match &self.own {
            Some(own) => {
                make_private(own)?;
                own.clone()
            }
            None => self.make_shared()?,
        };
        let [volumes, place] = below(&top, volume);
        make_private(&volumes)?;
        make_private(&place)?;
        Place::at(&place)
    }

    /// The one that counts of those that are there. It is where the volume is mounted, or where
    /// data are that are nowhere else, or where there is a memory at least.
    fn find(&self, volume: [u8; 16]) -> Result<Option<Place>> {
        let mut places = Vec::new();
        for top in self.tops()? {
            let [volumes, place] = below(&top, volume);
            if !is_there(&place)? {
                continue;
            }
            // Whoever could write to one of these could put another memory there.
            for folder in [&top, &volumes] {
                Place::at(folder)?;
            }
            places.push(Place::at(&place)?);
        }
        if let Some(held) = places.iter().find(|place| place.is_held()) {
            return Ok(Some(held.clone()));
        }
        let unsaved: Vec<_> = places.iter().filter(|place| memory::has_unsaved(place)).collect();
        if let [one, other, ..] = unsaved[..] {
            bail!(
                "data of the volume that are not on its stores may be in {} and in {}: move one of them away, and mount the volume \
                 with the other one",
                one.memory().display(),
                other.memory().display()
            );
        }
        let found = unsaved.first().copied();
        let found = found.or_else(|| places.iter().find(|place| place.memory().exists()));
        Ok(found.or(places.first()).cloned())
    }

    /// The user's folders; that of a file system of the user's own first.
    fn tops(&self) -> Result<Vec<PathBuf>> {
        let mut tops = Vec::new();
        if let Some(own) = &self.own
            && is_there(own)?
        {
            tops.push(own.clone());
        }
        tops.extend(self.shared_tops()?);
        Ok(tops)
    }

    /// The name of the user's folder where all users have theirs. If somebody else has taken it,
    /// the user's has this and more.
    fn name(&self) -> String {
        format!("belay-{}", self.uid)
    }

    fn shared_tops(&self) -> Result<Vec<PathBuf>> {
        let Some(shared) = &self.shared else { return Ok(Vec::new()) };
        let (name, more) = (self.name(), format!("{}-", self.name()));
        let mut tops = Vec::new();
        let listed = || format!("cannot list {}", shared.display());
        for entry in fs::read_dir(shared).with_context(listed)? {
            let entry = entry.with_context(listed)?;
            let found = entry.file_name();
            let is_named = found.to_str().is_some_and(|it| it == name || it.starts_with(&more));
            // What is somebody else's is no concern of this user's. Nobody can make, or move there,
            // a folder of another user's.
            if is_named && self.is_own(&entry.path()) {
                tops.push(entry.path());
            }
        }
        tops.sort();
        Ok(tops)
    }

    fn is_own(&self, path: &Path) -> bool {
        statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::Directory
                && found.st_uid == self.uid
        })
    }

    fn make_shared(&self) -> Result<PathBuf> {
        let Some(shared) = &self.shared else {
            bail!(
                "neither /dev/shm nor {} is a file system in memory (tmpfs): mount one there",
                if self.uid == 0 { "/run".to_owned() } else { format!("/run/user/{}", self.uid) }
            );
        };
        if let Some(top) = self.shared_tops()?.into_iter().next() {
            make_private(&top)?;
            return Ok(top);
        }
        // Who takes the first name from this user does not know the others.
        let random = RandomState::new();
        for number in 0..TRIES {
            let name = match number {
                0 => self.name(),
                _ => format!("{}-{:016x}", self.name(), random.hash_one(number)),
            };
            let top = shared.join(name);
            match mkdirat(CWD, &top, Mode::RWXU) {
                Ok(()) => return Ok(top),
                // Another process of this user may have been faster.
                Err(Errno::EXIST) if self.is_own(&top) => {
                    make_private(&top)?;
                    return Ok(top);
                }
                Err(Errno::EXIST) => {}
                Err(why) => {
                    return Err(why).with_context(|| format!("cannot make {}", top.display()));
                }
            }
        }
        bail!("all names in {} that were tried are taken", shared.display())
    }
}

/// The folders in one of the user's for a volume.
fn below(top: &Path, volume: [u8; 16]) -> [PathBuf; 2] {
    let volumes = top.join("volumes");
    let id: String = volume.iter().map(|byte| format!("{byte:02x}")).collect();
    let place = volumes.join(id);
    [volumes, place]
}

/// Whether something is there. What cannot be looked at may be.
fn is_there(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why).with_context(|| format!("cannot look at {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_cache::Capacity;
    use belay_object::Room;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const VOLUME: [u8; 16] = [7; 16];
    const SMALL: Capacity = Capacity { frames: 1024, slots: 512 };

    /// A user, at first with no session.
    struct User {
        dir: TempDir,
        uid: u32,
    }

    impl User {
        fn new() -> Self {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            fs::create_dir(dir.path().join("shm")).unwrap();
            Self { dir, uid: rustix::process::getuid().as_raw() }
        }

        fn shm(&self) -> PathBuf {
            self.dir.path().join("shm")
        }

        fn log_in(&self) {
            fs::create_dir(self.run()).unwrap();
        }

        fn run(&self) -> PathBuf {
            self.dir.path().join("run")
        }

        fn homes(&self) -> Homes {
            Homes::new(self.uid, &self.run(), &self.shm())
        }
    }

    /// A memory in which all is durable, or is not as it seems.
    fn fill(place: &Place, is_saved: bool) {
        let memory = memory::open_or_make(place, SMALL).unwrap();
        if is_saved {
            memory.initialize(3, 5, &Room::default());
        }
        memory.set_valid();
    }

    #[test]
    fn a_memory_is_found_though_another_folder_comes_first_by_now() {
        let user = User::new();
        assert!(user.homes().find(VOLUME).unwrap().is_none());
        let before = user.homes().place(VOLUME).unwrap();
        assert!(before.path().starts_with(user.shm()));
        fill(&before, false);
        user.log_in();
        assert_eq!(user.homes().find(VOLUME).unwrap().as_ref(), Some(&before));
        assert_eq!(user.homes().place(VOLUME).unwrap(), before);
        // Other volumes come to where they belong now.
        let other = user.homes().place([8; 16]).unwrap();
        assert!(other.path().starts_with(user.run()));
    }

    #[test]
    fn of_several_memories_the_one_counts_that_is_needed() {
        let user = User::new();
        let one = user.homes().place(VOLUME).unwrap();
        // Another one, as an earlier belay has made it, which did not look for the first.
        user.log_in();
        let alone = Homes { shared: None, ..user.homes() };
        let other = alone.place(VOLUME).unwrap();
        assert_eq!(user.homes().place(VOLUME).unwrap(), other);
        fill(&one, true);
        assert_eq!(user.homes().place(VOLUME).unwrap(), one);
        fill(&other, true);
        assert_eq!(user.homes().place(VOLUME).unwrap(), other);
        memory::remove(&one).unwrap();
        fill(&one, false);
        assert_eq!(user.homes().place(VOLUME).unwrap(), one);
        // What cannot be told may have something.
        fs::write(other.memory(), b"").unwrap();
        let why = user.homes().place(VOLUME).unwrap_err().to_string();
        assert!(why.contains(one.path().to_str().unwrap()), "{why}");
        assert!(why.contains(other.path().to_str().unwrap()), "{why}");
        // Where it is mounted is where it is.
        let held = other.hold().unwrap().unwrap();
        assert_eq!(user.homes().place(VOLUME).unwrap(), other);
        drop(held);
        assert!(user.homes().place(VOLUME).is_err());
    }

    #[test]
    fn who_takes_a_name_keeps_nobody_from_another() {
        let user = User::new();
        let first = user.shm().join(user.homes().name());
        // Somebody else's: a file is as good for that as the folder of another user, which only
        // root can make.
        fs::write(&first, b"").unwrap();
        std::os::unix::fs::symlink("/", user.shm().join(format!("{}-0", user.homes().name())))
            .unwrap();
        let place = user.homes().place(VOLUME).unwrap();
        fill(&place, false);
        assert_eq!(user.homes().place(VOLUME).unwrap(), place);
        assert_eq!(user.homes().place([8; 16]).unwrap().path().parent(), place.path().parent());
        // The name has become free.
        fs::remove_file(&first).unwrap();
        assert_eq!(user.homes().find(VOLUME).unwrap(), Some(place));
    }

    #[test]
    fn a_folder_to_which_others_write_is_refused() {
        let user = User::new();
        let place = user.homes().place(VOLUME).unwrap();
        fill(&place, false);
        for folder in place.path().ancestors().take(3) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
            assert!(user.homes().find(VOLUME).is_err(), "{}", folder.display());
            assert!(user.homes().place(VOLUME).is_err(), "{}", folder.display());
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        assert!(user.homes().find(VOLUME).is_ok());
    }
}
