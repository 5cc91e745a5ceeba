//! Words of the command line.

use clap::ValueEnum;

/// A choice as the command line has it.
pub fn of_choice(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
