//! The secret in a page's address: a request without it sees nothing.

use std::{
    fs::File,
    io::{self, Read},
};

/// 128 random bits as hexadecimal digits.
pub(crate) fn token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that depends on the lengths alone.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    let differing = a.bytes().zip(b.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_only_the_same_is_the_same() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert_eq!(one.len(), 32);
        assert!(is_same(&one, &one) && !is_same(&one, &other));
        assert!(!is_same(&one, &one[..31]) && !is_same("", &one) && !is_same(&one, ""));
    }
}
