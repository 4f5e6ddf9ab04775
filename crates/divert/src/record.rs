//! Packets to a pcap file, written by a thread of its own: who records one never waits for a disk.

use std::{
    fs::File,
    io::BufWriter,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use wire::PcapWriter;

use crate::error::DivertError;

/// Packets that wait to be written, at most.
const WAITING: usize = 1024;
/// Bytes of a packet that are kept room for.
const USUAL_BYTES: usize = 2048;

/// Hands packets to the thread that writes them; one for each thread that records.
#[derive(Clone)]
pub(crate) struct Recorder {
    packets: SyncSender<Recorded>,
    missed: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

/// The file; closed and complete when the last recorder and this are gone.
pub(crate) struct Recording {
    recorder: Option<Recorder>,
    writer: Option<JoinHandle<()>>,
}

struct Recorded {
    time_ns: u64,
    len: usize,
    bytes: [u8; USUAL_BYTES],
}

impl Recording {
    /// Creates the file.
    ///
    /// # Errors
    /// [`DivertError::File`].
    pub(crate) fn create(path: &Path) -> Result<Self, DivertError> {
        let refused = |source| DivertError::File { path: path.display().to_string(), source };
        let file = BufWriter::new(File::create(path).map_err(refused)?);
        let writer = PcapWriter::new(file).map_err(|error| refused(std::io::Error::other(error)))?;
        let (packets, queue) = sync_channel(WAITING);
        let recorder = Recorder { packets, missed: Arc::default(), written: Arc::default() };
        let written = recorder.written.clone();
        let writer = thread::Builder::new()
            .name("pcap".into())
            .spawn(move || write(writer, &queue, &written))
            .map_err(refused)?;
        Ok(Self { recorder: Some(recorder), writer: Some(writer) })
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone().expect("it is there until the recording is dropped")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.recorder.take());
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

impl Recorder {
    /// Records a packet, or counts it as missed when the disk is behind.
    pub(crate) fn record(&self, time_ns: u64, packet: &[u8]) {
        let len = packet.len().min(USUAL_BYTES);
        let mut bytes = [0; USUAL_BYTES];
        bytes[..len].copy_from_slice(&packet[..len]);
        if self.packets.try_send(Recorded { time_ns, len, bytes }).is_err() {
            self.missed.fetch_add(1, Relaxed);
        }
    }

    /// Packets that are in the file, or on their way there.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Packets that were not recorded because the disk was behind.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

/// Until all recorders are gone, or the disk is full: what comes then is missed.
fn write(mut file: PcapWriter<BufWriter<File>>, packets: &Receiver<Recorded>, written: &AtomicU64) {
    for packet in packets {
        if file.write(packet.time_ns, &packet.bytes[..packet.len]).is_err() {
            return;
        }
        written.fetch_add(1, Relaxed);
    }
    file.finish().ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::PcapReader;

    #[test]
    fn what_is_recorded_can_be_read() {
        let path = std::env::temp_dir().join(format!("linerate-record-{}.pcap", std::process::id()));
        let recording = Recording::create(&path).unwrap();
        let recorder = recording.recorder();
        for number in 0..100u8 {
            recorder.record(number.into(), &[number; 60]);
        }
        assert_eq!(recorder.missed(), 0);
        drop(recorder);
        drop(recording);
        let mut reader = PcapReader::new(File::open(&path).unwrap()).unwrap();
        let mut read = 0;
        while let Some(frame) = reader.next_frame().unwrap() {
            assert_eq!((frame.time_ns, frame.bytes), (read, &[read as u8; 60][..]));
            read += 1;
        }
        assert_eq!(read, 100);
        std::fs::remove_file(path).unwrap();
    }
}
