//! Authentication and encryption of the control connection with a shared secret: Noise NNpsk0 (the crate `snow`).
//!
//! Both ends prove that they have the secret before anything else. Each connection has its own keys, so that a recording
//! cannot be read or replayed. <https://noiseprotocol.org/noise.html>

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use snow::{Builder, HandshakeState, StatelessTransportState};
use thiserror::Error;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Binds keys to this protocol: other protocols with the same secret do not interoperate.
const PROLOGUE: &[u8] = b"linerate control 3";
/// Bytes of the tag after each sealed part.
const TAG_BYTES: usize = 16;
/// Most bytes of a part before it is sealed; a Noise message has at most 65535 with its tag.
const PART_BYTES: usize = 32 * 1024;
/// Fewest bytes of a file with a secret.
const LEAST_BYTES: usize = 16;
/// Most bytes of a file with a secret.
const MOST_BYTES: u64 = 4096;

/// A secret that both ends have.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// Why a file holds no usable secret.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file.
    #[error("cannot read the key {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Other users can read it.
    #[error("the key {path} can be read by other users")]
    NotSecret {
        /// The file.
        path: PathBuf,
    },
    /// Too short or too long.
    #[error("the key {path} has {bytes} bytes: must be {LEAST_BYTES} to {MOST_BYTES}")]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length without trailing white space.
        bytes: u64,
    },
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The secret from a file that only its owner can read, without trailing white space.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.into(), source };
        let facts = fs::metadata(path).map_err(unreadable)?;
        if facts.mode() & 0o077 != 0 {
            return Err(KeyError::NotSecret { path: path.into() });
        }
        let length = |bytes| KeyError::Length { path: path.into(), bytes };
        if facts.len() > MOST_BYTES {
            return Err(length(facts.len()));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let secret = bytes.trim_ascii_end();
        if secret.len() < LEAST_BYTES {
            return Err(length(secret.len() as u64));
        }
        Ok(Self::of(secret))
    }

    /// The secret from any bytes.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        use blake2::{Blake2s256, Digest};
        Self(Blake2s256::new().chain_update(PROLOGUE).chain_update(secret).finalize().into())
    }

    fn handshake(&self, is_initiator: bool) -> Option<HandshakeState> {
        let builder = Builder::new(PATTERN.parse().ok()?).prologue(PROLOGUE).ok()?.psk(0, &self.0).ok()?;
        if is_initiator { builder.build_initiator() } else { builder.build_responder() }.ok()
    }
}

/// A handshake that this end began.
pub(crate) struct Knock(HandshakeState);

impl Knock {
    /// Returns the first message, and the state that reads the answer.
    pub(crate) fn with(key: &Key) -> Option<(String, Self)> {
        let mut state = key.handshake(true)?;
        let mut words = vec![0; 256];
        let length = state.write_message(&[], &mut words).ok()?;
        Some((to_hex(&words[..length]), Self(state)))
    }

    /// The connection's keys, if the other end has the same secret.
    pub(crate) fn opened(mut self, answer: &str) -> Option<Seal> {
        self.0.read_message(&from_hex(answer)?, &mut [0; 256]).ok()?;
        Seal::of(self.0)
    }
}

/// Answers a handshake with the same secret: returns the answer, and the connection's keys.
pub(crate) fn open(key: &Key, knock: &str) -> Option<(String, Seal)> {
    let mut state = key.handshake(false)?;
    state.read_message(&from_hex(knock)?, &mut [0; 256]).ok()?;
    let mut words = vec![0; 256];
    let length = state.write_message(&[], &mut words).ok()?;
    Some((to_hex(&words[..length]), Seal::of(state)?))
}

/// One direction's keys and the number of its messages. Copies share the keys; each counts for itself.
#[derive(Clone)]
pub(crate) struct Seal {
    state: Arc<StatelessTransportState>,
    said: u64,
    heard: u64,
}

impl Seal {
    fn of(state: HandshakeState) -> Option<Self> {
        Some(Self { state: Arc::new(state.into_stateless_transport_mode().ok()?), said: 0, heard: 0 })
    }

    /// A line's bytes, sealed: parts in hex, with a dot between them.
    pub(crate) fn seal(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        for part in line.chunks(PART_BYTES) {
            let mut sealed = vec![0; part.len() + TAG_BYTES];
            let length = self.state.write_message(self.said, part, &mut sealed).ok()?;
            self.said += 1;
            parts.push(to_hex(&sealed[..length]));
        }
        Some(parts.join(".").into_bytes())
    }

    /// The unsealed bytes, in order of sending; `None` for anything else.
    pub(crate) fn unseal(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        for part in std::str::from_utf8(line).ok()?.trim_ascii_end().split('.') {
            let sealed = from_hex(part)?;
            let mut opened = vec![0; sealed.len()];
            let length = self.state.read_message(self.heard, &sealed, &mut opened).ok()?;
            self.heard += 1;
            whole.extend_from_slice(&opened[..length]);
        }
        Some(whole)
    }
}

/// The longest sealed line for this many bytes.
pub(crate) fn longest_sealed(bytes: usize) -> usize {
    2 * bytes + (bytes / PART_BYTES + 1) * (2 * TAG_BYTES + 1) + 1
}

fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |at: u8| char::from(at).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pair(ours: &Key, theirs: &Key) -> Option<(Seal, Seal)> {
        let (words, knock) = Knock::with(ours).unwrap();
        let (answer, host) = open(theirs, &words)?;
        Some((knock.opened(&answer)?, host))
    }

    #[test]
    fn both_ends_with_one_secret_understand_only_each_other() {
        let key = Key::of(b"correct horse battery");
        let (mut guest, mut host) = pair(&key, &key).unwrap();
        for words in [&b"{}"[..], &[b'x'; 3 * PART_BYTES + 7]] {
            let sealed = guest.seal(words).unwrap();
            assert!(sealed.len() < longest_sealed(words.len()) && !sealed.windows(2).any(|at| at == b"{}"));
            assert_eq!(host.unseal(&sealed).unwrap(), words);
            let back = host.seal(words).unwrap();
            assert_eq!(guest.unseal(&back).unwrap(), words);
        }
        assert!(pair(&key, &Key::of(b"another secret here")).is_none());
        assert_ne!(
            pair(&key, &key).unwrap().0.seal(b"same").unwrap(),
            pair(&key, &key).unwrap().0.seal(b"same").unwrap()
        );
    }

    #[test]
    fn changed_repeated_or_missing_lines_are_refused() {
        let key = Key::of(b"correct horse battery");
        let (mut guest, mut host) = pair(&key, &key).unwrap();
        let (first, second) = (guest.seal(b"one").unwrap(), guest.seal(b"two").unwrap());
        assert_eq!(host.unseal(&second), None, "the first is missing");
        let mut changed = first.clone();
        changed[0] ^= 1;
        assert_eq!(host.unseal(&changed), None);
        assert_eq!(host.unseal(&first).unwrap(), b"one");
        assert_eq!(host.unseal(&first), None, "repeated");
        for rubbish in [&b""[..], b"zz", b"abc", b"00", b"{\"type\":\"done\"}", &[0xff; 40]] {
            assert_eq!(host.unseal(rubbish), None);
            assert!(open(&key, &String::from_utf8_lossy(rubbish)).is_none());
        }
        assert_eq!(host.unseal(&second).unwrap(), b"two");
    }

    #[test]
    fn a_key_is_a_file_that_only_its_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |content: &[u8], mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::read(&path)
        };
        assert_eq!(write(b"sixteen bytes ok\n", 0o600).unwrap(), Key::of(b"sixteen bytes ok"));
        assert!(
            write(b"sixteen bytes ok", 0o640)
                .unwrap_err()
                .to_string()
                .ends_with("key can be read by other users")
        );
        let short = write(b"short\n\n", 0o600).unwrap_err().to_string();
        assert!(short.ends_with("has 5 bytes: must be 16 to 4096"), "{short}");
        assert!(write(&[b'x'; 5000], 0o600).unwrap_err().to_string().contains("has 5000 bytes"));
        let missing = Key::read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the key ") && missing.ends_with("none"), "{missing}");
        assert_eq!(format!("{:?}", Key::of(b"x")), "Key(..)", "a secret is not printed");
    }
}
