//! Requests that belay puts to a daemon on its own behalf: which flow asks. What an answer means,
//! that flow knows.

use crate::flows::hide::state as hide;
use crate::flows::listing::state as listing;
use crate::flows::reconcile::state as reconcile;
use crate::flows::restore::state as restore;
use crate::flows::rollforward::state::Forwarded;
use crate::flows::store::state as store;
use crate::parts::caller::Asker;
use belay_recorder::Handle;
use std::fmt;

/// What an injected request is for, and so what its reply means.
#[derive(Clone)]
pub(crate) enum Injection {
    /// Bringing something back.
    Restore(restore::Question),
    /// Hiding a file.
    Hide(hide::Question),
    /// Whether a request already happened.
    Reconcile(reconcile::Question),
    /// A listing.
    List(listing::List),
    /// What the roll-forward asks.
    Forward(Forwarded),
    /// Having a file stored.
    Store(store::Question),
    /// OPENDIR, FSYNCDIR and RELEASEDIR of the root, by which a daemon writes all that it holds.
    Flush,
}

impl Injection {
    /// In whose name it is asked.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::Restore(question) => question.asker(),
            Self::Hide(question) => question.asker(),
            Self::Reconcile(question) => question.asker(),
            Self::List(_) | Self::Store(_) => Asker::Opener,
            Self::Forward(_) | Self::Flush => Asker::Given,
        }
    }

    /// The handle for whose sake it is asked, if it names one.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Restore(question) => question.handle(),
            Self::List(list) => Some(list.handle),
            Self::Store(question) => question.handle(),
            Self::Hide(_) | Self::Reconcile(_) | Self::Forward(_) | Self::Flush => None,
        }
    }
}

/// As reports say it.
impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restore(question) => question.fmt(f),
            Self::Hide(question) => question.fmt(f),
            Self::Reconcile(question) => question.fmt(f),
            Self::List(list) => list.fmt(f),
            Self::Forward(what) => f.debug_tuple("Forward").field(what).finish(),
            Self::Store(question) => question.fmt(f),
            Self::Flush => f.write_str("Flush"),
        }
    }
}

impl From<restore::Question> for Injection {
    fn from(question: restore::Question) -> Self {
        Self::Restore(question)
    }
}

impl From<hide::Question> for Injection {
    fn from(question: hide::Question) -> Self {
        Self::Hide(question)
    }
}

impl From<reconcile::Question> for Injection {
    fn from(question: reconcile::Question) -> Self {
        Self::Reconcile(question)
    }
}

impl From<listing::List> for Injection {
    fn from(list: listing::List) -> Self {
        Self::List(list)
    }
}

impl From<Forwarded> for Injection {
    fn from(what: Forwarded) -> Self {
        Self::Forward(what)
    }
}

impl From<store::Question> for Injection {
    fn from(question: store::Question) -> Self {
        Self::Store(question)
    }
}
