//! libpcap's verdicts: tcpdump reads the frames from a file and writes those that match.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use wire::{PcapReader, PcapWriter};

/// Frames in a file that tcpdump can read.
pub(crate) struct Reference {
    file: PathBuf,
    frames: usize,
}

/// Whether libpcap's optimiser is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optimised {
    Yes,
    No,
}

impl Reference {
    /// `None`, with a printed skip, when tcpdump is missing; a panic when everything is required.
    pub(crate) fn of(name: &str, frames: &[Vec<u8>]) -> Option<Self> {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            testing::skip("tcpdump is missing: cannot compare with libpcap");
            return None;
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcap", std::process::id()));
        std::fs::write(&file, pcap(frames)).expect("the build directory is writable");
        Some(Self { file, frames: frames.len() })
    }

    /// Which frames match; an error's text when libpcap rejects the expression.
    pub(crate) fn verdicts(&self, expression: &str, optimised: Optimised) -> Result<Vec<bool>, String> {
        let mut command = Command::new("tcpdump");
        command.args(["-r", "-", "-w", "-", "--nano"]);
        if optimised == Optimised::No {
            command.arg("-O");
        }
        let input = File::open(&self.file).expect("written before");
        let output = command.arg("--").arg(expression).stdin(Stdio::from(input)).output();
        let output = output.expect("tcpdump starts");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut verdicts = vec![false; self.frames];
        let mut reader = PcapReader::new(&output.stdout[..]).expect("tcpdump writes pcap");
        while let Some(frame) = reader.next_frame().expect("tcpdump writes whole frames") {
            verdicts[frame.time_ns as usize / 1000] = true;
        }
        Ok(verdicts)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The frames as a file; each one's number is its time in microseconds.
pub(crate) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).expect("a vector takes everything");
    for (index, frame) in frames.iter().enumerate() {
        writer.write(1000 * index as u64, frame).expect("a vector takes everything");
    }
    writer.finish().expect("a vector takes everything")
}
