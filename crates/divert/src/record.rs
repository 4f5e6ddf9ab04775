//! Writes packets to a pcap file, or with comments to a pcapng file, on a separate thread: a worker never waits for a disk.
//!
//! The file grows by whole packets, and keeps them when the disk is full.

use std::{
    fs::File,
    io::{self, Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sys::output::OutputFile;
use wire::{PcapWriter, PcapngWriter};

use crate::error::DivertError;

/// The most packets that wait to be written.
const WAITING: usize = 1024;
/// Bytes reserved for a packet.
const USUAL_BYTES: usize = 2048;

/// Passes packets to the writing thread; one for each recording thread.
#[derive(Clone)]
pub(crate) struct Recorder {
    packets: SyncSender<Recorded>,
    counts: Arc<Counts>,
}

/// Packets so far.
#[derive(Default)]
struct Counts {
    written: AtomicU64,
    missed: AtomicU64,
    /// Given to the writer, and counted by it.
    queued: AtomicU64,
    done: AtomicU64,
}

/// The file; closed and complete when the last recorder and this are dropped.
pub(crate) struct Recording {
    recorder: Option<Recorder>,
    writer: Option<JoinHandle<()>>,
}

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Pcap,
    /// With a comment for each packet.
    Pcapng,
}

/// Writes whole packets into memory.
enum Writer {
    Pcap(PcapWriter<Vec<u8>>),
    Pcapng(PcapngWriter<Vec<u8>>),
}

struct Recorded {
    time_ns: u64,
    original_len: usize,
    comment: String,
    len: usize,
    bytes: [u8; USUAL_BYTES],
}

impl Recording {
    /// Creates the file.
    ///
    /// # Errors
    /// [`DivertError::File`].
    pub(crate) fn create(path: &Path, form: Form) -> Result<Self, DivertError> {
        let refused = |source| DivertError::File { path: path.display().to_string(), source };
        let mut writer = Writer::new(form).map_err(refused)?;
        // At its final path at once, so that it can be read while it grows, and after a kill.
        let create = |header: &[u8]| -> io::Result<File> {
            let mut file = OutputFile::create(path)?;
            file.write_all(header)?;
            file.finish()
        };
        let header = std::mem::take(writer.output_mut());
        let file = Growing { file: create(&header).map_err(refused)?, len: header.len() as u64 };
        let (packets, queue) = sync_channel(WAITING);
        let recorder = Recorder { packets, counts: Arc::default() };
        let counts = recorder.counts.clone();
        let writer = thread::Builder::new()
            .name("pcap".into())
            .spawn(move || write(writer, file, &queue, &counts))
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
    /// Records a packet of `original_len` bytes, or counts it as missed when the disk is behind.
    pub(crate) fn record_with(&self, time_ns: u64, packet: &[u8], original_len: usize, comment: String) {
        let len = packet.len().min(USUAL_BYTES);
        let mut bytes = [0; USUAL_BYTES];
        bytes[..len].copy_from_slice(&packet[..len]);
        self.counts.queued.fetch_add(1, Relaxed);
        if self.packets.try_send(Recorded { time_ns, original_len, comment, len, bytes }).is_err() {
            self.counts.queued.fetch_sub(1, Relaxed);
            self.counts.missed.fetch_add(1, Relaxed);
        }
    }

    /// Waits until the writer has counted every packet that was given to it, two seconds at most.
    pub(crate) fn settle(&self) {
        let until = Instant::now() + Duration::from_secs(2);
        while self.counts.done.load(Acquire) < self.counts.queued.load(Relaxed) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Packets in the file or in the queue to it.
    pub(crate) fn written(&self) -> u64 {
        self.counts.written.load(Relaxed)
    }

    /// Packets that were not recorded because the disk was behind.
    pub(crate) fn missed(&self) -> u64 {
        self.counts.missed.load(Relaxed)
    }
}

impl Writer {
    fn new(form: Form) -> io::Result<Self> {
        match form {
            Form::Pcap => PcapWriter::new(Vec::new()).map(Self::Pcap).map_err(io::Error::other),
            Form::Pcapng => PcapngWriter::new(Vec::new()).map(Self::Pcapng),
        }
    }

    fn write(&mut self, packet: &Recorded) -> io::Result<()> {
        let bytes = &packet.bytes[..packet.len];
        match self {
            Self::Pcap(writer) => writer.write(packet.time_ns, bytes).map_err(io::Error::other),
            Self::Pcapng(writer) => {
                writer.write(packet.time_ns, packet.original_len as u32, bytes, &packet.comment)
            }
        }
    }

    fn output_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Pcap(writer) => writer.output_mut(),
            Self::Pcapng(writer) => writer.output_mut(),
        }
    }
}

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A file to which whole packets are added.
struct Growing {
    file: File,
    len: u64,
}

impl Growing {
    /// Adds all of it, or nothing where there is no room.
    fn add(&mut self, packets: &[u8]) -> io::Result<()> {
        let added = self.file.write_all(packets);
        match &added {
            Ok(()) => self.len += packets.len() as u64,
            // Bytes written to a device or a pipe cannot be undone.
            Err(_) => {
                self.file.set_len(self.len).and_then(|()| self.file.seek(io::SeekFrom::Start(self.len))).ok();
            }
        }
        added
    }
}

/// Runs until all recorders are dropped. Packets that find a full disk are missed.
fn write(mut writer: Writer, mut file: Growing, packets: &Receiver<Recorded>, counts: &Counts) {
    let mut waiting = 0;
    let mut flush = |writer: &mut Writer, waiting: &mut u64| {
        let added = file.add(writer.output_mut());
        if added.is_err() {
            counts.written.fetch_sub(*waiting, Relaxed);
            counts.missed.fetch_add(*waiting, Relaxed);
        }
        writer.output_mut().clear();
        *waiting = 0;
        added
    };
    let mut is_full = false;
    for packet in packets {
        if is_full || writer.write(&packet).is_err() {
            counts.missed.fetch_add(1, Relaxed);
            counts.done.fetch_add(1, Release);
            continue;
        }
        waiting += 1;
        counts.written.fetch_add(1, Relaxed);
        counts.done.fetch_add(1, Release);
        if writer.output_mut().len() >= CHUNK_BYTES {
            is_full = flush(&mut writer, &mut waiting).is_err();
        }
    }
    flush(&mut writer, &mut waiting).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::PcapReader;

    #[test]
    fn what_is_recorded_can_be_read() {
        let path = testing::own_folder().join("record.pcap");
        let recording = Recording::create(&path, Form::Pcap).unwrap();
        let recorder = recording.recorder();
        for number in 0..100u8 {
            recorder.record_with(number.into(), &[number; 60], 60, String::new());
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
    }

    /// In the environment of the process that has a mount namespace of its own: the folder it mounts on.
    const MOUNTED: &str = "DIVERT_TEST_FULL_DISK";

    #[test]
    fn a_full_disk_keeps_the_whole_packets_that_it_has() {
        let Ok(folder) = std::env::var(MOUNTED) else {
            let folder = std::env::temp_dir().join(format!("linerate-full-{}", std::process::id()));
            std::fs::create_dir(&folder).unwrap();
            let script = "mount -t tmpfs -o size=256k none \"$0\" && exec \"$@\"";
            let output = std::process::Command::new("unshare")
                .args(["-m", "--propagation", "private", "sh", "-c", script])
                .arg(&folder)
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "record::tests::a_full_disk_keeps_the_whole_packets_that_it_has"])
                .env(MOUNTED, &folder)
                .output()
                .unwrap();
            std::fs::remove_dir(&folder).unwrap();
            let words = String::from_utf8_lossy(&output.stdout).into_owned();
            if !words.contains("running 1 test") {
                return testing::skip("a mount namespace needs CAP_SYS_ADMIN");
            }
            assert!(output.status.success(), "{words}");
            return;
        };
        const PACKETS: u64 = 5000;
        let path = Path::new(&folder).join("kept.pcap");
        let recording = Recording::create(&path, Form::Pcap).unwrap();
        let recorder = recording.recorder();
        for number in 0..PACKETS {
            recorder.record_with(number, &[number as u8; 100], 100, String::new());
        }
        let counts = recorder.counts.clone();
        drop(recorder);
        drop(recording);
        let (written, missed) = (counts.written.load(Relaxed), counts.missed.load(Relaxed));
        assert_eq!(written + missed, PACKETS, "{written} written, {missed} missed");
        let mut reader = PcapReader::new(File::open(&path).unwrap()).unwrap();
        let mut read = 0;
        while reader.next_frame().unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, written);
        assert!(0 < read && read < PACKETS, "{read}");
    }
}
