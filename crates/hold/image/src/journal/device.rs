//! What tells one block device from another. Its number may be another's after a restart, and
//! writes to it leave no time.

use super::grounds::grounds;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a sector, in which sizes are told.
pub(super) const SECTOR: u64 = 512;
/// Where the kernel tells of devices.
pub(super) const SYS: &str = "/sys";

/// The file that a loop device shows, itself or through others.
pub(super) struct Backing {
    /// Its path, without links.
    pub(super) file: PathBuf,
    /// What is known of it.
    pub(super) meta: Metadata,
    /// The device shows all of it, from its start on.
    pub(super) is_whole: bool,
}

/// What a block device tells of itself.
pub(super) struct Device {
    /// The folder of the disk that it is, or is a part of.
    pub(super) disk: PathBuf,
    /// Its own.
    own: PathBuf,
    /// The number of the part; nothing for a whole disk.
    pub(super) partition: Vec<u8>,
}

impl Device {
    pub(super) fn of(number: u64, sys: &Path) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
        match read(&device.join("partition")) {
            Some(partition) => {
                Some(Self { disk: device.parent()?.to_path_buf(), own: device, partition })
            }
            None => Some(Self { disk: device.clone(), own: device, partition: Vec::new() }),
        }
    }

    fn says(&self, name: &str) -> Option<Vec<u8>> {
        read(&self.disk.join(name))
    }

    /// A number that its disk tells; 0 if it does not.
    pub(super) fn number(&self, name: &str) -> u64 {
        number(&self.disk.join(name))
    }

    /// A number that it tells itself.
    pub(super) fn of_own(&self, name: &str) -> u64 {
        number(&self.own.join(name))
    }

    /// The disk that it is a part of, and the disk's node.
    pub(super) fn above(&self, sys: &Path) -> Option<(u64, Option<PathBuf>)> {
        (!self.partition.is_empty()).then(|| numbered(&self.disk, sys))?
    }

    /// The devices that it is made of, and their nodes.
    pub(super) fn parts(&self, sys: &Path) -> Vec<(u64, Option<PathBuf>)> {
        let parts = std::fs::read_dir(self.own.join("slaves")).into_iter().flatten().flatten();
        parts.filter_map(|part| numbered(&part.path(), sys)).collect()
    }
}

fn number(path: &Path) -> u64 {
    let text = read(path).and_then(|text| String::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The number of the device with this folder, and its node, if that is there and is it.
fn numbered(folder: &Path, sys: &Path) -> Option<(u64, Option<PathBuf>)> {
    let text = String::from_utf8(read(&folder.join("dev"))?).ok()?;
    let (major, minor) = text.split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some((number, node(number, sys)))
}

/// Where the device of that number can be opened.
pub(super) fn node(number: u64, sys: &Path) -> Option<PathBuf> {
    let device = Device::of(number, sys)?;
    let told = std::fs::read_to_string(device.own.join("uevent")).ok()?;
    let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = Path::new("/dev").join(name);
    let meta = path.metadata().ok()?;
    (meta.file_type().is_block_device() && meta.rdev() == number).then_some(path)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let text = std::fs::read(path).ok()?.trim_ascii().to_vec();
    (!text.is_empty()).then_some(text)
}

/// The file behind the device of this number, which can be opened as `node`, if it is a loop device
/// and the file can be found.
pub(super) fn backing(number: u64, node: Option<&Path>, sys: &Path) -> Option<Backing> {
    let node = node.map(Path::to_path_buf).or_else(|| self::node(number, sys));
    let found = grounds(number, node, sys);
    let file =
        found.into_iter().find(|ground| ground.behind.inode != 0 && ground.behind.through == 0)?;
    let path = file.path?;
    let meta = path.metadata().ok().filter(Metadata::is_file)?;
    Some(Backing { file: path, meta, is_whole: file.is_whole })
}

/// What tells a block device from all others, also after a restart.
pub(super) fn key(number: u64, sys: &Path) -> Option<Vec<u8>> {
    let device = Device::of(number, sys)?;
    let names = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "device/serial", "serial"];
    let told = names.into_iter().find_map(|name| device.says(name)).or_else(|| {
        // A file as a device is the same if the file and the place in it are, however much is
        // shown.
        let file = device.says("loop/backing_file")?;
        let offset = device.says("loop/offset").unwrap_or_default();
        Some([file, offset].join(&b'@'))
    })?;
    Some([told, device.partition].join(&b'#'))
}

#[cfg(test)]
mod tests {
    use super::super::grounds::Ground;
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder as the kernel's, with a disk, a part of one, and loop devices of a file in it.
    fn kernel() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("disk.img", &"x".repeat(4 * 512 + 100));
        let file = sys.path().join("disk.img").display().to_string() + "\n";
        put("devices/sda/wwid", "naa.5000\n");
        put("devices/sda/sda2/partition", "2\n");
        for (name, offset, size) in
            [("loop0", "512\n", "3\n"), ("loop1", "0\n", "4\n"), ("loop3", "0\n", "9\n")]
        {
            put(&format!("devices/{name}/size"), size);
            put(&format!("devices/{name}/loop/backing_file"), &file);
            put(&format!("devices/{name}/loop/offset"), offset);
            put(&format!("devices/{name}/loop/sizelimit"), "0\n");
        }
        put("devices/loop1/loop1p3/partition", "3\n");
        put("devices/loop2/loop/backing_file", "/nowhere/disk.img (deleted)\n");
        put("devices/vda/size", "1\n");
        // Of the numbers 8:0 to 8:7, as the links have them.
        for (minor, name) in [(0, "sda"), (1, "sda/sda2"), (3, "loop1")] {
            put(&format!("devices/{name}/dev"), &format!("8:{minor}\n"));
        }
        put("devices/sda/size", "1000\n");
        put("devices/sda/sda2/start", "100\n");
        put("devices/sda/sda2/size", "50\n");
        put("devices/loop1/loop1p3/start", "1\n");
        put("devices/loop1/loop1p3/size", "2\n");
        for name in ["dm-0", "dm-1"] {
            put(&format!("devices/{name}/slaves/x"), "");
            std::fs::remove_file(sys.path().join(format!("devices/{name}/slaves/x"))).unwrap();
            let slave = sys.path().join(format!("devices/{name}/slaves/sda2"));
            symlink(sys.path().join("devices/sda/sda2"), slave).unwrap();
        }
        std::fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        let devices = [
            "sda",
            "sda/sda2",
            "loop0",
            "loop1",
            "loop1/loop1p3",
            "loop2",
            "vda",
            "loop3",
            "dm-0",
            "dm-1",
        ];
        for (minor, device) in devices.into_iter().enumerate() {
            let link = sys.path().join(format!("dev/block/8:{minor}"));
            symlink(sys.path().join("devices").join(device), link).unwrap();
        }
        sys
    }

    #[test]
    fn devices_are_known_by_what_stays() {
        let sys = kernel();
        let file = sys.path().join("disk.img").display().to_string();
        let key = |minor| {
            let key = key(rustix::fs::makedev(8, minor), sys.path())?;
            Some(String::from_utf8(key).unwrap())
        };
        assert_eq!(key(0).as_deref(), Some("naa.5000#"));
        assert_eq!(key(1).as_deref(), Some("naa.5000#2"));
        assert_eq!(key(2), Some(format!("{file}@512#")));
        assert_eq!(key(4), Some(format!("{file}@0#3")));
        assert_eq!((key(6), key(10)), (None, None));
    }

    /// What the devices with these numbers have in common.
    fn overlap(sys: &Path, one: u32, two: u32) -> bool {
        let of = |minor| grounds(rustix::fs::makedev(8, minor), None, sys);
        let two = of(two);
        of(one).iter().any(|one| two.iter().any(|two| one.behind.overlaps(&two.behind)))
    }

    #[test]
    #[cfg_attr(miri, ignore = "what a path leads to is asked of the kernel")]
    fn devices_are_followed_to_the_end() {
        let sys = kernel();
        let of = |minor| grounds(rustix::fs::makedev(8, minor), None, sys.path());
        // sda2 is itself, and its place on the disk.
        let part = of(1);
        let disk =
            part.iter().find(|ground| ground.behind.device == rustix::fs::makedev(8, 0)).unwrap();
        assert_eq!((disk.behind.start, disk.behind.length, disk.is_whole), (51_200, 25_600, false));
        assert!(part[0].is_whole && part[0].behind.device == rustix::fs::makedev(8, 1));
        let is_file = |ground: &&Ground| ground.behind.inode != 0;
        let file = of(4).into_iter().find(|ground| is_file(&ground)).unwrap();
        assert_eq!((file.behind.start, file.behind.length, file.is_whole), (512, 1024, false));
        for (one, two) in [(0, 1), (1, 1), (8, 8), (0, 8), (1, 8), (2, 3), (2, 4), (3, 4), (6, 6)] {
            assert!(overlap(sys.path(), one, two) && overlap(sys.path(), two, one), "{one} {two}");
        }
        // Two volumes on one partition, and what has nothing in common.
        for (one, two) in [(8, 9), (0, 3), (6, 0), (2, 8)] {
            assert!(!overlap(sys.path(), one, two), "{one} {two}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "what a path leads to is asked of the kernel")]
    fn loop_devices_lead_to_their_file() {
        let sys = kernel();
        let file = sys.path().join("disk.img").canonicalize().unwrap();
        let whole = |minor| {
            let backing = backing(rustix::fs::makedev(8, minor), None, sys.path())?;
            assert_eq!(backing.file, file);
            Some(backing.is_whole)
        };
        assert_eq!([2, 3, 4].map(whole), [Some(false), Some(true), Some(false)]);
        assert_eq!([0, 1, 5, 6, 10].map(whole), [None; 5], "a disk, a lost file, nothing");
        assert_eq!(whole(7), None, "another file by that name");
    }
}
