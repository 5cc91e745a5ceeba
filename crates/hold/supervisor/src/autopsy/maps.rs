//! The memory map of the dead process.

/// Lines that are looked at.
const LINES: usize = 4096;

/// A stretch of memory that a file was mapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's inode number.
    pub inode: u64,
    /// The file's path, absolute.
    pub path: String,
}

impl Mapped {
    /// Whether an address lies in it.
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Parses the text of a maps file whose end may be missing. Lines that are not of files, or not
/// understood, are left out.
pub fn parse(text: &[u8]) -> Vec<Mapped> {
    // What follows the last end of line is a part of a line.
    let whole = text.iter().rposition(|byte| *byte == b'\n').and_then(|end| text.get(..end));
    let lines = whole.unwrap_or_default().split(|byte| *byte == b'\n').take(LINES);
    lines.filter_map(|line| parse_line(std::str::from_utf8(line).ok()?)).collect()
}

fn parse_line(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let _rights = words.next()?;
    let offset = words.next()?;
    let _device = words.next()?;
    let inode: u64 = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let mapped = Mapped {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        inode,
        path: path.to_owned(),
    };
    (mapped.start < mapped.end && inode != 0 && path.starts_with('/')).then_some(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_and_the_torn_end_is_left_out() {
        let text = b"\
            55d0-55f0 r-xp 00002000 08:01 1234                       /usr/bin/a daemon\n\
            7f00-7f10 rw-p 00000000 00:00 0 \n\
            7f20-7f30 rw-p 00000000 00:00 0                          [heap]\n\
            nonsense\n\
            8000-7000 r-xp 00000000 08:01 5                          /turned\n\
            9000-9100 r-xp 00000000 08:01 5                          /usr/lib/lib";
        let found = parse(text);
        let expected = Mapped {
            start: 0x55d0,
            end: 0x55f0,
            offset: 0x2000,
            inode: 1234,
            path: "/usr/bin/a daemon".into(),
        };
        assert_eq!(found, [expected]);
        assert!(parse(b"").is_empty() && parse(&[0xff; 4096]).is_empty());
    }

    #[test]
    fn the_own_map_is_understood() {
        let text = std::fs::read("/proc/self/maps").expect("maps");
        let own = std::env::current_exe().expect("exe");
        let here = parse as *const () as u64;
        let found = parse(&text).into_iter().find(|mapped| mapped.has(here)).expect("this code");
        assert_eq!(std::path::Path::new(&found.path), own);
    }
}
