//! A screen on a real pseudo-terminal (`script`, util-linux): what it leaves behind, however it ends.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use view::{Hub, Screen, Snapshot};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
/// In the environment of a process that the tests below run on a terminal: what it does.
const CASE: &str = "VIEW_TEST_CASE";

/// What one of the cases below does on a terminal of 80×24, with its modes before and after; `drive` gets the keyboard and
/// the process's number once the screen is on.
fn on_a_terminal(case: &str, drive: impl FnOnce(&mut dyn Write, &str)) -> String {
    let me = env::current_exe().unwrap();
    let modes = "echo modes=$(stty -g)";
    // Ctrl-C reaches the shell too, which must not end of it.
    let inner = format!(
        "trap : INT; stty cols 80 rows 24; {modes}; {} --exact on_a_terminal_of_another_test --nocapture; echo status=$?; {modes}",
        me.display()
    );
    let mut script = Command::new("script")
        .args(["-qfec", &inner, "/dev/null"])
        .env("TERM", "xterm")
        .env(CASE, case)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script of util-linux");
    let mut keyboard = script.stdin.take().unwrap();
    let mut output = script.stdout.take().unwrap();
    let (send, bytes) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            if send.send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    let mut drive = Some(drive);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match bytes.recv_timeout(Duration::from_millis(200)) {
            Ok(more) => text += &String::from_utf8_lossy(&more),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(_) => assert!(Instant::now() < until, "it does not end: {text:?}"),
        }
        // Blanks that are there already are not written.
        if text.contains("title")
            && let Some(drive) = drive.take()
        {
            let pid = text.split("pid=").nth(1).unwrap().split(';').next().unwrap().to_owned();
            drive(&mut keyboard, &pid);
        }
    }
    script.wait().unwrap();
    reader.join().unwrap();
    assert!(drive.is_none(), "the screen never came: {text:?}");
    text
}

/// The terminal has its modes again, and its main screen.
fn check_restored(text: &str) {
    let modes: Vec<&str> =
        text.lines().filter_map(|line| line.split("modes=").nth(1)).map(str::trim).collect();
    assert_eq!(modes.len(), 2, "{text:?}");
    assert_eq!(modes[0], modes[1], "{text:?}");
    assert_eq!(text.matches(ENTER).count(), 1, "{text:?}");
    assert_eq!(text.matches(LEAVE).count(), 1, "{text:?}");
    assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is there: {text:?}");
}

fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
}

/// A screen until a signal or a key ends it; `then` runs while it is on.
fn screen(then: impl FnOnce()) {
    sys::signal::catch().unwrap();
    print!("pid={};", std::process::id());
    std::io::stdout().flush().unwrap();
    let hub = Hub::new();
    hub.publish(Snapshot { command: "test".into(), title: "the title".into(), ..Snapshot::default() });
    let screen = Screen::open(&hub).expect("a terminal");
    eprintln!("printed meanwhile");
    let until = Instant::now() + Duration::from_secs(30);
    while sys::signal::caught() == 0 {
        assert!(Instant::now() < until, "no signal and no key came");
        thread::sleep(Duration::from_millis(5));
    }
    then();
    drop(screen);
}

#[test]
fn on_a_terminal_of_another_test() {
    match env::var(CASE).as_deref() {
        Ok("ends") => screen(|| ()),
        Ok("panics") => screen(|| panic!("on purpose")),
        Ok("waits") => screen(|| thread::sleep(Duration::from_secs(30))),
        _ => {}
    }
}

#[test]
fn a_key_asks_for_the_end_and_what_was_printed_comes_then() {
    let text = on_a_terminal("ends", |keyboard, _| keyboard.write_all(b"pq").unwrap());
    check_restored(&text);
    let after = text.split(LEAVE).nth(1).unwrap();
    assert!(after.contains("printed meanwhile"), "{text:?}");
    assert!(after.contains("status=0"), "{text:?}");
}

#[test]
fn ctrl_c_is_a_signal_on_a_screen_too() {
    let text = on_a_terminal("ends", |keyboard, _| keyboard.write_all(b"\x03").unwrap());
    check_restored(&text);
    assert!(text.contains("status=0"), "{text:?}");
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_read() {
    let text = on_a_terminal("panics", |_, pid| signal(pid, "TERM"));
    check_restored(&text);
    assert!(text.split(LEAVE).nth(1).unwrap().contains("on purpose"), "{text:?}");
}

#[test]
fn a_second_signal_ends_the_process_and_gives_the_terminal_back() {
    let text = on_a_terminal("waits", |_, pid| {
        signal(pid, "TERM");
        signal(pid, "TERM");
        // Signals that come together are one.
        while signal_if_there(pid) {
            thread::sleep(Duration::from_millis(50));
        }
    });
    check_restored(&text);
    assert!(text.contains("status=143") || text.contains("Terminated"), "{text:?}");
}

/// Sends another one while the process lives.
fn signal_if_there(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let lives = !state.is_empty() && !state.contains(") Z ");
    lives
        && Command::new("kill")
            .args(["-TERM", pid])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|done| done.success())
}

#[test]
fn without_a_terminal_there_is_no_screen() {
    // `setsid` gives a session without a terminal.
    let me = env::current_exe().unwrap();
    let mut child = Command::new("setsid")
        .args(["--wait", me.to_str().unwrap(), "--exact", "on_a_terminal_of_another_test", "--nocapture"])
        .env(CASE, "ends")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    assert!(!child.wait().unwrap().success());
    assert!(lines.iter().any(|line| line.contains("a terminal")), "{lines:?}");
}
