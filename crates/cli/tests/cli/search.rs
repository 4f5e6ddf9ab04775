//! `linerate bench ndr`, sweeps, and resumed runs.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json as value};

use crate::support::{is_root, json, linerate, own_folder, run, skip, wait};

fn file(name: &str) -> PathBuf {
    own_folder().join(name)
}

const SHORT: [&str; 6] = [
    "--final-duration=100ms",
    "--initial-duration=50ms",
    "--duration-sum=200ms",
    "--width=20%",
    "--omit=10ms",
    "--no-pin",
];

#[test]
fn a_search_reports_bounds_and_limits_and_every_ledger_closes() {
    let args = [
        "bench",
        "ndr",
        "--tx=udp",
        "--rx=udp",
        "--no-save",
        "--json",
        "--max-load=20kpps",
        "--min-load=1kpps",
    ];
    let tests = ["--tests=latency,frame-loss,back-to-back", "--repetitions=1", "--longest-burst=20ms"];
    let (_, run) = json(&[&args[..], &tests, &SHORT].concat());
    let trials = run["end"]["trials"].as_array().unwrap();
    for trial in trials {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
    let found = &run["end"]["throughput"][0];
    let goals = found["goals"].as_array().unwrap();
    assert_eq!(goals.iter().map(|goal| goal["goal"].as_str().unwrap()).collect::<Vec<_>>(), ["PDR", "NDR"]);
    for goal in goals {
        let (lower, upper) = (goal["lower_pps"].as_f64(), goal["upper_pps"].as_f64());
        assert!(lower.is_none_or(|lower| (1e3..=2e4).contains(&lower)), "{goal:#}");
        assert!(lower.zip(upper).is_none_or(|(lower, upper)| lower < upper), "{goal:#}");
        assert_ne!(goal["limit"], "unfinished", "{goal:#}");
        assert_eq!(goal["at_upper"].is_object(), upper.is_some(), "{goal:#}");
        for index in goal["trials"].as_array().unwrap() {
            let asked = trials[index.as_u64().unwrap() as usize]["asked_pps"].as_f64();
            assert!(asked == lower || asked == upper, "the trials named are those at the bounds");
        }
    }
    assert!(found["frame_loss"].as_array().unwrap().len() >= 2);
    let burst = &found["back_to_back"]["packets"];
    assert_eq!(burst.as_array().unwrap().len(), 1, "{found:#}");
}

#[test]
fn each_side_s_cpu_time_is_reported_if_its_workers_have_cpus_of_their_own() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("needs two CPUs");
    }
    let args = ["bench", "--tx=udp", "--rx=udp", "--duration=100ms", "--trials=1", "--no-save", "--json"];
    let (_, run) = json(&[&args[..], &["--sweep=mtu=1500,9000"]].concat());
    for point in run["end"]["points"].as_array().unwrap() {
        for side in ["tx", "rx"] {
            let share = |part: &str| point[format!("{side}_cpu_{part}_ratio")].as_f64().unwrap();
            let all: f64 = ["user", "system", "irq", "softirq"].map(share).iter().sum();
            assert!((0.0..=1.05).contains(&all), "{point:#}");
        }
    }
}

#[test]
fn every_axis_can_be_swept() {
    if !is_root() {
        return skip("needs root: SO_BUSY_POLL is for CAP_NET_ADMIN");
    }
    let args = ["bench", "--duration=10ms", "--trials=1", "--no-save", "--json"];
    for (axis, values) in [
        ("busy-poll", 2),
        ("offload=no-sg,none,checksum,tso,gro,all", 6),
        ("mtu=1500,9000", 2),
        ("batch-size=1,64", 2),
        ("threads=1,2", 2),
        ("tx=udp,udp+gso", 2),
        ("rx=udp,udp+gro", 2),
        ("spin=on,off", 2),
        ("queues=1,4", 2),
    ] {
        let axis = if axis.contains('=') { axis.to_owned() } else { format!("{axis}=0,50") };
        let name = axis.split('=').next().unwrap();
        let sides = ["--tx=udp", "--rx=udp"].into_iter().filter(|side| !side.contains(&format!("--{name}=")));
        let all: Vec<&str> = args.into_iter().chain(["--sweep", &axis]).chain(sides).collect();
        let (_, run) = json(&all);
        let points = run["end"]["points"].as_array().unwrap();
        assert_eq!(points.len(), values, "{axis}: {points:?}");
        for trial in run["end"]["trials"].as_array().unwrap() {
            assert_eq!(trial["ledger"]["unexplained"], 0, "{axis} {trial:#}");
            if name == "busy-poll" {
                let asked = &trial["parameters"]["busy_poll"];
                assert_eq!(&trial["rx"]["options"]["busy_poll_micros"], asked, "{trial:#}");
            }
        }
    }
}

#[test]
fn a_sweep_has_every_combination_as_a_point_in_random_order() {
    let args =
        ["bench", "--tx=udp", "--rx=udp", "--duration=30ms", "--trials=2", "--no-save", "--json", "--no-pin"];
    let sweep = ["--sweep", "frame-size=64,512,1518", "--sweep", "threaded-napi=on,off"];
    let (_, run) = json(&[&args[..], &sweep].concat());
    let points = run["end"]["points"].as_array().unwrap();
    let parameters: Vec<(u64, &str)> = points
        .iter()
        .map(|point| (point["frame_size"].as_u64().unwrap(), point["threaded_napi"].as_str().unwrap()))
        .collect();
    assert_eq!(parameters, [(64, "off"), (64, "on"), (512, "off"), (512, "on"), (1518, "off"), (1518, "on")]);
    for point in points {
        assert_eq!((&point["trials"], &point["tx"]), (&value!(2), &value!("udp")));
        let of = |name: &str| point[name].as_f64().unwrap();
        assert!(of("delivered_pps_low") <= of("delivered_pps") * 1.0001 && of("sent_pps") > 0.0, "{point:#}");
        assert!(
            point.get("tx_cpu_system_ratio").is_none(),
            "without CPUs of its own no side has a share of them"
        );
    }
    let trials = run["end"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 12);
    for trial in trials {
        assert_eq!(
            trial["parameters"]["frame_size"], trial["frame_size_bytes"],
            "the trial ran with its point's settings"
        );
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
    let order: Vec<&Value> = trials.iter().map(|trial| &trial["parameters"]).collect();
    assert_ne!(order[..6], order[6..], "each round has an order of its own");
}

/// Starts a sweep, kills it once its journal holds `trials` of them, and returns the journal.
fn killed_after(trials: usize, args: &[&str], saved: &Path) -> Value {
    let mut all = args.to_vec();
    all.extend(["--save", saved.to_str().unwrap()]);
    let mut child = linerate(&all).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    // The next trial is announced after the last one is in the journal.
    let mut announced = stderr.lines().map_while(Result::ok).filter(|line| line.starts_with("trial "));
    assert!(announced.nth(trials).is_some(), "the sweep gets that far");
    child.kill().unwrap();
    let unfinished = format!(".linerate-{}-", child.id());
    wait(&mut child);
    let folder = fs::read_dir(saved.parent().unwrap()).unwrap().flatten();
    let mut names = folder.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(!names.any(|name| name.starts_with(&unfinished)), "only the journal is left");
    assert!(!saved.exists(), "a run is complete or absent");
    let partial = fs::read_to_string(saved.with_extension("json.partial")).unwrap();
    serde_json::to_value(report::read_json(&partial).unwrap()).unwrap()
}

fn goes_on(args: &[&str], name: &str, trials: usize) -> Value {
    let saved = file(name);
    let partial = saved.with_extension("json.partial");
    let before = killed_after(trials, args, &saved);
    let (_, after) = json(&["bench", "--resume", partial.to_str().unwrap(), "--json"]);
    let kept = before["end"]["trials"].as_array().unwrap();
    assert!(kept.len() >= trials);
    assert_eq!(
        after["end"]["trials"].as_array().unwrap()[..kept.len()],
        kept[..],
        "nothing is measured again"
    );
    assert_eq!(after["start"]["asked"], before["start"]["asked"]);
    assert_eq!(after["end"]["interrupted"], false);
    assert!(!partial.exists() && saved.exists(), "the journal is removed when the run is saved");
    let (status, _, err) = run(&["bench", "--resume", saved.to_str().unwrap(), "--no-save"]);
    assert_eq!(status, 4);
    assert!(err.contains("that run is complete"), "{err}");
    after
}

#[test]
fn a_killed_sweep_resumes_where_it_stopped() {
    let args = [
        "bench",
        "--tx=udp",
        "--rx=udp",
        "--duration=50ms",
        "--trials=2",
        "--sweep=frame-size=64,128,256",
        "--no-pin",
    ];
    let run = goes_on(&args, "killed-sweep.json", 3);
    assert_eq!(run["end"]["trials"].as_array().unwrap().len(), 6);
    assert_eq!(run["end"]["points"].as_array().unwrap().len(), 3);
}

#[test]
fn a_killed_search_resumes_where_it_stopped() {
    let args = ["bench", "ndr", "--tx=udp", "--rx=udp", "--max-load=20kpps", "--min-load=10kpps"];
    let run = goes_on(&[&args[..], &SHORT].concat(), "killed-search.json", 3);
    assert_eq!(run["end"]["throughput"][0]["goals"].as_array().unwrap().len(), 2);
}

#[test]
fn a_killed_scenario_of_steps_resumes_where_it_stopped() {
    let scenario = file("killed-steps.toml");
    let step = |name: &str, what: &str| {
        format!("[[step]]\nname = \"{name}\"\n[step.{what}\ntx = \"udp\"\nrx = \"udp\"\n")
    };
    let figure = "[[published]]\nfigure = \"f\"\nvalue = 1\nunit = \"pps\"\nmetric = \"delivered_pps\"\nstep = \"z\"\n";
    // Neither in alphabetical order nor of one kind.
    let text = [
        "scenario = 1\n".to_owned(),
        step("z", "bench]\ntrials = 3"),
        step("m", "ndr]\nmax-load = \"20kpps\"\nmin-load = \"10kpps\"\ntests = \"none\""),
        step("a", "bench]\ntrials = 2"),
        figure.to_owned(),
    ];
    fs::write(&scenario, text.concat()).unwrap();
    let own =
        ["--duration=50ms", "--no-pin"].into_iter().chain(SHORT.into_iter().filter(|own| *own != "--no-pin"));
    let args: Vec<&str> = ["bench", scenario.to_str().unwrap()].into_iter().chain(own).collect();
    // In the middle of the second step.
    let run = goes_on(&args, "killed-steps.json", 4);
    let steps: Vec<&str> = run["end"]["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trial| trial["parameters"]["step"].as_str().unwrap())
        .collect();
    assert_eq!((&steps[..3], &steps[steps.len() - 2..]), (&["z"; 3][..], &["a"; 2][..]), "{steps:?}");
    assert!(steps[3..steps.len() - 2].iter().all(|step| *step == "m"), "{steps:?}");
    assert_eq!(run["end"]["points"].as_array().unwrap().len(), 2);
    assert!(run["end"]["figures"][0]["measured"].as_f64().unwrap() > 0.0);
}

#[test]
fn options_of_the_command_line_go_to_the_steps_that_have_them() {
    let plan = |own: &[&str]| json(&[&["bench", "pktgen-rx", "--dry-run"][..], own].concat()).1;
    let asked = plan(&["--trials", "7", "--width=9%", "--sweep", "duration=1s,2s"]);
    let steps = asked["steps"].as_array().unwrap();
    let of = |name: &str| &steps.iter().find(|step| step["step"] == name).unwrap()["plan"];
    assert_eq!((&of("table")["trials"], &of("cpus")["trials"]), (&value!(7), &value!(7)));
    assert_eq!(of("latency")["goals"][0]["width_ratio"], 0.09);
    assert_eq!(of("table")["points"].as_array().unwrap().len(), 2);
    // An option on the command line replaces its sweep.
    let asked = plan(&["--threads=2", "--frame-size=128"]);
    assert!(
        asked["steps"].as_array().unwrap().iter().all(|step| step["plan"]["points"]
            .as_array()
            .unwrap()
            .len()
            == 1),
        "{asked:#}"
    );
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let path = file("not-a-run.json");
    fs::write(&path, "{}").unwrap();
    let (status, _, err) = run(&["bench", "--resume", path.to_str().unwrap()]);
    assert_eq!(status, 4, "{err}");
    let (status, _, err) = run(&["bench", "--resume", "/nonexistent.json"]);
    assert_eq!(status, 4);
    assert!(err.contains("hint:  a killed run leaves FILE.partial"), "{err}");
}

#[test]
fn streams_conserve_bytes_with_every_way_of_sending_and_receiving() {
    let args =
        ["bench", "--tx=tcp,tcp+sendfile,tcp+zerocopy,tcp+file", "--rx=tcp,tcp+trunc", "--no-save", "--json"];
    let rest =
        ["--duration=250ms", "--trials=1", "--threads=2", "--send-size=20000", "--offload=all", "--no-pin"];
    let (_, run) = json(&[&args[..], &rest].concat());
    let trials = run["end"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 8);
    for trial in trials {
        let stream = &trial["stream"];
        let (sent, delivered) =
            (stream["sent_bytes"].as_u64().unwrap(), stream["delivered_bytes"].as_u64().unwrap());
        // A message cut short by the end of the trial does not count as sent.
        assert!(sent > 0 && delivered >= sent && delivered - sent < 2 * 20_000, "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        assert_eq!((&trial["sent"], &trial["loss_ratio"]), (&trial["delivered"], &value!(0.0)), "{trial:#}");
        assert!(stream["tx_packets"].as_u64().unwrap() > 0);
    }
}

#[test]
fn steps_make_one_record_with_the_published_figures() {
    let path = file("steps.toml");
    let text = "scenario = 1\n[[step]]\nname = \"udp\"\n[step.bench]\ntx = \"udp\"\nrx = \"udp\"\nsweep = \"mtu=1500,9000\"\npayload = 2000\n\
                [[step]]\nname = \"tcp\"\n[step.bench]\ntx = \"tcp\"\nrx = \"tcp\"\n\
                [[published]]\nfigure = \"UDP\"\nvalue = 1e3\nunit = \"pps\"\nmetric = \"delivered_pps\"\nstep = \"udp\"\nwhen = { mtu = 9000 }\n";
    fs::write(&path, text).unwrap();
    let (_, run) = json(&[
        "bench",
        path.to_str().unwrap(),
        "--duration=40ms",
        "--trials=2",
        "--no-save",
        "--json",
        "--no-pin",
    ]);
    let end = &run["end"];
    let steps: Vec<&str> =
        end["points"].as_array().unwrap().iter().map(|point| point["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["udp", "udp", "tcp"]);
    assert_eq!(end["trials"].as_array().unwrap().len(), 6);
    for trial in end["trials"].as_array().unwrap() {
        assert_eq!(trial["ledger"]["unexplained"], 0, "fragments and messages are accounted for: {trial:#}");
    }
    let figure = &end["figures"][0];
    assert_eq!((&figure["published"], &figure["measured_at"]), (&value!(1e3), &value!("udp, udp, udp")));
    assert_eq!(figure["measured"], end["points"][1]["delivered_pps"], "the figure's point");
}
