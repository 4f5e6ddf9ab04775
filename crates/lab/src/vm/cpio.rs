//! Archives that the kernel unpacks at boot: cpio in the "newc" format.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel.

/// An archive in memory.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// Device numbers.
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, &[], &Device { major: 0, minor: 0 });
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE | 0o755, content, &Device { major: 0, minor: 0 });
    }

    pub(crate) fn character_device(&mut self, name: &str, device: &Device) {
        self.entry(name, CHARACTER_DEVICE | 0o600, &[], device);
    }

    /// The whole archive with its end mark.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], &Device { major: 0, minor: 0 });
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], device: &Device) {
        self.entries += 1;
        // Magic, then 13 numbers of 8 hexadecimal digits: inode, mode, user, group, links, time, size, the
        // device the file is on (two), the device it is (two), length of the name with its end, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            device.major,
            device.minor,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_names_and_contents_start_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        archive.character_device("dev/console", &Device { major: 5, minor: 1 });
        let bytes = archive.finish();
        let starts: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 4);
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        let field = |entry: usize, number: usize| {
            let from = starts[entry] + 6 + number * 8;
            u32::from_str_radix(std::str::from_utf8(&bytes[from..from + 8]).unwrap(), 16).unwrap()
        };
        assert_eq!((field(0, 1), field(1, 1), field(2, 1)), (0o040_755, 0o100_755, 0o020_600));
        assert_eq!((field(1, 6), field(1, 11)), (5, 6), "size and length of the name with its end");
        assert_eq!((field(2, 9), field(2, 10)), (5, 1), "device numbers");
        assert_eq!(&bytes[starts[1] + 110..starts[1] + 116], b"bin/a\0");
        assert_eq!(&bytes[starts[1] + 116..starts[1] + 124], b"12345\0\0\0");
    }
}
