//! Which generation of a mount a process descends from.
//!
//! Parents do not tell: who starts another and ends leaves an orphan of belay's, and so does the
//! successor. What each process inherits, whatever it becomes, are its limits, and one of them has
//! no meaning any more: that of file locks. Each generation gets another one, larger than the last,
//! and only who has CAP_SYS_RESOURCE can raise a limit.

use crate::procfs;
use std::io;

/// How the generations of one mount are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    base: u64,
}

impl Lineage {
    /// That of the mount that began at `started_ns`: marks of a daemon that itself runs below
    /// another belay are others.
    pub fn new(started_ns: u64) -> Self {
        let number = (started_ns ^ (started_ns >> 30)) & ((1 << 30) - 1);
        Self { base: 1 << 62 | number << 32 }
    }

    /// The mark of a generation.
    pub fn mark(self, generation: u32) -> u64 {
        self.base | u64::from(generation)
    }

    /// The generation that process `pid` descends from, dead ones that nobody has waited for
    /// included; `None` if it has no mark of this mount.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn generation(self, pid: u32) -> io::Result<Option<u32>> {
        let limits = procfs::read_text(format!("/proc/{pid}/limits"))?;
        let Some(mark) = marked(&limits) else { return Ok(None) };
        let generation = (mark & u64::from(u32::MAX)) as u32;
        Ok((mark == self.mark(generation)).then_some(generation))
    }
}

fn marked(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_sys::{ChildSetup, prepare_child};
    use std::process::Command;

    #[test]
    fn a_generation_is_known_by_its_mark() {
        let (one, other) = (Lineage::new(1), Lineage::new(2));
        assert_eq!(one.generation(std::process::id()).ok(), Some(None));
        let mut command = Command::new("sleep");
        command.arg("60");
        prepare_child(
            &mut command,
            ChildSetup { mark: Some(one.mark(7)), ..ChildSetup::default() },
        );
        let mut child = command.spawn().expect("sleep");
        let found = (one.generation(child.id()).ok(), other.generation(child.id()).ok());
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(found, (Some(Some(7)), Some(None)));
        assert!(one.generation(child.id()).is_err(), "it is gone");
        assert_eq!(
            marked("Max file locks            unlimited            unlimited            locks"),
            None
        );
    }
}
