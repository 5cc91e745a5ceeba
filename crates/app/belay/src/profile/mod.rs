//! Profiles: which policy a daemon needs. The only place where daemons are known by name, and that
//! is data.
//!
//! A profile is a TOML file. Those of the user come before those of the machine, and these before
//! the ones that belay brings along; `belay qualify` writes them.

mod auto;
pub mod checkpoint;
mod file;

pub use file::{Buffer, InodeNumbers, Loses, Profile};

use anyhow::{Context, Result, ensure};
use auto::Guess;
use belay_supervisor::config::{CheckpointConfig, Policy, Until};
use belay_supervisor::outside;
use checkpoint::{FlushName, Wishes};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Largest profile that is read.
const LARGEST: u64 = 1 << 20;

/// Profiles that belay brings along.
const BUILT_IN: &[(&str, &str)] = &[
    ("archivemount", include_str!("../../../../../profiles/archivemount.toml")),
    ("avfs", include_str!("../../../../../profiles/avfs.toml")),
    ("bindfs", include_str!("../../../../../profiles/bindfs.toml")),
    ("clamfs", include_str!("../../../../../profiles/clamfs.toml")),
    ("convmvfs", include_str!("../../../../../profiles/convmvfs.toml")),
    ("davfs2", include_str!("../../../../../profiles/davfs2.toml")),
    ("disorderfs", include_str!("../../../../../profiles/disorderfs.toml")),
    ("encfs", include_str!("../../../../../profiles/encfs.toml")),
    ("exfat-fuse", include_str!("../../../../../profiles/exfat-fuse.toml")),
    ("fuse-overlayfs", include_str!("../../../../../profiles/fuse-overlayfs.toml")),
    ("fuse-zip", include_str!("../../../../../profiles/fuse-zip.toml")),
    ("fuse2fs", include_str!("../../../../../profiles/fuse2fs.toml")),
    ("fusefat", include_str!("../../../../../profiles/fusefat.toml")),
    ("glusterfs", include_str!("../../../../../profiles/glusterfs.toml")),
    ("libfuse-examples", include_str!("../../../../../profiles/libfuse-examples.toml")),
    ("loggedfs", include_str!("../../../../../profiles/loggedfs.toml")),
    ("mergerfs", include_str!("../../../../../profiles/mergerfs.toml")),
    ("mhddfs", include_str!("../../../../../profiles/mhddfs.toml")),
    ("moosefs", include_str!("../../../../../profiles/moosefs.toml")),
    ("ntfs-3g", include_str!("../../../../../profiles/ntfs-3g.toml")),
    ("s3fs", include_str!("../../../../../profiles/s3fs.toml")),
    ("securefs", include_str!("../../../../../profiles/securefs.toml")),
    ("sshfs", include_str!("../../../../../profiles/sshfs.toml")),
    ("unionfs", include_str!("../../../../../profiles/unionfs.toml")),
];

/// A profile, and where it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it says.
    pub profile: Profile,
    /// Its file, or that it is built in, for people.
    pub source: String,
}

/// Where profiles of the user and of the machine are, the first one first.
pub fn folders() -> Vec<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.filter(|path| path.is_absolute()).map(|path| path.join("belay/profiles"));
    user.into_iter().chain([PathBuf::from("/etc/belay/profiles")]).collect()
}

/// The profile for a program, if there is one.
///
/// # Errors
/// If a profile cannot be read or says what cannot be: a daemon must not run under another policy
/// than its owner has written down.
pub fn find(program: &Path) -> Result<Option<Found>> {
    find_in(&folders(), program)
}

fn find_in(folders: &[PathBuf], program: &Path) -> Result<Option<Found>> {
    for folder in folders {
        for path in files(folder)? {
            let profile = read(&path)?;
            if profile.is_for(program) {
                return Ok(Some(Found { profile, source: path.display().to_string() }));
            }
        }
    }
    for (name, text) in BUILT_IN {
        let profile = Profile::parse(text).with_context(|| format!("built-in profile {name}"))?;
        if profile.is_for(program) {
            let source = format!("{BUILT_IN_SOURCE} {name}");
            return Ok(Some(Found { profile, source }));
        }
    }
    Ok(None)
}

/// What keeps profiles of the user and of the machine from being read. A daemon is refused if belay
/// comes by one of these before it finds that daemon's own.
pub fn broken() -> Vec<String> {
    broken_in(&folders())
}

fn broken_in(folders: &[PathBuf]) -> Vec<String> {
    let why = |error: anyhow::Error| format!("{error:#}");
    let mut broken = Vec::new();
    for folder in folders {
        match files(folder) {
            Ok(paths) => broken.extend(paths.iter().filter_map(|path| read(path).err().map(why))),
            Err(error) => broken.push(why(error)),
        }
    }
    broken
}

/// How the source of a profile begins that belay brings along.
const BUILT_IN_SOURCE: &str = "built-in profile";

/// The profile that belay brings along for a program, by name and policy.
pub fn built_in(program: &Path) -> Option<(&'static str, &'static str)> {
    BUILT_IN.iter().find_map(|(name, text)| {
        let profile = Profile::parse(text).ok().filter(|profile| profile.is_for(program))?;
        Some((*name, profile.policy().effective()))
    })
}

impl Found {
    /// What is to be said of a profile that takes the place of one that belay brings along.
    fn replacing(&self, program: &Path) -> Option<String> {
        let (name, policy) =
            built_in(program).filter(|_| !self.source.starts_with(BUILT_IN_SOURCE))?;
        Some(format!(
            "policy {}, as {} says, instead of the built-in profile {name} (policy {policy})",
            self.profile.policy().effective(),
            self.source
        ))
    }
}

/// The profiles in a folder, in the order of their names; none if there is no such folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let where_to = "XDG_CONFIG_HOME, or else HOME, says where a user's are";
            return Err(error).with_context(|| {
                format!("cannot look for profiles in {} ({where_to})", folder.display())
            });
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads one profile.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn read(path: &Path) -> Result<Profile> {
    let shown = path.display();
    let text = outside::read_text(path, outside::From::Anybody, LARGEST)
        .with_context(|| format!("reading profile {shown}"))?;
    Profile::parse(&text)
        .with_context(|| format!("profile {shown}; correct it, or choose a policy with --policy"))
}

/// How a daemon is to be held.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The policy.
    pub policy: Policy,
    /// What its inode numbers do.
    pub inode_numbers: InodeNumbers,
    /// When checkpoints are made, and how.
    pub checkpoints: CheckpointConfig,
    /// Nobody has said that all of the daemon's calls are seen.
    pub unproven: bool,
    /// Nobody has said that the daemon stores what it is given to write before it answers.
    pub watched: bool,
    /// Until when it holds what it has acknowledged.
    pub until: Until,
    /// The file that alone gives the daemon its names, if numbers are not known to be stable.
    pub medium: Option<PathBuf>,
    /// The image, if it was found out.
    pub image: Option<PathBuf>,
    /// Who says which policy, or why, for people.
    pub reason: String,
    /// That its profile takes the place of one that belay brings along, for people.
    pub replacing: Option<String>,
    /// What is lost under it, and what helps.
    pub loses: Option<Loses>,
    /// The daemon ends with its connection, and answers EIO before.
    pub ends_unconnected: bool,
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The policy.
    pub policy: Policy,
    /// What the daemon's inode numbers do.
    pub inode_numbers: Option<InodeNumbers>,
    /// How it is made to write all that it holds.
    pub flush: Option<FlushName>,
    /// When checkpoints are made.
    pub checkpoints: Wishes,
    /// Until when it holds what it has acknowledged.
    pub until: Option<Until>,
    /// Why nothing of what it does is seen: the relay holds it.
    pub unseen: Option<&'static str>,
}

/// Chooses what was asked for, else what the daemon's profile says, else by what is seen of the
/// daemon (`auto`). `image` is what the user says is its image.
///
/// # Errors
/// Those of [`find`], if not everything was asked for; and if checkpoints cannot be made so.
pub fn choose(
    wanted: &Asked,
    program: &Path,
    command: &[OsString],
    image: Option<&Path>,
) -> Result<Chosen> {
    let inode_numbers = wanted.inode_numbers;
    let asked = (wanted.policy != Policy::Auto).then_some(wanted.policy);
    if let (Some(why), Some(policy)) = (wanted.unseen, asked) {
        ensure!(
            matches!(policy, Policy::Reconcile | Policy::Blind),
            "policy {} cannot be had for {}: it {why}, so belay does not see what it does; leave out --policy, or choose \
             reconcile",
            policy.effective(),
            program.display(),
        );
    }
    let told = |asked| match asked {
        Policy::Epoch => wanted.flush.is_some(),
        Policy::Buffer => wanted.until.is_some(),
        _ => true,
    };
    let all = asked.is_some_and(told) && inode_numbers.is_some();
    let found = if all { None } else { find(program)? };
    let profile = found.as_ref().map(|found| &found.profile);
    let silent = Wishes::default();
    let theirs = profile.map_or(&silent, |profile| &profile.checkpoint);
    let Guess { policy, flush, image, reason } = match (asked, &found) {
        (Some(policy), _) => Guess::told(policy, "--policy"),
        (None, _) if wanted.unseen.is_some() => {
            let why = wanted.unseen.unwrap_or_default();
            Guess::told(Policy::Reconcile, &format!("auto: it {why}, so a relay holds it"))
        }
        (None, Some(found)) => Guess::told(found.profile.policy(), &found.source),
        (None, None) => auto::guess(command, image),
    };
    let medium =
        if inode_numbers.is_none() && found.is_none() { auto::medium(command) } else { None };
    let mut reason = reason;
    if let Some((path, what)) = &medium {
        let path = path.display();
        reason +=
            &format!("; inode numbers are not compared, as nobody moves files in {path} ({what})");
    }
    let buffer = profile.and_then(|profile| profile.buffer.as_ref());
    let until = buffer.map(|buffer| buffer.until);
    let buffers = (policy == Policy::Buffer).then_some(FlushName::Restart);
    let flush = buffers.or(wanted.flush).or(profile.and_then(|profile| profile.flush)).or(flush);
    let loses = profile
        .and_then(|profile| losing(profile, command))
        .filter(|loses| policy != Policy::Buffer || loses.buffered);
    let connection = profile.and_then(|profile| profile.connection.as_ref());
    let ends_unconnected = connection.is_some_and(|one| !has_option(command, &one.unless));
    let reason = match &loses {
        Some(loses) => format!("{reason}; {}", loses.what),
        None => reason,
    };
    let forgets = profile.filter(|_| policy == Policy::Buffer).and_then(forgetting);
    let reason = match forgets {
        Some(forgets) => format!("{reason}; {forgets}"),
        None => reason,
    };
    let chosen_by = found.as_ref().filter(|_| asked.is_none());
    Ok(Chosen {
        policy,
        replacing: chosen_by.and_then(|found| found.replacing(program)),
        loses,
        ends_unconnected,
        unproven: asked.is_none() && found.is_none(),
        // Of what leaves it nothing is seen, so nothing can be missed.
        watched: wanted.unseen.is_none() && !profile.is_some_and(|profile| profile.stores_at_once),
        medium: medium.map(|(path, _)| path),
        until: wanted.until.or(until).unwrap_or_default(),
        image,
        inode_numbers: inode_numbers
            .or(profile.map(|profile| profile.inode_numbers))
            .unwrap_or_default(),
        checkpoints: wanted.checkpoints.settle(theirs, flush)?,
        reason,
    })
}

/// What a daemon with this command line may lose, as its profile says.
pub fn losing(profile: &Profile, command: &[OsString]) -> Option<Loses> {
    let has = |name: &String| has_option(command, name);
    profile.loses.as_ref().filter(|loses| !loses.unless.as_ref().is_some_and(has)).cloned()
}

/// What a daemon does not store of what it was told, as its profile says: a part of a sentence.
pub fn forgetting(profile: &Profile) -> Option<String> {
    let forgets = profile.buffer.as_ref()?.forgets.as_ref()?;
    Some(format!("this daemon does not store {forgets}"))
}

/// Whether a command line has such an option (`-o NAME`, `-oNAME`, among others or alone).
fn has_option(command: &[OsString], name: &str) -> bool {
    let has = |word: &OsString| {
        let text = word.to_string_lossy();
        text.split(',').any(|option| option.trim_start_matches("-o") == name)
    };
    command.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_profiles_of_the_folder_are_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../profiles");
        let files = std::fs::read_dir(folder).expect("the folder").flatten();
        let mut files: Vec<_> = files.map(|file| file.path()).collect();
        files.sort();
        let file = |name: &str| Path::new(folder).join(format!("{name}.toml"));
        let mut built_in: Vec<_> = BUILT_IN.iter().map(|(name, _)| file(name)).collect();
        built_in.sort();
        assert_eq!(built_in, files);
        for (name, text) in BUILT_IN {
            assert_eq!(std::fs::read_to_string(file(name)).expect("a file"), *text, "{name}");
        }
    }

    #[test]
    fn built_in_profiles_are_right_and_each_program_has_one() {
        let mut programs = Vec::new();
        for (name, text) in BUILT_IN {
            let profile = Profile::parse(text).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            programs.extend(profile.programs);
        }
        let all = programs.len();
        programs.sort();
        programs.dedup();
        assert_eq!(programs.len(), all, "a program in two profiles");
        let found = find_in(&[], Path::new("/usr/bin/ntfs-3g")).unwrap().unwrap();
        assert_eq!(found.profile.policy(), Policy::Transaction);
        assert!(find_in(&[], Path::new("/usr/bin/unknown")).unwrap().is_none());
        let numbers =
            |name: &str| find_in(&[], Path::new(name)).unwrap().unwrap().profile.inode_numbers;
        assert_eq!(numbers("mergerfs"), InodeNumbers::Volatile);
        assert_eq!(numbers("bindfs"), InodeNumbers::Stable);
    }

    #[test]
    fn what_is_asked_for_comes_before_the_profile() {
        let wanted = Asked {
            policy: Policy::Blind,
            inode_numbers: Some(InodeNumbers::Stable),
            ..Asked::default()
        };
        let chosen = choose(&wanted, Path::new("/usr/bin/mergerfs"), &[], None).unwrap();
        assert_eq!((chosen.policy, chosen.inode_numbers), (Policy::Blind, InodeNumbers::Stable));
    }

    #[test]
    fn daemons_that_buffer_are_known_and_how_they_are_made_to_write() {
        for (name, flush) in [("fuse2fs", FlushName::Fsyncdir), ("fusefat", FlushName::Flush)] {
            let profile = find_in(&[], Path::new(name)).unwrap().unwrap().profile;
            assert_eq!((profile.policy(), profile.flush), (Policy::Epoch, Some(flush)), "{name}");
        }
    }

    #[test]
    fn the_users_come_first_and_wrong_ones_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_path_buf();
        let program = Path::new("/opt/ntfs-3g");
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let find = || find_in(std::slice::from_ref(&folder), program);
        write("other.toml", "programs = [\"else\"]\npolicy = \"journal\"\n");
        write("notes.txt", "not a profile");
        assert!(find().unwrap().unwrap().source.contains("built-in"));
        write("mine.toml", "programs = [\"ntfs-3g\"]\npolicy = \"reconcile\"\n");
        let found = find().unwrap().unwrap();
        assert_eq!(found.profile.policy(), Policy::Reconcile);
        assert!(found.source.ends_with("mine.toml"));
        for wrong in ["policy = \"journal\"", "programs = [\"x\"]\npolicy = \"fast\"", "]["] {
            write("aaa.toml", wrong);
            let error = format!("{:#}", find().unwrap_err());
            assert!(error.contains("aaa.toml"), "{error}");
            let broken = broken_in(std::slice::from_ref(&folder));
            assert!(broken.len() == 1 && broken[0] == error, "{broken:?}");
        }
        let none = folder.join("missing");
        assert!(find_in(&[none], Path::new("x")).unwrap().is_none());
    }

    /// S103: whoever chooses a policy does not know for sure what the daemon keeps; a profile may.
    #[test]
    fn daemons_are_watched_unless_a_profile_speaks_for_them() {
        let asked = |policy| Asked { policy, ..Asked::default() };
        for policy in [Policy::Auto, Policy::Journal] {
            let command = ["nobody-knows-it".into(), "/mnt".into()];
            let chosen = choose(&asked(policy), Path::new("/nobody-knows-it"), &command, None);
            let chosen = chosen.unwrap();
            assert_eq!((chosen.policy, chosen.watched), (Policy::Journal, true), "{policy:?}");
        }
        let parse = |more: &str| {
            Profile::parse(&format!("programs = [\"x\"]\npolicy = \"journal\"\n{more}")).unwrap()
        };
        assert!(!parse("").stores_at_once && parse("stores_at_once = true").stores_at_once);
    }

    /// L43: what sshfs may lose is said, unless it is told not to.
    #[test]
    fn what_a_daemon_loses_is_told() {
        let loses = |options: &str, policy| {
            let command: Vec<OsString> =
                ["sshfs", "-o", options, "host:", "/mnt"].map(Into::into).into();
            let asked = Asked { policy, ..Asked::default() };
            let chosen = choose(&asked, Path::new("/usr/bin/sshfs"), &command, None).unwrap();
            (chosen.loses.is_some(), chosen.reason.contains("lost"), chosen.until)
        };
        for options in ["reconnect", "sshfs_synchronous", ""] {
            assert_eq!(loses(options, Policy::Auto), (true, true, Until::Flush), "{options}");
        }
        assert_eq!(loses("ro,sshfs_sync", Policy::Auto), (false, false, Until::Flush));
        // Without a word of until when.
        assert_eq!(loses("", Policy::Buffer), (false, false, Until::Flush));
    }

    /// L52: davfs2 uploads files after they were closed, whatever the policy is.
    #[test]
    fn what_davfs2_has_not_uploaded_is_told() {
        for policy in [Policy::Auto, Policy::Buffer, Policy::Journal] {
            let command: Vec<OsString> =
                ["mount.davfs", "http://127.0.0.1/", "/mnt", "-o", "ro"].map(Into::into).into();
            let asked = Asked { policy, ..Asked::default() };
            let chosen = choose(&asked, Path::new("/sbin/mount.davfs"), &command, None).unwrap();
            let loses = chosen.loses.as_ref().expect("it is told");
            assert!(loses.buffered && loses.remedy.contains("delay_upload 0"));
            assert!(chosen.reason.contains("not uploaded") && chosen.until == Until::Release);
            assert_eq!(chosen.policy == Policy::Buffer, policy != Policy::Journal);
        }
    }

    /// glusterfs goes other ways when a request is done again.
    #[test]
    fn glusterfs_is_asked() {
        let command: Vec<OsString> = ["glusterfs", "-N", "/mnt"].map(Into::into).into();
        let chosen =
            choose(&Asked::default(), Path::new("/usr/sbin/glusterfs"), &command, None).unwrap();
        assert_eq!(chosen.policy, Policy::Reconcile);
    }

    /// mfsmount writes later than it answers, until a flush.
    #[test]
    fn moosefs_is_held() {
        let command: Vec<OsString> = ["mfsmount", "-f", "/mnt"].map(Into::into).into();
        let chosen =
            choose(&Asked::default(), Path::new("/usr/bin/mfsmount"), &command, None).unwrap();
        assert_eq!((chosen.policy, chosen.until), (Policy::Buffer, Until::Flush));
    }

    /// L47: fuse-zip stores no modes of empty directories.
    #[test]
    fn what_a_daemon_does_not_store_is_told() {
        let command: Vec<OsString> = ["fuse-zip", "a.zip", "/mnt"].map(Into::into).into();
        let chosen =
            choose(&Asked::default(), Path::new("/usr/bin/fuse-zip"), &command, None).unwrap();
        assert!(chosen.reason.contains("does not store the modes of empty directories"));
    }
}
