//! Pieces of tables.

use belay_faults::Effect;

/// Consecutive equal names, counted: `mkdir, 3 pwrite64`.
#[must_use]
pub fn counted(calls: &[&str]) -> String {
    let groups = calls.chunk_by(|a, b| a == b).map(|group| match group {
        [one] => (*one).to_owned(),
        [first, ..] => format!("{} {first}", group.len()),
        [] => String::new(),
    });
    groups.collect::<Vec<_>>().join(", ")
}

/// A request and the calls that it makes: `MKDIR: mkdir, chown`.
#[must_use]
pub fn request(opcode: &str, effects: &[Effect]) -> String {
    let calls: Vec<_> = effects.iter().map(|effect| effect.call.as_ref()).collect();
    let text = format!("{opcode}: {}", counted(&calls));
    text.trim_end_matches([':', ' ']).to_owned()
}

/// An experiment's name: what it is made of, and the call at its point.
#[must_use]
pub fn title(parts: &[&str], call: Option<&str>, signal: &str) -> String {
    let call = call.map(|call| format!(" ({call})")).unwrap_or_default();
    format!("{}{call} {signal}", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_and_requests_shown() {
        assert_eq!(counted(&["a", "b", "b", "a"]), "a, 2 b, a");
        assert_eq!(counted(&[]), "");
        assert_eq!(request("OPEN", &[]), "OPEN");
        let effect = |call: &'static str| Effect { call: call.into(), result: None };
        assert_eq!(request("MKDIR", &[effect("mkdir"), effect("chown")]), "MKDIR: mkdir, chown");
        assert_eq!(title(&["a", "b"], Some("chown"), "KILL"), "a b (chown) KILL");
        assert_eq!(title(&["a"], None, "KILL"), "a KILL");
    }
}
