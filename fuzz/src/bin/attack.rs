//! Drives the fuzz targets on a stable compiler: `attack [--seconds N] [--seed N] [TARGET...]`.
//!
//! Inputs are mutated from committed seeds; those that make a target slower to refuse than any before join them. An
//! input that panics, or runs longer than ten seconds, is written to `fuzz/artifacts/TARGET/`, and the status is 1.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bodies::{
    mutate::mutate,
    targets::{TARGETS, Target},
};

const SLOWEST: Duration = Duration::from_secs(10);
/// The number of tried inputs of a target that is over.
const ENDED: u64 = u64::MAX;
/// Records are this long.
const LONGEST_SEED: usize = 256 << 10;

fn main() {
    let (mut seconds, mut seed, mut names) = (60, fastrand::u64(..), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match argument.as_str() {
            "--seconds" => seconds = number().unwrap_or_else(usage),
            "--seed" => seed = number().unwrap_or_else(usage),
            _ => names.push(argument),
        }
    }
    if names.iter().any(|name| TARGETS.iter().all(|target| target.name != name)) {
        usage::<()>();
    }
    // Messages of panics come once more, with the input.
    let is_chosen = |target: &&Target| names.is_empty() || names.iter().any(|name| name == target.name);
    let failed = TARGETS.iter().filter(is_chosen).filter(|target| !attack(target, seconds, seed)).count();
    process::exit(i32::from(failed > 0));
}

fn usage<T>() -> T {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!("usage: attack [--seconds N] [--seed N] [TARGET...], of: {}", names.join(", "));
    process::exit(2)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder above fuzz").to_owned()
}

/// Whether the target withstood every input.
fn attack(target: &Target, seconds: u64, seed: u64) -> bool {
    let mut seeds = target.seeds(&repository()).expect("seeds can be read");
    assert!(!seeds.is_empty(), "{} has seeds", target.name);
    let mut rng = fastrand::Rng::with_seed(seed);
    let since = Instant::now();
    let tried = Arc::new(AtomicU64::new(0));
    let current = Arc::new(Mutex::new(Vec::new()));
    watch(target.name, &tried, &current);
    let fails = |tried: &AtomicU64| {
        println!("{}: --seed {seed}", target.name);
        tried.store(ENDED, Relaxed);
        false
    };
    for input in seeds.clone() {
        if !withstands(target, &input, &current) {
            return fails(&tried);
        }
        tried.fetch_add(1, Relaxed);
    }
    const MOST: usize = 512;
    let committed = seeds.len();
    let mut slowest = Duration::ZERO;
    while since.elapsed().as_secs() < seconds {
        let input = mutate(target.shape, &seeds, &mut rng);
        let began = Instant::now();
        if !withstands(target, &input, &current) {
            return fails(&tried);
        }
        tried.fetch_add(1, Relaxed);
        let took = began.elapsed();
        // What gets far takes long; later generations start from there.
        if (took > slowest || rng.u16(..) == 0) && input.len() < LONGEST_SEED {
            slowest = slowest.max(took);
            if seeds.len() < committed + MOST {
                seeds.push(input);
            } else {
                seeds[committed + rng.usize(0..MOST)] = input;
            }
        }
    }
    let tried = tried.swap(ENDED, Relaxed);
    println!("{}: {tried} inputs in {seconds} s, {} seeds, --seed {seed}", target.name, seeds.len());
    true
}

fn withstands(target: &Target, input: &[u8], current: &Mutex<Vec<u8>>) -> bool {
    input.clone_into(&mut current.lock().expect("no holder panics"));
    let body = AssertUnwindSafe(|| (target.body)(input));
    let is_well = panic::catch_unwind(body).is_ok();
    if !is_well {
        keep(target.name, input);
    }
    is_well
}

fn keep(name: &str, input: &[u8]) {
    let folder = repository().join("fuzz/artifacts").join(name);
    let file = folder.join(format!("crash-{:016x}", fastrand::u64(..)));
    fs::create_dir_all(&folder).and_then(|()| fs::write(&file, input)).expect("the input can be kept");
    println!("{name}: fails on {}", file.strip_prefix(repository()).unwrap_or(&file).display());
}

/// Ends the program when one input takes too long.
fn watch(name: &'static str, tried: &Arc<AtomicU64>, current: &Arc<Mutex<Vec<u8>>>) {
    let (tried, current) = (tried.clone(), current.clone());
    thread::spawn(move || {
        loop {
            let before = tried.load(Relaxed);
            thread::sleep(SLOWEST);
            match tried.load(Relaxed) {
                ENDED => return,
                now if now == before => break,
                _ => {}
            }
        }
        println!("{name}: one input runs longer than {} s", SLOWEST.as_secs());
        keep(name, &current.lock().expect("no holder panics"));
        process::exit(1);
    });
}
