//! What becomes of the intent log when the memory of the cache is gone: it is read as a whole, and
//! what it comes to is brought to the layer below as after any crash ([`crate::bring`]).

use crate::appended::{Part, parts};
use crate::bring::{Pages, checkpoint};
use crate::changes::{Changed, Changes, MOST_PUNCHED, Source, punched_by};
use crate::dropped::Dropped;
use crate::error::Error;
use crate::log::MOST;
use belay_object::{Lower, ObjectId, Operation, PAGE, Transaction, Undecodable};

/// Bytes of the intent log that [`replay`] has to do again.
///
/// # Errors
/// [`Error::Damaged`]; those of the layer below.
pub fn waiting<B: Lower>(below: &mut B) -> Result<u64, Error<B::Error>> {
    let mut bytes = 0;
    in_order(below, |part| {
        bytes += part.bytes.len() as u64;
        Ok(())
    })?;
    Ok(bytes)
}

/// Does again what the intent log has and the last checkpoint has not, and takes a checkpoint of
/// it; gives the number of the transaction that comes next. To be done when a volume is opened and
/// the memory of its cache is gone. That can be cut off and done again, be it that the layer below
/// has a part of it already. What comes to an object that is damaged for good is dropped.
///
/// # Errors
/// [`Error::Damaged`], with nothing done; those of the layer below.
pub fn replay<B: Lower>(below: &mut B) -> Result<u64, Error<B::Error>> {
    let upto = below.upto().map_err(Error::Lower)?;
    let logged = Logged::read(below)?;
    let changes = logged.changes().map_err(|why| Error::Damaged(why.why()))?;
    if logged.next > upto {
        checkpoint(below, &changes, &logged, logged.next, &mut Dropped::default())?;
    }
    Ok(logged.next)
}

/// Calls `each` with what the intent log has and the last checkpoint has not, in its order; gives
/// the number of the transaction that comes next.
fn in_order<B: Lower>(
    below: &mut B,
    mut each: impl FnMut(Part<'_>) -> Result<(), Undecodable>,
) -> Result<u64, Error<B::Error>> {
    let upto = below.upto().map_err(Error::Lower)?;
    let mut next = upto;
    for intent in below.intents().map_err(Error::Lower)? {
        for part in parts(&intent) {
            let part = part.map_err(|why| Error::Damaged(why.why()))?;
            // A transaction can be in the log twice, if who appended it died before that was noted.
            if part.is_done(upto, next) {
                continue;
            }
            if part.number >= MOST {
                return Err(Error::Damaged("an intent has a number that there is not"));
            }
            // Data come behind the transactions that they include.
            let is_next = if part.is_data { part.number < next } else { part.number == next };
            if !is_next {
                return Err(Error::Damaged("transactions are missing in the intent log"));
            }
            next = next.max(part.number + 1);
            each(part).map_err(|why| Error::Damaged(why.why()))?;
        }
    }
    Ok(next)
}

/// What the intent log has and the last checkpoint has not. All of it is in memory at once: that is
/// no more than an area of the log has room for, which is half of 4,096 blocks at most.
#[derive(Debug)]
struct Logged {
    /// Each with its number, in their order.
    parts: Vec<(u64, Transaction)>,
    /// The number of the transaction that comes next.
    next: u64,
}

impl Logged {
    fn read<B: Lower>(below: &mut B) -> Result<Self, Error<B::Error>> {
        let mut parts = Vec::new();
        let next = in_order(below, |part| {
            parts.push((part.number, Transaction::decode(part.bytes.to_vec())?));
            Ok(())
        })?;
        Ok(Self { parts, next })
    }

    /// What it comes to. Whoever wrote it is not trusted: what needs more memory than its own bytes
    /// is limited, as in the cache's log.
    fn changes(&self) -> Result<Changes<Content<'_>>, Undecodable> {
        let (mut changes, mut punched) = (Changes::default(), 0u64);
        for (number, transaction) in &self.parts {
            punched = punched.saturating_add(punched_by(transaction));
            // No more was published between two checkpoints.
            if punched > MOST_PUNCHED {
                return Err(Undecodable::new("more pages are punched than there can be at once"));
            }
            for operation in transaction.operations() {
                let operation = operation?;
                makes_sense(&operation, changes.of(operation.object()))?;
                changes.apply(*number, &operation)?;
            }
        }
        Ok(changes)
    }
}

/// Whether an operation can be done to an object to which the log has done that before.
fn makes_sense(
    operation: &Operation<'_>,
    before: Option<&Changed<Content<'_>>>,
) -> Result<(), Undecodable> {
    let Some(before) = before else { return Ok(()) };
    let is_gone = before.is_there() == Some(false);
    match operation {
        // What was changed was there.
        Operation::Create { .. } if !is_gone => {
            Err(Undecodable::new("an object is made that there is"))
        }
        Operation::Create { .. } => Ok(()),
        _ if is_gone => Err(Undecodable::new("an object is changed that there is not")),
        _ => Ok(()),
    }
}

/// A page that is in the intent log.
#[derive(Clone, Copy, Debug)]
struct Content<'d> {
    bytes: &'d [u8; PAGE],
    /// So many of them count; behind them are zeros.
    kept: usize,
}

impl<'d> Source<'d> for Content<'d> {
    fn written(operation: &Operation<'d>) -> Result<impl Iterator<Item = Self>, Undecodable> {
        match *operation {
            Operation::Write { data, .. } => {
                let (pages, _) = data.as_chunks::<PAGE>();
                Ok(pages.iter().map(|bytes| Self { bytes, kept: PAGE }))
            }
            _ => Err(Undecodable::new("an intent has pages of the cache's memory")),
        }
    }

    /// The page as it became then is in the log only if its data were synced.
    fn cut(&mut self, bytes: usize) {
        self.kept = self.kept.min(bytes);
    }
}

impl Pages<Content<'_>> for Logged {
    fn read(&self, place: Content<'_>, _: ObjectId, _: u64, out: &mut [u8; PAGE]) -> bool {
        *out = *place.bytes;
        out.get_mut(place.kept..).unwrap_or_default().fill(0);
        true
    }
}
