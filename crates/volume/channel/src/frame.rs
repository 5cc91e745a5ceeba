//! How a message lies in a stream: its length in four bytes, and what serde makes of it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The longest message. Who sends a longer one is not heard.
pub const MOST: usize = 8 << 20;
const HEAD: usize = 4;

fn wrong(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Sends a message.
///
/// # Errors
/// Those of the stream; `InvalidData` if it is too long.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut bytes = postcard::to_extend(message, vec![0; HEAD]).map_err(io::Error::other)?;
    let length = bytes.len() - HEAD;
    if length > MOST {
        return Err(wrong("a message is too long"));
    }
    if let Some(head) = bytes.first_chunk_mut() {
        *head = (length as u32).to_le_bytes();
    }
    stream.write_all(&bytes)
}

/// Receives a message; waits for it.
///
/// # Errors
/// Those of the stream; `InvalidData` if it is none.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let length = length(head)?;
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    decode(&bytes)
}

fn length(head: [u8; HEAD]) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    if length <= MOST { Ok(length) } else { Err(wrong("a message is too long")) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(wrong("there is more than a message")),
        Err(_) => Err(wrong("it is no message")),
    }
}

/// What has come of a message so far, of somebody who may never send the rest.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Reads what is there, without waiting if the stream does not; gives the message if that is
    /// its end.
    ///
    /// # Errors
    /// Those of the stream, but for `WouldBlock`; `UnexpectedEof` at its end; `InvalidData` if it
    /// is no message.
    pub fn take<T: DeserializeOwned>(&mut self, stream: &mut impl Read) -> io::Result<Option<T>> {
        loop {
            let known = self.bytes.first_chunk::<HEAD>().copied();
            let whole = HEAD + known.map_or(Ok(0), length)?;
            if known.is_some() && self.bytes.len() == whole {
                let message = decode(self.bytes.get(HEAD..).unwrap_or_default());
                self.bytes.clear();
                return message.map(Some);
            }
            let mut room = vec![0; (whole - self.bytes.len()).min(1 << 16)];
            match stream.read(&mut room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.bytes.extend_from_slice(room.get(..read).unwrap_or_default()),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::StoreAsk;

    /// Gives so many bytes at once, and then says that there is nothing yet.
    struct Slow<'a>(&'a [u8], usize, bool);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let most = self.1.min(out.len());
            self.0.read(&mut out[..most])
        }
    }

    #[test]
    fn a_message_arrives_however_it_is_cut_up() {
        let ask = StoreAsk::AppendIntent(vec![3; 5000]);
        let mut bytes = Vec::new();
        send(&mut bytes, &ask).unwrap();
        send(&mut bytes, &StoreAsk::Upto).unwrap();
        let mut whole = bytes.as_slice();
        assert_eq!(receive::<StoreAsk>(&mut whole).unwrap(), ask);
        assert_eq!(receive::<StoreAsk>(&mut whole).unwrap(), StoreAsk::Upto);
        for step in [1, 2, 3, 7, 4096] {
            let mut stream = Slow(&bytes, step, false);
            let (mut inbox, mut found) = (Inbox::default(), Vec::new());
            while found.len() < 2 {
                found.extend(inbox.take::<StoreAsk>(&mut stream).unwrap());
            }
            assert_eq!(found, [ask.clone(), StoreAsk::Upto]);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut once = bytes;
            let received = receive::<StoreAsk>(&mut once);
            let (mut inbox, mut stream) = (Inbox::default(), Slow(bytes, 9, true));
            let taken = loop {
                match inbox.take::<StoreAsk>(&mut stream) {
                    Ok(None) => {}
                    done => break done,
                }
            };
            assert!(received.is_err() && taken.is_err(), "{bytes:?}");
        };
        refused(&[]);
        refused(&[1, 0, 0]);
        refused(&[0xff; 64]);
        refused(&[1, 0, 0, 0, 99]);
        refused(&[2, 0, 0, 0, 1, 1]);
        refused(&(MOST as u32 + 1).to_le_bytes());
        assert!(send(&mut Vec::new(), &StoreAsk::Apply(vec![0; MOST])).is_err());
    }
}
