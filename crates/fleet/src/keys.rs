//! Keys of agents and coordinators: the seed stays in a file of its owner, the server's configuration gets the public key.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nkeys::{KeyPair, KeyPairType};

/// Makes a user's nkey: writes the seed to a new file that only its owner reads, and returns the public key.
///
/// # Errors
/// A file that is there already, or cannot be written.
pub fn new_key(path: &Path) -> io::Result<String> {
    let mut random = [0u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let failed = |error: nkeys::error::Error| io::Error::other(error.to_string());
    let pair = KeyPair::new_from_raw(KeyPairType::User, random).map_err(failed)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", pair.seed().map_err(failed)?)?;
    file.sync_all()?;
    Ok(pair.public_key())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_key_is_its_owners_and_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a1.seed");
        let public = new_key(&path).unwrap();
        let seed = std::fs::read_to_string(&path).unwrap();
        assert_eq!(KeyPair::from_seed(seed.trim()).unwrap().public_key(), public);
        assert!(public.starts_with('U') && seed.starts_with("SU"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(new_key(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
