//! When two outcomes count as the same.

use belay_fixtures::Kind;

use crate::generate::Scope;
use crate::ops::{ANOTHER_TIME, Outcome, Value};

/// What a held mount is compared with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Oracle {
    /// A plain directory.
    Dir,
    /// A mount of the same daemon without belay, which shares its quirks.
    Bare,
}

/// What is compared, and what is not because it may rightly differ.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Link counts: high-level daemons keep an unlinked open file under a hidden name until the
    /// kernel releases it, which it does at a time of its own.
    links: bool,
    /// The file system's type and name limit, which a plain directory has otherwise.
    fs: bool,
    /// Times that were set.
    times: bool,
    /// Modes of directories.
    directory_modes: bool,
}

impl Rules {
    /// The rules for a kind of daemon and an oracle.
    pub fn new(kind: Kind, oracle: Oracle) -> Self {
        let exact = kind.shares_hard_links();
        Self {
            links: exact,
            fs: oracle == Oracle::Bare,
            times: kind.keeps_times(),
            directory_modes: kind.keeps_directory_modes(),
        }
    }

    /// What a sequence may contain under these circumstances.
    pub fn scope(kind: Kind, oracle: Oracle) -> Scope {
        let special_modes = oracle == Oracle::Bare || (kind == Kind::Dir || kind.is_volume());
        Scope {
            links_are_one: kind.shares_hard_links(),
            xattrs: kind.entry().is_none_or(|daemon| !daemon.no_xattrs),
            special_modes: special_modes && kind.knows_special_modes(),
            finds_holes: special_modes && kind.knows_special_modes() && !kind.is_volume(),
            purges: kind.entry().is_none_or(|daemon| !daemon.loses_entries),
            write_only: true,
            beyond_ends: kind.allocates_beyond_ends(),
            work: kind.work(),
        }
    }

    /// Whether the outcome on the subject is as good as the oracle's.
    pub fn agree(&self, oracle: &Outcome, subject: &Outcome) -> bool {
        match (oracle, subject) {
            (Outcome::Ok(Value::Attr(a)), Outcome::Ok(Value::Attr(b))) => {
                a.kind == b.kind
                    && (a.mode == b.mode || a.kind == 'd' && !self.directory_modes)
                    && a.size == b.size
                    && (!self.links || a.nlink == b.nlink)
                    // Where the bare daemon changes a number itself, none is expected to last. What
                    // may change does so at different operations on the two sides.
                    && !(a.ino_stable == Some(true) && b.ino_stable == Some(false))
            }
            (Outcome::Ok(Value::Fs { .. }), Outcome::Ok(Value::Fs { .. })) if !self.fs => true,
            (Outcome::Ok(a), Outcome::Ok(b)) if !self.times && is_time(a) && is_time(b) => true,
            _ => oracle == subject,
        }
    }
}

/// What is shown after a time was set.
fn is_time(value: &Value) -> bool {
    match value {
        Value::Time(..) => true,
        Value::Text(text) => text == ANOTHER_TIME,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attr;

    fn attr(nlink: u64, ino_stable: impl Into<Option<bool>>) -> Outcome {
        Outcome::Ok(Value::Attr(Attr {
            kind: 'f',
            mode: 0o644,
            size: Some(1),
            nlink: Some(nlink),
            ino_stable: ino_stable.into(),
        }))
    }

    #[test]
    fn what_may_differ_and_what_not() {
        let exact = Rules::new(Kind::PassthroughLl, Oracle::Bare);
        let loose = Rules::new(Kind::Sshfs, Oracle::Dir);
        assert!(!exact.agree(&attr(1, true), &attr(2, true)));
        assert!(loose.agree(&attr(1, true), &attr(2, true)));
        assert!(!loose.agree(&attr(1, true), &attr(1, false)));
        assert!(loose.agree(&attr(1, false), &attr(1, false)));
        for number in [Some(true), Some(false), None] {
            assert!(loose.agree(&attr(1, None), &attr(1, number)));
            assert!(loose.agree(&attr(1, number), &attr(1, None)));
        }
        let times = [Value::Time(1, 0), Value::Time(2, 0), Value::Text(ANOTHER_TIME.to_owned())];
        let davfs2 = Rules::new("davfs2".parse().unwrap(), Oracle::Bare);
        for (a, b) in times.iter().zip(times.iter().cycle().skip(1)) {
            let (a, b) = (Outcome::Ok(a.clone()), Outcome::Ok(b.clone()));
            assert!(davfs2.agree(&a, &b) && !exact.agree(&a, &b));
            assert!(!davfs2.agree(&a, &Outcome::Err(2)));
        }
        let other = Outcome::Ok(Value::Text("text".to_owned()));
        assert!(!davfs2.agree(&Outcome::Ok(Value::Time(1, 0)), &other));
        let fs = |kind| Outcome::Ok(Value::Fs { kind, name_max: 255 });
        assert!(loose.agree(&fs(1), &fs(2)) && !exact.agree(&fs(1), &fs(2)));
        assert!(!loose.agree(&Outcome::Err(2), &Outcome::Err(5)));
    }
}
