//! What must not be left after the last command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use testing::in_namespace;

use crate::commands::Place;

impl Place {
    /// What is left after the next commands started, which remove what killed ones left behind.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let after = self.folder.join("saved/after.json");
        let after = after.to_str().unwrap();
        // Twice: the first undoes what killed commands left behind, the second what apply changed.
        for args in [
            &["nic", "restore"][..],
            &["nic", "restore"],
            &["bench", "--tx", "udp", "--rx", "udp", "--duration", "200ms", "--plain", "--save", after],
        ] {
            let output = self.command(&self.hosts.a, args).output().expect("the command starts");
            if !output.status.success() {
                faults.push(format!(
                    "afterwards {}: {}",
                    args.join(" "),
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
        for part in ["run", "state", "tmp", "full"] {
            let left = files(&self.folder.join(part));
            faults.extend(left.iter().map(|file| format!("left: {}", file.display())));
        }
        let is_odd = |file: &&PathBuf| {
            // Journals of killed runs are for `bench --resume`.
            !file.extension().is_some_and(|extension| extension == "json")
                && !file.to_string_lossy().ends_with(".json.partial")
        };
        faults.extend(
            files(&self.folder.join("saved"))
                .iter()
                .filter(is_odd)
                .map(|file| format!("left: {}", file.display())),
        );
        for (host, expected) in [(&self.hosts.a, ["lo", "va"]), (&self.hosts.b, ["lo", "vb"])] {
            let mut command = Command::new("ip");
            command.args(["-brief", "link"]);
            let output = in_namespace(&mut command, host).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let names: Vec<_> = text.lines().filter_map(|line| line.split([' ', '@']).next()).collect();
            if names != expected {
                faults.push(format!("left interfaces: {names:?}"));
            }
            if text.contains("xdp") {
                faults.push(format!("left a program: {text}"));
            }
        }
        faults.extend(processes(&self.folder));
        faults
    }
}

/// Regular files, sockets and so on, but not folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Processes whose temporary files are in the folder, which hold namespaces too.
fn processes(folder: &Path) -> Vec<String> {
    let mark = format!("TMPDIR={}", folder.join("tmp").display());
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        fs::read(path.join("environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
    };
    let name = |path: PathBuf| {
        format!(
            "left process: {} {}",
            path.display(),
            fs::read_to_string(path.join("cmdline")).unwrap_or_default()
        )
    };
    entries.filter(is_ours).map(name).collect()
}
