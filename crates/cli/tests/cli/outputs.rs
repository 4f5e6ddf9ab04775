//! Files that users name for output: devices, pipes, links, folders, full disks, for every option that names one.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{linerate, run, skip, words};

/// A folder with a saved run.
struct Scratch {
    folder: tempfile::TempDir,
    run: String,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run.json").to_str().unwrap().to_owned();
        let (status, _, err) = crate::support::run(&["model", "plan", "--flood", "1Mpps", "--save", &run]);
        assert_eq!(status, 0, "{err}");
        Self { folder, run }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Each command with an option that names an output file, and the first characters that it writes there.
    fn commands(&self, to: &Path) -> [(Vec<String>, &'static [u8]); 4] {
        let to = to.to_str().unwrap();
        let command = |text: &str| -> Vec<String> {
            text.split(' ').map(|word| word.replace("RUN", &self.run).replace("TO", to)).collect()
        };
        [
            (command("model plan --flood 1Mpps --save TO"), b"{"),
            (command("report RUN --format html --output TO"), b"<!doctype html>"),
            (command("send --write-pcap TO -n 2000 --frame-size 512"), &[0x4d, 0x3c, 0xb2, 0xa1]),
            (command("recv 127.0.0.1:0 --duration 30ms --no-save --plot TO"), b"<!doctype html>"),
        ]
    }
}

fn output(args: &[String]) -> (i32, String, String) {
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn begins(content: &[u8], start: &[u8]) -> bool {
    content.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

#[test]
fn devices_are_written_to_and_not_replaced() {
    let scratch = Scratch::new();
    let nodes = [("null", "3"), ("full", "7")].map(|(name, minor)| {
        let path = scratch.path(name);
        let mut mknod = Command::new("mknod");
        mknod.arg(&path).args(["c", "1", minor]).stderr(Stdio::null());
        assert!(mknod.status().is_ok());
        path
    });
    if nodes.iter().any(|node| fs::OpenOptions::new().write(true).open(node).is_err()) {
        return skip("a device node needs CAP_MKNOD and a file system that takes it");
    }
    let [null, full] = &nodes;
    for (args, _) in scratch.commands(null) {
        let (status, _, err) = output(&args);
        assert_eq!(status, 0, "{args:?}: {err}");
    }
    for (args, _) in scratch.commands(full) {
        let (status, _, err) = output(&args);
        assert_eq!(status, 4, "{args:?}: {err}");
        assert!(err.contains("/full: ") && err.contains("No space left on device"), "{args:?}: {err}");
    }
    for node in &nodes {
        assert!(fs::symlink_metadata(node).unwrap().file_type().is_char_device(), "{}", node.display());
    }
    assert_eq!(scratch.names(), ["full", "null", "run.json"]);
}

#[test]
fn links_are_followed() {
    let scratch = Scratch::new();
    let (link, target) = (scratch.path("link"), scratch.path("target"));
    symlink("target", &link).unwrap();
    for (args, start) in scratch.commands(&link) {
        fs::write(&target, "old").unwrap();
        let (status, _, err) = output(&args);
        assert_eq!(status, 0, "{args:?}: {err}");
        assert!(begins(&fs::read(&target).unwrap(), start), "{args:?}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{args:?}");
    }
    assert_eq!(scratch.names(), ["link", "run.json", "target"]);
}

#[test]
fn the_reader_of_a_pipe_gets_all_output() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (args, start) in scratch.commands(&pipe) {
        let (status, _, err) = output(&args);
        assert_eq!(status, 4, "{args:?}: {err}");
        assert!(err.contains("no process reads this pipe"), "{args:?}: {err}");
        // Opened for both directions: a reader exists before the command starts.
        let held = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let got = tempfile::NamedTempFile::new().unwrap();
        let mut reader = Command::new("cat");
        reader.stdin(fs::File::open(&pipe).unwrap()).stdout(got.reopen().unwrap());
        let mut reader = reader.spawn().unwrap();
        let refs: Vec<&str> = args.iter().map(String::as_str).collect();
        let command = linerate(&refs).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (status, _, err) = words(command.wait_with_output().unwrap());
        drop(held);
        assert!(reader.wait().unwrap().success());
        let content = fs::read(got.path()).unwrap();
        assert_eq!(status, 0, "{args:?}: {err}");
        assert!(begins(&content, start), "{args:?}: {} bytes", content.len());
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{args:?}");
    }
    assert_eq!(scratch.names(), ["pipe", "run.json"]);
}

#[test]
fn an_unwritable_file_is_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    for (to, words) in [
        (scratch.folder.path(), "is a directory"),
        (Path::new("/nonexistent/x"), "No such file or directory"),
        (&scratch.path("run.json/x"), "Not a directory"),
    ] {
        for (args, _) in scratch.commands(to) {
            let (status, out, err) = output(&args);
            assert_eq!((status, out.as_str()), (4, ""), "{args:?}: {err}");
            let first = format!("error: cannot write {}: {words}", to.display());
            assert!(err.starts_with(&first), "{args:?} says nothing before: {err}");
            assert!(err.contains("hint:  choose another file with --"), "{args:?}: {err}");
        }
    }
    assert_eq!(scratch.names(), ["run.json"]);
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    let to = disk.join("old");
    for (args, _) in scratch.commands(&to) {
        let script = "mount -t tmpfs -o size=4k none \"$0\" || exit 99; echo old > \"$0/old\"; \
                      \"$@\" > /dev/null; status=$?; cat \"$0/old\"; ls -A \"$0\"; exit $status";
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(&disk);
        command.arg(linerate(&[]).get_program()).args(&args).env("XDG_STATE_HOME", scratch.folder.path());
        let (status, out, err) = words(command.stdin(Stdio::null()).output().unwrap());
        if status == 99 || status == 1 && err.contains("unshare") {
            return skip("a mount namespace needs CAP_SYS_ADMIN");
        }
        assert_eq!((status, out.as_str()), (4, "old\nold\n"), "{args:?}: {err}");
        assert!(err.contains("cannot write ") && err.contains("No space left on device"), "{args:?}: {err}");
    }
}

#[test]
fn a_journal_that_no_run_can_resume_is_removed_at_the_next_start() {
    let scratch = Scratch::new();
    let runs = scratch.path("linerate/runs");
    fs::create_dir_all(&runs).unwrap();
    let (start, trial) = ("{\"event\":\"start\"}\n", "{\"event\":\"trial\"}\n");
    fs::write(runs.join("empty.json.partial"), start).unwrap();
    fs::write(runs.join("measured.json.partial"), [start, trial].concat()).unwrap();
    fs::write(runs.join("running.json.partial"), start).unwrap();
    // Named as linerate names them, for a process ID whose start time differs.
    let left = format!(".linerate-{}-1-abc", std::process::id());
    fs::write(runs.join(&left), "").unwrap();
    let running = fs::File::open(runs.join("running.json.partial")).unwrap();
    running.lock().unwrap();
    let mut command = linerate(&["model", "plan", "--flood", "1Mpps"]);
    let (status, _, err) = words(command.env("XDG_STATE_HOME", scratch.folder.path()).output().unwrap());
    assert_eq!(status, 0, "{err}");
    let mut names: Vec<String> =
        fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with("plan.json") && !name.contains("-plan-"));
    names.sort();
    assert_eq!(names, ["measured.json.partial", "running.json.partial"]);
}
