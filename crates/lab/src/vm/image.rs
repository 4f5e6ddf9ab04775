//! The kernel inside a bzImage: the emulator starts it directly, which saves the guest seconds of unpacking.
//!
//! Format: `Documentation/arch/x86/boot.rst` of the kernel.

/// The compressed kernel in a bzImage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Payload<'b> {
    /// Which program unpacks it.
    pub(crate) unpacker: &'static str,
    pub(crate) compressed: &'b [u8],
    /// Uncompressed size in bytes.
    pub(crate) unpacked_bytes: usize,
}

/// Finds the payload; `None` in a file of another form or of an unknown compression.
pub(crate) fn payload(image: &[u8]) -> Option<Payload<'_>> {
    const SETUP_SECTORS: usize = 0x1f1;
    const MAGIC: usize = 0x202;
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let start = (usize::from(*image.get(SETUP_SECTORS)?) + 1) * 512 + word(PAYLOAD_OFFSET)?;
    let bytes = image.get(start..start.checked_add(word(PAYLOAD_LENGTH)?)?)?;
    // The last four bytes are the size; gzip's format ends with it; the kernel build appends it to the others.
    let (body, size) = bytes.split_last_chunk::<4>()?;
    let unpacked_bytes = u32::from_le_bytes(*size) as usize;
    let known: [(&[u8], &str, &[u8]); 3] =
        [(b"\x28\xb5\x2f\xfd", "zstd", body), (b"\xfd7zXZ\0", "xz", body), (b"\x1f\x8b\x08", "gzip", bytes)];
    let (_, unpacker, compressed) = known.into_iter().find(|(magic, ..)| bytes.starts_with(magic))?;
    Some(Payload { unpacker, compressed, unpacked_bytes })
}

/// The version that a bzImage names: what `uname -r` prints; `None` in a file of another form.
pub(crate) fn version(image: &[u8]) -> Option<String> {
    const MAGIC: usize = 0x202;
    const VERSION_OFFSET: usize = 0x20e;
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let offset = u16::from_le_bytes(image.get(VERSION_OFFSET..VERSION_OFFSET + 2)?.try_into().ok()?);
    let text = image.get(usize::from(offset) + 0x200..)?;
    let text = &text[..text.iter().position(|byte| matches!(byte, 0 | b' '))?];
    String::from_utf8(text.to_vec()).ok().filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 512 * 3 + 16];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend(payload);
        image.extend(b"more");
        image
    }

    #[test]
    fn the_payload_is_found_with_its_size_and_unpacker() {
        let zstd = [b"\x28\xb5\x2f\xfdabc".as_slice(), &7u32.to_le_bytes()].concat();
        let found = payload(&image(&zstd))
            .map(|payload| (payload.unpacker, payload.compressed.to_vec(), payload.unpacked_bytes));
        assert_eq!(found, Some(("zstd", b"\x28\xb5\x2f\xfdabc".to_vec(), 7)));
        let gzip = [b"\x1f\x8b\x08abc".as_slice(), &9u32.to_le_bytes()].concat();
        assert_eq!(payload(&image(&gzip)).map(|payload| payload.compressed.len()), Some(gzip.len()));
    }

    #[test]
    fn an_image_names_its_version() {
        let mut image = image(b"");
        image[0x20e..0x210].copy_from_slice(&0x300u16.to_le_bytes());
        image[0x500..0x50f].copy_from_slice(b"6.12.1-own (me)");
        assert_eq!(version(&image).as_deref(), Some("6.12.1-own"));
        assert_eq!((version(b"\x7fELF"), version(&image[..0x400])), (None, None));
    }

    #[test]
    fn what_is_cut_short_or_no_kernel_has_no_payload() {
        let zstd = [b"\x28\xb5\x2f\xfdabc".as_slice(), &7u32.to_le_bytes()].concat();
        let whole = image(&zstd);
        for length in 0..whole.len() - 4 {
            assert_eq!(payload(&whole[..length]), None);
        }
        assert_eq!(payload(&image(b"something else")), None);
        assert_eq!(payload(&vec![0; 4096]), None);
    }
}
