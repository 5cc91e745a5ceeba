//! How a command line is read.

use super::{Cli, Command, NamespaceProcess};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

impl Cli {
    /// What a command line asks for. Applications may be waiting for the process of a namespace
    /// module, so all the other commands are not described before its own is looked for.
    ///
    /// # Errors
    /// If it is none.
    pub fn of(words: &[OsString]) -> Result<Self, clap::Error> {
        let module = words.get(1..).filter(|rest| rest.first().is_some_and(|word| word == MODULE));
        match module.map(NamespaceProcess::try_parse_from) {
            Some(Ok(process)) => Ok(Self { command: Command::VolumeNamespace(process) }),
            // Any other, or what is wrong with it.
            Some(Err(_)) | None => Self::try_parse_from(words).map_err(without_own),
        }
    }
}

/// What was refused, with no suggestion of a command that belay has for itself.
fn without_own(mut refused: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let Some(ContextValue::Strings(mut names)) = refused.remove(kind) else { return refused };
    let all = Cli::command();
    names.retain(|name| all.find_subcommand(name).is_none_or(|one| !one.is_hide_set()));
    if !names.is_empty() {
        refused.insert(kind, ContextValue::Strings(names));
    }
    refused
}

/// The command of a namespace module.
const MODULE: &str = "volume-namespace";

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the other commands are described or not.
    #[test]
    fn a_namespace_module_is_told_the_same_in_both_ways() {
        let told = |words: &str, parse: fn(&[OsString]) -> Result<Cli, clap::Error>| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            parse(&words).map(|cli| format!("{cli:?}")).map_err(|refused| refused.to_string())
        };
        for words in [
            "belay volume-namespace v --place /p --mount 7 /mnt",
            "belay volume-namespace --place /p --mount 7 -- -v /mnt",
            "belay volume-namespace v --place /p --mount x /mnt",
            "belay volume-namespace v",
            "belay volume-namespace --help",
            "belay status --json",
            "belay",
        ] {
            assert_eq!(told(words, Cli::of), told(words, |words| Cli::try_parse_from(words)));
        }
    }
}
