//! What a profile says.

use super::checkpoint::{FlushName, Wishes};
use anyhow::{Result, bail, ensure};
use belay_supervisor::config::{Policy, Until};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A profile, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Names of the programs that it is for, without folders.
    pub programs: Vec<String>,
    /// The policy that they need.
    policy: Named,
    /// What its inode numbers do.
    #[serde(default, skip_serializing_if = "InodeNumbers::is_stable")]
    pub inode_numbers: InodeNumbers,
    /// They store what they are given to write before they answer, though that may not be seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stores_at_once: bool,
    /// How they are made to write all that they hold, under the policy `epoch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushName>,
    /// How it came about: the command, version and date of a qualification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qualified: Option<String>,
    /// When checkpoints are made, under the policy `epoch`.
    #[serde(default, skip_serializing_if = "Wishes::is_silent")]
    pub checkpoint: Wishes,
    /// Until when it holds what it has acknowledged, under the policy `buffer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// What it may lose under its policy, and what helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loses: Option<Loses>,
    /// It has one connection, and ends when that breaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
}

/// What a profile says of the connection that the daemon works through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// The option of the daemon with which it does not end when the connection breaks.
    pub unless: String,
}

/// What a profile says of what is lost although it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loses {
    /// What, and when: a part of a sentence.
    pub what: String,
    /// The option of the daemon with which nothing is, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<String>,
    /// What to do.
    pub remedy: String,
    /// It is lost with the daemon, not with a connection, and under the policy `buffer` as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub buffered: bool,
}

/// What a daemon's inode numbers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InodeNumbers {
    /// They are the same in each life.
    #[default]
    Stable,
    /// A successor may give a file another one than its predecessor did.
    Volatile,
}

impl InodeNumbers {
    fn is_stable(&self) -> bool {
        *self == Self::Stable
    }
}

/// Policies that a profile may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Reconcile,
    Journal,
    Transaction,
    Epoch,
    Buffer,
    Records,
}

/// What a profile says of a daemon that buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Until when it holds what it has acknowledged.
    pub until: Until,
    /// What it does not store, and so does not show again once it has been made to store: a noun
    /// with its attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgets: Option<String>,
}

impl Profile {
    /// What a qualification has found for a program.
    ///
    /// # Errors
    /// If nobody can be certified for that policy.
    pub fn new(program: &str, policy: Policy, qualified: String) -> Result<Self> {
        let policy = match policy {
            Policy::Reconcile => Named::Reconcile,
            Policy::Journal => Named::Journal,
            Policy::Transaction => Named::Transaction,
            Policy::Epoch => Named::Epoch,
            Policy::Buffer => Named::Buffer,
            Policy::Records => Named::Records,
            Policy::Auto | Policy::Blind => bail!("no policy for a profile: {policy:?}"),
        };
        Ok(Self {
            programs: vec![program.to_owned()],
            policy,
            inode_numbers: InodeNumbers::Stable,
            stores_at_once: false,
            flush: None,
            qualified: Some(qualified),
            checkpoint: Wishes::default(),
            buffer: None,
            loses: None,
            connection: None,
        })
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// If the text is no profile; the message says where.
    pub fn parse(text: &str) -> Result<Self> {
        let profile: Self = toml::from_str(text)?;
        ensure!(!profile.programs.is_empty(), "it names no programs");
        Ok(profile)
    }

    /// Whether it is for a program.
    pub fn is_for(&self, program: &Path) -> bool {
        program.file_name().is_some_and(|name| self.programs.iter().any(|one| name == one.as_str()))
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        match self.policy {
            Named::Reconcile => Policy::Reconcile,
            Named::Journal => Policy::Journal,
            Named::Transaction => Policy::Transaction,
            Named::Epoch => Policy::Epoch,
            Named::Buffer => Policy::Buffer,
            Named::Records => Policy::Records,
        }
    }
}
