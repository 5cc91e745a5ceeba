//! Belay's own profiles beside the certificates: a profile names the policy that its daemon is
//! certified for, or says why not.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::certify::{Certificate, Certificates};

/// What the reason begins with, as a line of a comment in the profile; it ends with the comment.
const MARK: &str = "# Not as certified: ";

/// What a profile says, as far as it is compared.
#[derive(Deserialize)]
struct Profile {
    programs: Vec<String>,
    policy: String,
}

/// A profile that does not name what is certified.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// Its name.
    name: String,
    /// What it names.
    policy: String,
    /// Why.
    why: String,
}

/// The profiles of `folder` that do not name what is certified, each with its reason.
///
/// # Errors
/// If one cannot be read, gives no reason, or gives one that it does not need.
pub fn unlike(folder: &Path, certificates: &Certificates) -> Result<Vec<Unlike>> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {shown}"))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(|| format!("reading {shown}"))?.path());
    }
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.extend(compare(&name, &text, certificates)?);
    }
    Ok(found)
}

fn compare(name: &str, text: &str, certificates: &Certificates) -> Result<Option<Unlike>> {
    let profile: Profile = toml::from_str(text).with_context(|| format!("the profile {name}"))?;
    // A verdict begins with the name of the program.
    let is_of = |certificate: &&Certificate| {
        let program = certificate.verdict.split(' ').next();
        program.is_some_and(|program| profile.programs.iter().any(|one| one == program))
    };
    let mut its = certificates.values().filter(is_of).peekable();
    let certified =
        its.peek().is_some() && its.all(|one| one.policy.as_ref() == Some(&profile.policy));
    match reason(text) {
        None => {
            ensure!(certified, "the profile {name} is not as certified, and has no line '{MARK}'");
            Ok(None)
        }
        Some(why) => {
            ensure!(!certified, "the profile {name} is as certified, and says that it is not");
            Ok(Some(Unlike { name: name.to_owned(), policy: profile.policy, why }))
        }
    }
}

/// The reason that a profile gives, on one line.
fn reason(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(MARK));
    let first = lines.next()?.strip_prefix(MARK)?;
    let more = lines.map_while(|line| line.strip_prefix("# "));
    Some(std::iter::once(first).chain(more).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::results;

    /// Every profile of the repository.
    #[test]
    fn profiles_are_as_certified_or_say_why_not() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
        let at = |name: &str| Path::new(root).join(name);
        let certificates: Certificates =
            results::read(&at("docs/daemons/certificates.json")).unwrap();
        assert!(!certificates.is_empty());
        let unlike = unlike(&at("profiles"), &certificates).unwrap();
        assert!(unlike.iter().all(|one| one.why.ends_with('.')), "{unlike:#?}");
    }

    #[test]
    fn reasons_are_asked_for_where_they_are_needed() {
        let certificate = |verdict: &str, policy: Option<&str>| Certificate {
            policy: policy.map(str::to_owned),
            verdict: verdict.to_owned(),
            experiments: 1,
            date: String::new(),
        };
        let certificates = Certificates::from([
            ("a-fixture".to_owned(), certificate("one is certified", Some("journal"))),
            ("another".to_owned(), certificate("two is certified", Some("reconcile"))),
            ("a third".to_owned(), certificate("three is not certified", None)),
        ]);
        let of = |programs: &str, why: &str| {
            let text = format!("{why}programs = [{programs}]\npolicy = \"journal\"\n");
            compare("profile", &text, &certificates)
        };
        let why = "# Something.\n# Not as certified: it does\n# more.\n";
        assert_eq!(of("\"one\"", "# Something.\n").unwrap(), None);
        assert!(of("\"one\"", why).is_err());
        for programs in ["\"two\"", "\"one\", \"two\"", "\"three\"", "\"four\"", "\"on\""] {
            assert!(of(programs, "").is_err(), "{programs}");
            let found = of(programs, why).unwrap().unwrap();
            assert_eq!((&*found.why, &*found.policy), ("it does more.", "journal"), "{programs}");
        }
    }
}
