//! The journal: how a sealed epoch reaches the image so that no power failure leaves it in between.
//!
//! A commit
//! 1. writes all that is to be written to the journal, and makes it durable;
//! 2. writes it to the image, and makes that durable.
//!
//! Then, and only then, the caller notes that the epoch is committed, and the journal is marked
//! empty. If the power goes before the journal is durable, the image was not touched; if it goes
//! later, the journal is whole, and [`recover()`] writes all of it again. What tells is the
//! journal's check value.
//!
//! The mark need not be durable: until the next commit has made its journal durable, which replaces
//! this one, the image is where this one would bring it. It is for those who come after belay.

mod behind;
mod commit;
mod device;
mod error;
mod file;
mod filesystem;
mod format;
mod grounds;
mod hold;
mod homes;
mod kept;
mod mark;
mod progress;
mod recover;
mod spot;
mod storage;

pub use behind::Behind;
pub use commit::commit;
pub use error::Error;
pub use file::{HostFile, beside};
pub use hold::Hold;
pub use homes::Homes;
pub use kept::{Kept, remove};
pub use mark::mark_empty;
pub use progress::{Progress, Stage};
pub use recover::{Contents, Found, How, Recovered, inspect, plan, recover};
pub use spot::Spot;
pub use storage::{Metadata, Source, Storage};
