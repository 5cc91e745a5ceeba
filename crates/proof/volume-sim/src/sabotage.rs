//! What is done wrong on purpose, to see that the simulation finds it. The code that ships has no
//! switches for it: it runs on disks and memory that keep back what they were told, over sockets
//! that do so too, or it is made as the papers' baselines are.

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// What a checkpoint consists of is not durable before its root is.
    LostFlush,
    /// A transaction is published before it is known that there is room for it.
    NoCredits,
    /// A transaction that was published is not in the log.
    DroppedEntry,
    /// A block that was freed is used again before the next checkpoint.
    FreedAtOnce,
    /// A metadata block is written where the last checkpoint has it.
    NoTwins,
    /// What a dead module has published is done again.
    DoneTwice,
    /// The cache is not told that the stores have died: their next life is asked for the rest of
    /// its checkpoint.
    UntoldDeath,
    /// What a dead cache has sent is done when the next one changes the stores.
    SecondWriter,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::LostFlush,
        Self::NoCredits,
        Self::DroppedEntry,
        Self::FreedAtOnce,
        Self::NoTwins,
        Self::DoneTwice,
        Self::UntoldDeath,
        Self::SecondWriter,
    ];

    /// What it is, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::LostFlush => "no flush before the root of a checkpoint",
            Self::NoCredits => "published before there is room for it",
            Self::DroppedEntry => "an entry of the log is dropped",
            Self::FreedAtOnce => "a freed block is used before the next checkpoint",
            Self::NoTwins => "a twin is not flipped: metadata are overwritten",
            Self::DoneTwice => "a request is done and answered twice",
            Self::UntoldDeath => "the cache is not told that the stores have died",
            Self::SecondWriter => "what a dead cache has sent is done beside the next one's work",
        }
    }
}
