//! Extended attributes of a file, as they are kept: one after the other in the bytes of an object
//! of their own.
//!
//! Each has a head of 8 bytes: the length of the name (2 bytes), 2 bytes of zeros, and the length
//! of the value (4 bytes). Name and value follow.

use rustix::io::Errno;

/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest value in bytes.
pub const VALUE_MAX: usize = 65_536;
/// Bytes that the names of a file can have, each with a zero behind it: what listxattr(2) can give.
pub const LIST_MAX: usize = 65_536;
/// Bytes that all of a file can take.
pub const ALL_MAX: usize = 1 << 20;

const HEAD: usize = 8;
/// What a name can begin with.
const SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Whether a name can be one.
///
/// # Errors
/// `ERANGE` for a long one, `EOPNOTSUPP` if it begins otherwise than those that are kept, `EINVAL`
/// if it ends there.
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE);
    }
    let rest = SPACES.iter().find_map(|space| name.strip_prefix(*space));
    match rest {
        None => Err(Errno::OPNOTSUPP),
        Some(rest) if rest.is_empty() || rest.contains(&0) => Err(Errno::INVAL),
        Some(_) => Ok(()),
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Its name.
    pub name: Vec<u8>,
    /// What it says.
    pub value: Vec<u8>,
}

impl Extended {
    /// Whether only the administrator sees it.
    pub fn is_trusted(&self) -> bool {
        self.name.starts_with(b"trusted.")
    }
}

/// How they are kept.
///
/// # Errors
/// `ENOSPC` if they are too many.
pub fn encode(all: &[Extended]) -> Result<Vec<u8>, Errno> {
    let names: usize = all.iter().map(|one| one.name.len() + 1).sum();
    let bytes: usize = all.iter().map(|one| HEAD + one.name.len() + one.value.len()).sum();
    if names > LIST_MAX || bytes > ALL_MAX {
        return Err(Errno::NOSPC);
    }
    let mut out = Vec::with_capacity(bytes);
    for one in all {
        out.extend_from_slice(&(one.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(one.value.len() as u32).to_le_bytes());
        out.extend_from_slice(&one.name);
        out.extend_from_slice(&one.value);
    }
    Ok(out)
}

/// What was kept; `None` if it makes no sense.
pub fn decode(bytes: &[u8]) -> Option<Vec<Extended>> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<HEAD>()?;
        let name = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (name, behind) = behind.split_at_checked(name)?;
        let (value, behind) = behind.split_at_checked(value)?;
        if check_name(name).is_err() || value.len() > VALUE_MAX {
            return None;
        }
        all.push(Extended { name: name.to_vec(), value: value.to_vec() });
        rest = behind;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &[u8]) -> Extended {
        Extended { name: name.into(), value: value.to_vec() }
    }

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        let all = [one("user.a", b""), one("security.b", &[7; 300]), one("trusted.c", b"x")];
        let bytes = encode(&all).unwrap();
        assert_eq!(decode(&bytes).unwrap(), all);
        let first = HEAD + "user.a".len();
        let second = first + HEAD + "security.b".len() + 300;
        for end in 1..bytes.len() {
            let is_whole = end == first || end == second;
            assert_eq!(decode(&bytes[..end]).is_some(), is_whole, "{end}");
        }
        // Whatever is read: none of it panics, and names are names.
        for at in 0..HEAD + 6 {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let read = decode(&bytes).unwrap_or_default();
                assert!(read.iter().all(|one| check_name(&one.name).is_ok()));
            }
        }
    }

    #[test]
    fn there_can_be_so_many() {
        let large: Vec<_> = (0..16).map(|n| one(&format!("user.{n}"), &[0; VALUE_MAX])).collect();
        assert_eq!(encode(&large), Err(Errno::NOSPC));
        assert!(encode(&large[1..]).is_ok());
        let many: Vec<_> = (0..300).map(|n| one(&format!("user.{n:0250}"), b"")).collect();
        assert_eq!(encode(&many), Err(Errno::NOSPC));
        assert!(encode(&many[50..]).is_ok());
    }

    #[test]
    fn names_begin_with_where_they_belong() {
        let long = format!("user.{:0251}", 0);
        for (name, wanted) in [
            ("user.a", Ok(())),
            ("trusted.overlay", Ok(())),
            ("security.capability", Ok(())),
            (&long[1..], Err(Errno::OPNOTSUPP)),
            (long.as_str(), Err(Errno::RANGE)),
            ("", Err(Errno::RANGE)),
            ("user.", Err(Errno::INVAL)),
            ("user", Err(Errno::OPNOTSUPP)),
            ("system.posix_acl_access", Err(Errno::OPNOTSUPP)),
        ] {
            assert_eq!(check_name(name.as_bytes()), wanted, "{name}");
        }
    }
}
