//! Whether a SIGKILL came from another process. Nobody tells who sent it, but the kernel sends it
//! by itself only to who uses too much memory, which it counts, or more of the CPU than a limit
//! allows.

use rustix::process::{Resource, getrlimit};

/// How often the kernel has killed for want of memory, anywhere on this machine: cgroups included.
#[derive(Debug)]
pub struct Outsiders {
    seen: Option<u64>,
}

impl Outsiders {
    /// From now on.
    pub fn new() -> Self {
        Self { seen: kills() }
    }

    /// A process that was started after the last call was killed. `Some(true)`: by another process;
    /// `None`: nobody can tell.
    pub fn is_one(&mut self) -> Option<bool> {
        let now = kills();
        let before = std::mem::replace(&mut self.seen, now);
        let limited = getrlimit(Resource::Cpu).maximum.is_some();
        is_one(before, now, limited)
    }
}

fn is_one(before: Option<u64>, now: Option<u64>, limited: bool) -> Option<bool> {
    (!limited && before.is_some() && before == now).then_some(true)
}

fn kills() -> Option<u64> {
    count(&crate::procfs::read_text("/proc/vmstat").ok()?)
}

fn count(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_another_process_where_the_kernel_has_killed_nobody() {
        assert_eq!(count("nr_free_pages 7\noom_kill 12\noom_killer 3\n"), Some(12));
        assert_eq!(count("nr_free_pages 7\n"), None);
        assert_eq!(is_one(Some(3), Some(3), false), Some(true));
        for (before, now, limited) in
            [(Some(3), Some(4), false), (Some(3), Some(3), true), (None, None, false)]
        {
            assert_eq!(is_one(before, now, limited), None);
        }
    }
}
