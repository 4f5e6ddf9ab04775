//! The arguments that `linerate bench --exact` passes to the ladders that it starts.

use std::ffi::OsString;

/// The arguments of `linerate bench` for the machine: those of the host's command line without the host's own options.
pub fn words_inside(words: &[OsString]) -> Vec<String> {
    without_ours(&["--duration", "100ms", "--trials", "1"], words)
}

/// The arguments of `linerate bench` for the same ladder on this machine: as in the emulated one, senders, receivers and
/// softirqs share a CPU.
pub fn words_beside(words: &[OsString], cpu: u32) -> Vec<String> {
    let cpu = cpu.to_string();
    let defaults = ["--duration", "500ms", "--trials", "3", "--threaded-napi=off"];
    without_ours(&[&defaults[..], &["--tx-cpus", &cpu, "--rx-cpus", &cpu]].concat(), words)
}

/// The defaults come first, so that the user's own options override them.
fn without_ours(defaults: &[&str], words: &[OsString]) -> Vec<String> {
    /// Options of the host, and whether a value follows.
    const OURS: [(&str, bool); 13] = [
        ("--exact", false),
        ("--beside-ns", false),
        ("--kernel", true),
        ("--kernel-image", true),
        ("--modules", true),
        ("--card", true),
        ("--save", true),
        ("--no-save", false),
        ("--json", false),
        ("--json-stream", false),
        ("--dry-run", false),
        ("--interval", true),
        ("--max-loss", true),
    ];
    let mut inside: Vec<String> =
        ["--json", "--no-save"].iter().chain(defaults).map(ToString::to_string).collect();
    let mut words = words.iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        match OURS.iter().find(|(ours, _)| *ours == name) {
            Some((_, true)) if !word.contains('=') => drop(words.next()),
            Some(_) => {}
            None => inside.push(word),
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_gets_the_user_s_options_without_those_of_the_count() {
        let words = "--exact --beside-ns --tx udp --kernel 6.1,latest --save=x.json --json --trials 2 --interval 1s \
                     --rx xdp";
        let words: Vec<OsString> = words.split_ascii_whitespace().map(OsString::from).collect();
        let inside = words_inside(&words).join(" ");
        assert_eq!(inside, "--json --no-save --duration 100ms --trials 1 --tx udp --trials 2 --rx xdp");
        let beside = words_beside(&words, 3).join(" ");
        let on_one_cpu = "--duration 500ms --trials 3 --threaded-napi=off --tx-cpus 3 --rx-cpus 3";
        assert_eq!(beside, format!("--json --no-save {on_one_cpu} --tx udp --trials 2 --rx xdp"));
    }
}
