//! The command that makes one experiment again.

use super::options::{Options, Tried};
use belay_faults::{FaultSignal, Point};
use std::path::Path;

/// Made from the options of the whole study.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a>(pub &'a Options);

impl Replay<'_> {
    /// For a shell.
    pub fn of(self, policy: Tried, operation: &str, point: Point, signal: FaultSignal) -> String {
        let options = self.0;
        let only = format!("{operation}/{point}/{signal}");
        let mut words: Vec<String> =
            ["belay", "qualify", "--policies", policy.name(), "--only", &only]
                .map(String::from)
                .into();
        let path = |name: &str, path: &Option<std::path::PathBuf>| {
            let value = path.as_deref().map(Path::display).map(|path| quoted(&path.to_string()));
            value.map(|value| format!("{name} {value}"))
        };
        words.extend(options.flush.map(|flush| format!("--flush {}", flush.name())));
        words.extend(path("--dir", &options.dir));
        words.extend(path("--mountpoint", &options.mountpoint));
        words.extend(path("--behind", &options.behind));
        words.extend(path("--image", &options.image));
        words.extend(options.no_image.then(|| "--no-image".to_owned()));
        words.extend(options.use_device.then(|| "--use-device".to_owned()));
        words.extend(options.check.as_ref().map(|check| format!("--check {}", quoted(check))));
        words.extend(options.as_user.map(|user| format!("--as-user {user}")));
        words.push("--".to_owned());
        words.extend(options.command.iter().map(|word| quoted(&word.to_string_lossy())));
        words.join(" ")
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn replays_are_commands() {
        let words = [
            "belay",
            "qualify",
            "--ops",
            "mkdir",
            "--check",
            "ntfsfix -n {}",
            "--as-user",
            "7",
            "--",
        ];
        let command = ["d", "-o", "a,b=c", "it's", "/m"];
        let parsed = Cli::parse_from(words.iter().chain(&command)).command;
        let Command::Qualify(options) = parsed else { panic!() };
        let text =
            Replay(&options).of(Tried::Journal, "mkdir", Point::AfterEffect(1), FaultSignal::Kill);
        assert_eq!(
            text,
            "belay qualify --policies journal --only mkdir/after-1/KILL --check 'ntfsfix -n {}' --as-user 7 -- d -o a,b=c \
             'it'\\''s' /m"
        );
    }
}
