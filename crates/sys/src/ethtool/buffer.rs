//! The memory that an ethtool ioctl reads and writes, and the call itself.

use std::io;

/// A request or answer: 32-bit words, aligned for 64-bit counters.
///
/// Spare room after it is never read: for lists whose length is requested first, the kernel writes as many entries as the
/// driver has by then, whatever length it is given.
pub(super) struct Buffer {
    words: Vec<u64>,
    length: usize,
}

impl Buffer {
    /// More entries than a driver gains between two calls.
    const ROOM: usize = 64 * 1024;

    /// `head` is the command and its parameters; `answer` is how many bytes follow it.
    pub(super) fn new(head: &[u32], answer: usize) -> Self {
        let length = size_of_val(head) + answer;
        let mut buffer = Self { words: vec![0; (length * 2 + Self::ROOM).div_ceil(8)], length };
        head.iter().enumerate().for_each(|(index, word)| buffer.set_u32(index, *word));
        buffer
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let bytes: &[u64] = &self.words[..self.length.div_ceil(8)];
        // SAFETY: `u64` has no padding, bytes have any alignment, and the length is that of the slice.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), size_of_val(bytes)) };
        &bytes[..self.length]
    }

    /// The 32-bit word number `index`.
    pub(super) fn u32(&self, index: usize) -> u32 {
        u32::from_ne_bytes(self.bytes()[index * 4..][..4].try_into().unwrap())
    }

    pub(super) fn set_u32(&mut self, index: usize, value: u32) {
        let mut word = self.words[index / 2].to_ne_bytes();
        word[index % 2 * 4..][..4].copy_from_slice(&value.to_ne_bytes());
        self.words[index / 2] = u64::from_ne_bytes(word);
    }

    /// Puts bytes at a distance from the start.
    pub(super) fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate().map(|(index, byte)| (at + index, byte)) {
            let mut word = self.words[index / 8].to_ne_bytes();
            word[index % 8] = *byte;
            self.words[index / 8] = u64::from_ne_bytes(word);
        }
    }
}

impl Buffer {
    /// Passes the request to a function on plain bytes that answers it.
    pub(super) fn answered_by(&mut self, answer: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let outcome = answer(&mut bytes);
        for (word, bytes) in self.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of 8"));
        }
        outcome
    }
}

/// `struct ifreq` in ethtool's form: the name, then a pointer; 40 bytes on every 64-bit machine.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u64,
    rest: [u8; 16],
}
const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

pub(super) fn ioctl(socket: libc::c_int, interface: &str, buffer: &mut Buffer) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    // The last byte stays zero.
    let room = name[..libc::IFNAMSIZ - 1].get_mut(..interface.len());
    room.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(interface.as_bytes());
    let mut request = Request { name, data: buffer.words.as_mut_ptr(), rest: [0; 16] };
    // SAFETY: `request` has the size and layout of `ifreq`; what it points to is as large as the command in its
    // first word makes the kernel read, and has `Buffer::ROOM` behind it for lists that grew in the meantime.
    let answer = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Text in a field of fixed size, up to its first zero byte.
pub(super) fn text(field: &[u8]) -> String {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_where_c_puts_them() {
        let mut buffer = Buffer::new(&[1, 2, 3], 8);
        buffer.set_u32(4, 5);
        assert_eq!(buffer.bytes(), [1u32, 2, 3, 0, 5].map(u32::to_ne_bytes).concat());
        assert_eq!((buffer.u32(2), buffer.u32(4)), (3, 5));
    }

    #[test]
    fn text_ends_at_the_first_zero_byte() {
        assert_eq!(text(b"veth\0junk"), "veth");
        assert_eq!(text(b"full"), "full");
        assert_eq!(text(b""), "");
    }
}
