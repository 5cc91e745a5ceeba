//! What companions say of themselves, each in a file, as JSON. It is for people: nothing is decided
//! by it.

use crate::clock;
use crate::degraded::{Kind, Reason, one_line};
use crate::process::Exit;
use crate::text::OsText;
use serde_json::Value;
use std::fs::File;
use std::io::Read;

/// More than what one says of itself can be.
const LONGEST: u64 = 64 << 10;

/// Where each says it, with its role.
#[derive(Debug, Default)]
pub(super) struct Said(pub Vec<(String, Option<OsText>)>);

impl Said {
    /// What one says; nothing if that makes no sense.
    pub fn by(&self, role: &str) -> Option<Value> {
        let (_, path) = self.0.iter().find(|(whose, _)| whose == role)?;
        let path = path.as_ref()?.0.as_os_str();
        let mut text = Vec::new();
        File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Why one has ended, as it says itself, or else where its messages are: in `log`, if they go
    /// to a file.
    pub fn last_words(&self, role: &str, log: Option<&str>) -> String {
        let report = self.by(role);
        let ended = report.as_ref().and_then(|report| report.get("ended")?.as_str());
        match (ended.map(one_line), log) {
            (Some(ended), Some(log)) => format!("{ended}; its messages are in {log}"),
            (Some(ended), None) => ended,
            (None, Some(log)) => format!("see its messages in {log}"),
            (None, None) => {
                "see its messages, which come with those of `belay volume mount`".to_owned()
            }
        }
    }

    /// What is to be said of the end of one that was asked to end.
    pub fn failed(&self, role: &str, exit: Exit, log: Option<&str>) -> Option<String> {
        let words = || self.last_words(role, log);
        match exit {
            Exit::Code(0) | Exit::Unknown => None,
            exit => Some(format!("the {role} process {}: {}", exit.told(), words())),
        }
    }
}

/// What is wrong now, by what one says.
pub(super) fn wrong(report: &Value) -> impl Iterator<Item = Reason> {
    let of = |name, kind, tell: fn(String) -> String| {
        let wrong = report.get(name)?;
        let why = one_line(wrong.get("why")?.as_str()?);
        let since = wrong.get("since_us").and_then(Value::as_u64).unwrap_or(0) / 1000;
        Some(Reason { kind, what: tell(why), since: clock::rfc3339(since) })
    };
    let failing = of("failing", Kind::Commit, |why| {
        format!(
            "no checkpoint can be taken: {why}. What was written since the last one is in memory alone"
        )
    });
    failing.into_iter().chain(of("missing", Kind::Image, |why| why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_makes_no_sense_is_left_out() {
        for report in
            [json!(null), json!([1]), json!({"failing": null}), json!({"failing": {"why": 1}})]
        {
            assert_eq!(wrong(&report).count(), 0);
        }
        let why = |why| json!({"why": why, "since_us": 1_000_000});
        let both = json!({"failing": why("a\nb"), "missing": why("c")});
        let told: Vec<_> = wrong(&both).collect();
        assert!(told[0].what.contains(": a b. ") && told[0].since == "1970-01-01T00:00:01.000Z");
        assert_eq!((told[1].kind, told[1].what.as_str(), told.len()), (Kind::Image, "c", 2));
    }

    #[test]
    fn one_that_says_nothing_is_known_by_its_messages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        let said = Said(vec![("cache".into(), Some(path.clone().into())), ("store".into(), None)]);
        for role in ["cache", "store", "other"] {
            assert_eq!(said.last_words(role, Some("/log")), "see its messages in /log");
        }
        std::fs::write(&path, r#"{"ended": "no room"}"#).unwrap();
        assert_eq!(said.last_words("cache", None), "no room");
        assert_eq!(said.failed("cache", Exit::Code(0), None), None);
        assert!(said.failed("cache", Exit::Code(1), Some("/log")).unwrap().ends_with("in /log"));
    }
}
