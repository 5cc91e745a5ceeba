//! What is kept of an undisturbed run and of a crash. Whoever makes a study adds of what: these are
//! parts of its JSON.

use std::borrow::Cow;

use belay_faults::{Effect, FaultSignal, Point, Report};
use serde::{Deserialize, Serialize};

use crate::outcome::Judged;
use crate::table;

/// An operation that nothing disturbed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DryRun {
    /// The request, if the daemon is asked at all.
    pub request: Option<String>,
    /// The calls that it makes.
    pub effects: Vec<Effect>,
    /// What was not as with an undisturbed bare daemon.
    pub differences: String,
}

impl DryRun {
    pub(crate) fn new(report: Report, differences: String) -> Self {
        let (request, effects) =
            report.request.map(|request| (request.opcode, request.effects)).unzip();
        Self { request, effects: effects.unwrap_or_default(), differences }
    }

    /// Whether anything was not as with a bare daemon.
    #[must_use]
    pub fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    /// The request and its calls, for a table.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        self.request.as_ref().map(|opcode| table::request(opcode, &self.effects))
    }

    /// Where in the request the daemon can die, with the call before or after which that is.
    /// Nowhere, if it is not asked.
    #[must_use]
    pub fn points(&self) -> Vec<(Point, Option<Cow<'static, str>>)> {
        if self.request.is_none() {
            return Vec::new();
        }
        let call = |point| match point {
            Point::BeforeEffect(k) | Point::AfterEffect(k) => {
                let index = usize::try_from(k).ok()?.checked_sub(1)?;
                self.effects.get(index).map(|effect| effect.call.clone())
            }
            _ => None,
        };
        let count = u32::try_from(self.effects.len()).unwrap_or(u32::MAX);
        Point::all(count).into_iter().map(|point| (point, call(point))).collect()
    }
}

/// What others have said of a crash; nothing where nobody was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How the process was seen to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// What who holds the daemon has said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noticed: Option<String>,
    /// Whether the file system's own checker was content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<bool>,
}

/// A crash, and what it led to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crash {
    /// Where in the request the daemon died.
    pub point: String,
    /// The call before or after which it died.
    pub call: Option<Cow<'static, str>>,
    /// Of what it died.
    pub signal: FaultSignal,
    /// Whether it came to that point; if not, this says nothing.
    pub reached: bool,
    /// What was found.
    #[serde(flatten)]
    pub judged: Judged,
    /// What others have said.
    #[serde(flatten)]
    pub told: Told,
    /// How long it took.
    pub seconds: f64,
}

impl Crash {
    /// Whether the daemon died at that point, and somebody could tell.
    #[must_use]
    pub fn went_wrong(&self) -> bool {
        self.reached && !self.judged.is_all_right()
    }
}

#[cfg(test)]
mod tests {
    use belay_faults::Request;

    use super::*;

    #[test]
    fn points_have_their_calls() {
        let effect = |call: &'static str| Effect { call: call.into(), result: Some(0) };
        let request = Request {
            opcode: "MKDIR".to_owned(),
            unique: 1,
            node: 1,
            effects: vec![effect("mkdir"), effect("chown")],
            replied: true,
        };
        let report = Report { request: Some(request), ..Report::default() };
        let points = DryRun::new(report, String::new()).points();
        let calls: Vec<_> =
            points.iter().map(|(_, call)| call.as_deref().unwrap_or_default()).collect();
        assert_eq!(calls, ["", "mkdir", "mkdir", "chown", "chown", "", ""]);
        assert_eq!(points[4].0, Point::AfterEffect(2));
        assert!(DryRun::new(Report::default(), String::new()).points().is_empty());
    }
}
