//! The daemon's memory, as its arguments to a call name it.
//!
//! A C function's contract says of each argument what lies behind it, and for how long. Where an
//! interposed function begins, that contract is at hand: there, and only there, a pointer becomes
//! one of these types. `'c` is the time of that call. Whoever is given one of them may look at the
//! memory, and has nothing to prove.
//!
//! | type | stands for |
//! | --- | --- |
//! | [`Text`] | a NUL-terminated string |
//! | [`Input`] | memory that the call reads |
//! | [`Output`] | memory that the call fills |
//! | [`Outputs`] | the places of a vectored read |
//!
//! Each may be null where C allows it: there is nothing to be seen then, and the kernel is given
//! what the daemon gave.

use libc::{c_char, c_void, iovec};
use std::ffi::CStr;
use std::marker::PhantomData;

/// A NUL-terminated string, or a null pointer in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'c> {
    at: *const c_char,
    of: PhantomData<&'c CStr>,
}

impl<'c> Text<'c> {
    /// No string: a null pointer.
    pub(crate) const NONE: Text<'static> = Text { at: std::ptr::null(), of: PhantomData };

    /// The string at `at`.
    ///
    /// # Safety
    /// `at` is null, or a NUL-terminated string begins there that can be read, and that nobody
    /// writes to, for `'c`.
    #[inline]
    pub(crate) unsafe fn new(at: *const c_char) -> Self {
        Self { at, of: PhantomData }
    }

    /// The strings at `one` and at `other`.
    ///
    /// # Safety
    /// What [`Text::new`] asks holds for both.
    #[inline]
    pub(crate) unsafe fn both(one: *const c_char, other: *const c_char) -> (Self, Self) {
        // SAFETY: the caller's contract.
        let one = unsafe { Self::new(one) };
        // SAFETY: the same.
        (one, unsafe { Self::new(other) })
    }

    /// What C knows it by. It may be given to every function that takes such a string, or null.
    #[inline]
    pub(crate) fn pointer(self) -> *const c_char {
        self.at
    }

    /// The string; `None` for a null pointer.
    #[inline]
    pub(crate) fn string(self) -> Option<&'c CStr> {
        // SAFETY: not null, so it is a NUL-terminated string that stays as it is for `'c`, as
        // whoever made this has vouched.
        (!self.at.is_null()).then(|| unsafe { CStr::from_ptr(self.at) })
    }

    /// Its bytes without the NUL; none of a null pointer.
    #[inline]
    pub(crate) fn bytes(self) -> &'c [u8] {
        self.string().map_or(&[], CStr::to_bytes)
    }
}

impl<'c> From<&'c CStr> for Text<'c> {
    fn from(string: &'c CStr) -> Self {
        Self { at: string.as_ptr(), of: PhantomData }
    }
}

/// Memory that a call reads. A null pointer has no bytes, whatever its length.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Input<'c> {
    part: iovec,
    of: PhantomData<&'c [u8]>,
}

impl<'c> Input<'c> {
    /// The `len` bytes at `at`.
    ///
    /// # Safety
    /// `at` is null, or `len` is 0, or that many bytes can be read there, and nobody writes to
    /// them, for `'c`.
    #[inline]
    pub(crate) unsafe fn new(at: *const c_void, len: usize) -> Self {
        Self { part: iovec { iov_base: at.cast_mut(), iov_len: len }, of: PhantomData }
    }

    /// The parts of a vectored write.
    ///
    /// # Safety
    /// `iov` is null, or `count` is 0, or that many iovecs can be read there, and nobody writes to
    /// them, for `'c`; what [`Input::new`] asks holds for each.
    #[inline]
    pub(crate) unsafe fn list(iov: *const iovec, count: usize) -> &'c [Self] {
        if iov.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: `count` iovecs, by the caller's contract. An `Input` is laid out as its only
        // field of a size.
        unsafe { std::slice::from_raw_parts(iov.cast::<Self>(), count) }
    }

    /// How many bytes the daemon says that there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.part.iov_len
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &'c [u8] {
        if self.part.iov_base.is_null() || self.part.iov_len == 0 {
            return &[];
        }
        // SAFETY: so many bytes that stay as they are for `'c`, as whoever made this has vouched.
        unsafe { std::slice::from_raw_parts(self.part.iov_base.cast::<u8>(), self.part.iov_len) }
    }
}

impl<'c> From<&'c [u8]> for Input<'c> {
    fn from(bytes: &'c [u8]) -> Self {
        let at = bytes.as_ptr().cast_mut().cast();
        Self { part: iovec { iov_base: at, iov_len: bytes.len() }, of: PhantomData }
    }
}

/// Memory that a call fills. A null pointer has no bytes, whatever its length.
pub(crate) struct Output<'c> {
    part: iovec,
    of: PhantomData<&'c mut [u8]>,
}

impl<'c> Output<'c> {
    /// No memory: a null pointer.
    pub(crate) const NONE: Output<'static> =
        Output { part: iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, of: PhantomData };

    /// The `len` bytes at `at`.
    ///
    /// # Safety
    /// `at` is null, or `len` is 0, or that many bytes can be written and read there for `'c`. They
    /// are the calling thread's alone for so long: nobody else looks at them, and the calling
    /// thread itself only by this, or by system calls while it has no reference into them. They are
    /// memory of foreign code, which the compiler has not seen being left unwritten.
    #[inline]
    pub(crate) unsafe fn new(at: *mut c_void, len: usize) -> Self {
        Self { part: iovec { iov_base: at, iov_len: len }, of: PhantomData }
    }

    /// What C knows it by. It may be given to every function that fills [`Output::len`] bytes.
    #[inline]
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.part.iov_base
    }

    /// How many bytes the daemon says that there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.part.iov_len
    }

    /// All its bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.filled(self.part.iov_len)
    }

    /// The first `n` of its bytes, or all, if there are fewer.
    #[inline]
    pub(crate) fn filled(&mut self, n: usize) -> &mut [u8] {
        let n = n.min(self.part.iov_len);
        if self.part.iov_base.is_null() || n == 0 {
            return &mut [];
        }
        // SAFETY: at least so many bytes that are this thread's alone for `'c`, as whoever made
        // this has vouched. There is one `Output` of them, which is borrowed for as long as the
        // slice.
        unsafe { std::slice::from_raw_parts_mut(self.part.iov_base.cast::<u8>(), n) }
    }

    /// Puts `bytes` at its beginning, as many as it has room for. Gives how many those were.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let place = self.filled(bytes.len());
        let n = place.len();
        place.copy_from_slice(bytes.get(..n).unwrap_or(&[]));
        n
    }

    /// It as the only place of a vectored read.
    #[inline]
    pub(crate) fn alone(&mut self) -> Outputs<'_> {
        Outputs { parts: std::slice::from_ref(&self.part), of: PhantomData }
    }
}

impl<'c> From<&'c mut [u8]> for Output<'c> {
    fn from(bytes: &'c mut [u8]) -> Self {
        let at = bytes.as_mut_ptr().cast();
        Self { part: iovec { iov_base: at, iov_len: bytes.len() }, of: PhantomData }
    }
}

/// The places of a vectored read. They may overlap, so one at a time is to be had.
pub(crate) struct Outputs<'c> {
    parts: &'c [iovec],
    of: PhantomData<&'c mut [u8]>,
}

impl<'c> Outputs<'c> {
    /// The `count` places that are listed at `iov`.
    ///
    /// # Safety
    /// `iov` is null, or `count` is 0, or that many iovecs can be read there, and nobody writes to
    /// them, for `'c`; what [`Output::new`] asks holds for each, but that they may overlap each
    /// other.
    #[inline]
    pub(crate) unsafe fn new(iov: *const iovec, count: usize) -> Self {
        if iov.is_null() || count == 0 {
            return Self { parts: &[], of: PhantomData };
        }
        // SAFETY: `count` iovecs, by the caller's contract.
        Self { parts: unsafe { std::slice::from_raw_parts(iov, count) }, of: PhantomData }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// How many bytes they have together.
    #[inline]
    pub(crate) fn total(&self) -> usize {
        self.parts.iter().map(|part| part.iov_len).sum()
    }

    /// The one of that index.
    #[inline]
    pub(crate) fn part(&mut self, index: usize) -> Option<Output<'_>> {
        self.parts.get(index).map(|part| Output { part: *part, of: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_pointers_have_nothing() {
        assert_eq!((Text::NONE.bytes(), Text::NONE.string()), (&b""[..], None));
        // SAFETY: a null pointer, of which the contract asks nothing.
        let input = unsafe { Input::new(std::ptr::null(), 8) };
        // SAFETY: as above.
        let mut output = unsafe { Output::new(std::ptr::null_mut(), 8) };
        // SAFETY: as above.
        let mut outputs = unsafe { Outputs::new(std::ptr::null(), 3) };
        assert_eq!((input.bytes(), input.len()), (&b""[..], 8));
        assert_eq!((output.put(b"ab"), output.len()), (0, 8));
        assert_eq!((outputs.count(), outputs.part(0).is_none()), (0, true));
        // SAFETY: as above.
        assert!(unsafe { Input::list(std::ptr::null(), 3) }.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_not_put() {
        let mut room = [0; 4];
        let mut output = Output::from(&mut room[..]);
        assert_eq!(output.put(b"abcdef"), 4);
        assert_eq!(output.put(b"xy"), 2);
        assert_eq!(output.filled(9), b"xycd");
        assert_eq!(&room, b"xycd");
    }

    #[test]
    fn places_that_overlap_are_to_be_had_one_after_the_other() {
        let mut room = *b"........";
        let at = room.as_mut_ptr();
        let list = [(0, 4), (2, 4)]
            .map(|(from, len)| iovec { iov_base: at.wrapping_add(from).cast(), iov_len: len });
        // SAFETY: live iovecs of live memory of this function's.
        let mut places = unsafe { Outputs::new(list.as_ptr(), list.len()) };
        assert_eq!((places.count(), places.total()), (2, 8));
        assert_eq!(places.part(0).map(|mut place| place.put(b"abcd")), Some(4));
        assert_eq!(places.part(1).map(|mut place| place.put(b"xyz")), Some(3));
        assert_eq!(&room, b"abxyz...");
    }

    #[test]
    fn the_parts_of_a_write_are_seen_as_they_lie() {
        let list = [Input::from(&b"head"[..]), Input::from(&b""[..]), Input::from(&b"body"[..])];
        // SAFETY: a live list of live bytes.
        let parts = unsafe { Input::list(list.as_ptr().cast(), list.len()) };
        let all: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
        assert_eq!(all, b"headbody");
    }
}
