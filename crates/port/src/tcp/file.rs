//! The file that a stream's messages come from: made for this, or the user's, through the page cache or around it.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use sys::file_cache;

/// Length of a file that is made for this, at least one message.
const FILE_BYTES: u64 = 64 << 20;
/// Alignment of memory and lengths with `O_DIRECT` that every disk accepts.
const BLOCK: usize = 4096;

/// Whether the page cache serves a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileCache {
    /// As the kernel decides: a file that was read before comes from memory.
    #[default]
    Warm,
    /// The file's pages are dropped at the start and whenever its end is reached (`POSIX_FADV_DONTNEED`).
    Cold,
    /// Reads go around the page cache (`O_DIRECT`).
    Direct,
}

/// The file of a stream's messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileChoice {
    /// A file or block device, which is only read; `None` makes a nameless file in the page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Whether the page cache serves it.
    #[serde(default)]
    pub cache: FileCache,
}

impl FileChoice {
    /// Whether it is what is used without a choice.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Messages of one size, read one after another, from the start again after the end.
pub struct MessageFile {
    file: File,
    cache: FileCache,
    end: u64,
    offset: u64,
    message_bytes: usize,
    /// One message, from `start` on.
    memory: Vec<u8>,
    start: usize,
}

impl MessageFile {
    /// Opens the file, or makes one.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when the file is shorter than a message, or a message is not of whole blocks with
    /// [`FileCache::Direct`].
    pub fn open(choice: &FileChoice, message_bytes: usize) -> io::Result<Self> {
        let message_bytes = message_bytes.max(1);
        let refused = |words: &str| io::Error::new(io::ErrorKind::InvalidInput, words);
        if choice.cache == FileCache::Direct && !message_bytes.is_multiple_of(BLOCK) {
            return Err(refused(
                "reading around the page cache needs messages of whole blocks of 4096 bytes",
            ));
        }
        let mut file = match &choice.path {
            Some(path) => {
                let flags = if choice.cache == FileCache::Direct { libc::O_DIRECT } else { 0 };
                File::options().read(true).custom_flags(flags).open(path)?
            }
            None => made(message_bytes as u64)?,
        };
        // A block device has a length only for those who seek.
        let length = file.seek(SeekFrom::End(0))?;
        let end = length / message_bytes as u64 * message_bytes as u64;
        if end == 0 {
            return Err(refused("the file is shorter than a message"));
        }
        let memory = vec![0; message_bytes + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let source = Self { file, cache: choice.cache, end, offset: 0, message_bytes, memory, start };
        source.forget()?;
        Ok(source)
    }

    /// The file, for calls that read it themselves.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the next byte is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves on after so many bytes were taken.
    ///
    /// # Errors
    /// When the cache cannot be emptied at the end of the file.
    pub fn advance(&mut self, bytes: usize) -> io::Result<()> {
        self.offset += bytes as u64;
        if self.offset >= self.end {
            self.offset = 0;
            self.forget()?;
        }
        Ok(())
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> io::Result<()> {
        let memory = &mut self.memory[self.start..self.start + self.message_bytes];
        self.file.read_exact_at(memory, self.offset)?;
        self.advance(self.message_bytes)
    }

    /// The message that was read last.
    pub fn message(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.message_bytes]
    }

    fn forget(&self) -> io::Result<()> {
        if self.cache == FileCache::Cold { file_cache::forget(&self.file) } else { Ok(()) }
    }
}

/// A nameless file of whole messages, in the page cache once written.
fn made(message_bytes: u64) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    let piece = vec![0x5a; 1 << 20];
    let mut left = ((FILE_BYTES / message_bytes).max(1) * message_bytes) as usize;
    while left > 0 {
        let bytes = left.min(piece.len());
        file.write_all(&piece[..bytes])?;
        left -= bytes;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], cache: FileCache, message_bytes: usize) -> io::Result<MessageFile> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        MessageFile::open(&FileChoice { path: Some(file.path().into()), cache }, message_bytes)
    }

    #[test]
    fn whole_messages_are_read_again_from_the_start() {
        for cache in [FileCache::Warm, FileCache::Cold] {
            let mut source = of(b"aabbc", cache, 2).unwrap();
            let mut read = || {
                source.read().unwrap();
                source.message().to_vec()
            };
            assert_eq!([read(), read(), read()], [b"aa", b"bb", b"aa"], "{cache:?}: the rest is no message");
        }
    }

    #[test]
    fn a_file_or_message_that_does_not_fit_is_refused_with_the_reason() {
        let why = |cache, message_bytes| of(b"abc", cache, message_bytes).err().unwrap().to_string();
        assert_eq!(why(FileCache::Warm, 4), "the file is shorter than a message");
        assert!(why(FileCache::Direct, 100).contains("whole blocks of 4096 bytes"));
    }
}
