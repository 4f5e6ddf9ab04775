use std::{
    io::Read,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A device node in the test's folder; skips if the kernel refuses one.
fn node(folder: &Path, name: &str, minor: u32) -> Option<PathBuf> {
    let path = folder.join(name);
    let made = Command::new("mknod")
        .arg(&path)
        .args(["c", "1", &minor.to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    if !made.success() || fs::OpenOptions::new().write(true).open(&path).is_err() {
        testing::skip("a device node needs CAP_MKNOD and a file system that allows it");
        return None;
    }
    Some(path)
}

#[test]
fn a_file_is_new_or_as_it_was_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    write_whole(&path, b"one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut second = OutputFile::create(&path).unwrap();
    second.write_all(b"tw").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one", "until it is finished");
    second.truncate(1).unwrap();
    second.write_all(b"wo").unwrap();
    second.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let mut given_up = OutputFile::create(&path).unwrap();
    given_up.write_all(b"three").unwrap();
    drop(given_up);
    Destination::check(&folder.path().join("absent")).unwrap();
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"two".to_vec(), vec!["run.json".into()]));
}

#[test]
fn a_symbolic_link_stays_and_what_it_leads_to_is_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    let (link, outer) = (folder.path().join("link"), folder.path().join("outer"));
    symlink("real/file", &link).unwrap();
    symlink(&link, &outer).unwrap();
    for content in [&b"made"[..], b"replaced"] {
        write_whole(&outer, content).unwrap();
        assert_eq!(fs::read(folder.path().join("real/file")).unwrap(), content);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&outer).unwrap().is_symlink());
    }
    symlink("round", folder.path().join("round")).unwrap();
    let refused = write_whole(&folder.path().join("round"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn a_device_is_written_to_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let Some(null) = node(folder.path(), "null", 3) else { return };
    let Some(full) = node(folder.path(), "full", 7) else { return };
    write_whole(&null, b"gone").unwrap();
    assert!(!Destination::check(&null).unwrap().is_file());
    let refused = write_whole(&full, b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    for node in [&null, &full] {
        assert!(fs::symlink_metadata(node).unwrap().file_type().is_char_device(), "{}", node.display());
    }
    assert_eq!(names(folder.path()), ["full", "null"]);
}

#[test]
fn a_pipe_gets_everything_and_one_without_a_reader_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let refused = write_whole(&path, b"x").unwrap_err();
    assert_eq!(refused.to_string(), "no process reads this pipe");
    // Opened for both, a pipe has a reader at once; the other end then waits for the writer's end.
    let held = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let destination = Destination::check(&path).unwrap();
    let reader = fs::File::open(&path).unwrap();
    drop(held);
    let reading = std::thread::spawn(move || {
        let (mut reader, mut all) = (reader, Vec::new());
        reader.read_to_end(&mut all).unwrap();
        all
    });
    let content = vec![7; 200_000];
    let mut file = destination.begin().unwrap();
    file.write_all(&content).unwrap();
    drop(file.finish().unwrap());
    assert_eq!(reading.join().unwrap(), content);
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
}

#[test]
fn what_this_process_has_open_is_added_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "before\n").unwrap();
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    write_whole(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())), b"after\n").unwrap();
    (&file).write_all(b"last\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before\nafter\nlast\n");
    let (mut reader, writer) = io::pipe().unwrap();
    write_whole(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())), b"x").unwrap();
    drop(writer);
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    assert_eq!(all, "x");
}

#[test]
fn a_folder_an_absent_one_and_a_read_only_file_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |path: &Path| Destination::check(path).unwrap_err().kind();
    assert_eq!(kind(folder.path()), io::ErrorKind::IsADirectory);
    assert_eq!(kind(&folder.path().join("absent/file")), io::ErrorKind::NotFound);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(kind(&file.join("below")), io::ErrorKind::NotADirectory);
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn of_killed_processes_nothing_is_left_and_what_a_living_one_writes_stays() {
    let folder = tempfile::tempdir().unwrap();
    let Process { pid, start_ticks } = Process::this();
    let living = OutputFile::create(&folder.path().join("run.json")).unwrap();
    let own = names(folder.path()).remove(0);
    // The same number, another process; one of another container, which holds its file locked; and files of others.
    let dead = format!("{UNFINISHED}{pid}-{}-abc", start_ticks - 1);
    let elsewhere = format!("{UNFINISHED}4000000-1-abc");
    for name in [dead.as_str(), &elsewhere, ".linerate-x-1-abc", ".linerate-notes"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let locked = fs::File::open(folder.path().join(&elsewhere)).unwrap();
    locked.lock().unwrap();
    remove_leftovers(folder.path());
    let mut left = vec![own.as_str(), elsewhere.as_str(), ".linerate-x-1-abc", ".linerate-notes"];
    left.sort_unstable();
    assert_eq!(names(folder.path()), left);
    drop(living);
}

/// In the environment of the process that has a mount namespace of its own: its mount point.
const MOUNTED: &str = "SYS_TEST_FULL_DISK";

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let test = "output::tests::a_full_disk_leaves_the_old_file_and_nothing_else";
    let Ok(folder) = env::var(MOUNTED) else {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=64k none \"$0\" && touch \"$0/mounted\" && exec \"$@\"";
        let output = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", script])
            .arg(folder.path())
            .arg(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(MOUNTED, folder.path())
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        if !words.contains("running 1 test") {
            return testing::skip("a mount namespace needs CAP_SYS_ADMIN");
        }
        assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
        return;
    };
    let folder = Path::new(&folder);
    assert!(folder.join("mounted").exists());
    let path = folder.join("page.html");
    write_whole(&path, b"old").unwrap();
    let refused = write_whole(&path, &[b'x'; 200_000]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    // If the folder is not writable, the content is copied over: only once there is room.
    let mut copied = tempfile::tempfile_in(env::temp_dir()).unwrap();
    copied.write_all(&[b'x'; 200_000]).unwrap();
    assert_eq!(copy(copied, &path).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    let mut copied = tempfile::tempfile_in(env::temp_dir()).unwrap();
    copied.write_all(b"n").unwrap();
    copy(copied, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"n");
    assert_eq!(names(folder), ["mounted", "page.html"]);
}
