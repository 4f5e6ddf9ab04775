//! The search against simulated devices.

use proptest::prelude::*;

use super::*;

/// A device: its forwarding rate at a load, and whether a trial goes wrong by chance.
struct Device<F> {
    lost_ratio: F,
    /// The most that the generator before it can send.
    generator_pps: f64,
    trials: u32,
    measured_s: f64,
}

impl<F: FnMut(f64, f64) -> f64> Device<F> {
    fn new(lost_ratio: F) -> Self {
        Self { lost_ratio, generator_pps: f64::INFINITY, trials: 0, measured_s: 0.0 }
    }

    fn behind(self, generator_pps: f64) -> Self {
        Self { generator_pps, ..self }
    }

    fn measure(&mut self, load_pps: f64, duration_s: f64) -> Measured {
        self.trials += 1;
        self.measured_s += duration_s;
        let scheduled = (load_pps * duration_s).round() as u64;
        let sent = (load_pps.min(self.generator_pps) * duration_s).round() as u64;
        let ratio = (self.lost_ratio)(sent as f64 / duration_s, duration_s).clamp(0.0, 1.0);
        Measured { duration_s, scheduled, sent, lost: (sent as f64 * ratio).round() as u64 }
    }

    fn search(&mut self, plan: SearchPlan) -> Vec<Outcome> {
        let mut search = Search::new(plan).unwrap();
        while let Step::Measure { load_pps, duration_s } = search.next() {
            assert_eq!(
                search.next(),
                Step::Measure { load_pps, duration_s },
                "calling it again changes nothing"
            );
            let measured = self.measure(load_pps, duration_s);
            search.record(load_pps, duration_s, measured);
        }
        search.outcomes()
    }
}

fn plan() -> SearchPlan {
    SearchPlan::up_to(1e7)
}

/// A tail drop at `limit_pps`.
fn hard(limit_pps: f64) -> impl FnMut(f64, f64) -> f64 {
    move |load, _| (1.0 - limit_pps / load).max(0.0)
}

fn lower(outcome: &Outcome) -> f64 {
    outcome.lower.as_ref().unwrap().load_pps
}

#[test]
fn a_hard_limit_is_found_to_within_the_width() {
    for limit in [20_000.0, 333_333.0, 2e6, 9.9e6] {
        let mut device = Device::new(hard(limit));
        let outcomes = device.search(plan());
        let [pdr, ndr] = outcomes.as_slice() else { panic!("two goals") };
        assert_eq!((pdr.goal.name.as_str(), ndr.goal.name.as_str()), ("PDR", "NDR"));
        assert_eq!((pdr.limit, ndr.limit), (LimitedBy::Loss, LimitedBy::Loss));
        assert!(lower(ndr) <= limit && lower(ndr) >= limit * 0.985, "{} of {limit}", lower(ndr));
        assert!(lower(pdr) <= limit * 1.0051 && lower(pdr) >= limit * 0.985);
        assert_eq!(ndr.conditional_throughput_pps, Some(lower(ndr)));
        assert!(pdr.conditional_throughput_pps.unwrap() >= lower(pdr) * 0.995);
        assert!(ndr.upper.as_ref().unwrap().load_pps > limit);
        assert!(device.trials < 60, "{} trials for {limit}", device.trials);
    }
}

#[test]
fn a_search_takes_less_than_a_bisection_with_final_trials_would() {
    let mut device = Device::new(hard(333_333.0));
    let goal = Goal { initial_duration_s: 1.0, final_duration_s: 60.0, duration_sum_s: 60.0, ..Goal::ndr() };
    device.search(SearchPlan { goals: vec![goal], ..plan() });
    // 10 Mpps down to 1 % by halving: log2(10 000 000 / 3 333) = 12 trials of 60 s.
    assert!(device.measured_s < 6.0 * 60.0, "{} s", device.measured_s);
}

#[test]
fn a_search_that_begins_near_the_answer_takes_fewer_trials_and_finds_the_same() {
    // It forwards nothing under overload, so the rate it forwarded is no guide.
    let livelock = |limit: f64| move |load: f64, _: f64| if load > limit { 1.0 } else { 0.0 };
    let trials = |limit: f64, first_pps| {
        let mut device = Device::new(livelock(limit));
        let outcomes = device.search(SearchPlan { first_pps, ..plan() });
        let ndr = lower(outcomes.last().unwrap());
        assert!(ndr <= limit && ndr >= limit * 0.985, "{ndr} of {limit} from {first_pps:?}");
        device.trials
    };
    for limit in [20_000.0, 333_333.0, 9.9e6] {
        assert!(trials(limit, Some(limit)) < trials(limit, None));
        // A device that collapses under overload reveals too little, one that buffers reveals too much.
        for believed in [limit / 3.0, limit * 3.0] {
            trials(limit, Some(believed));
        }
    }
}

#[test]
fn a_shortfall_within_the_accuracy_asked_for_voids_no_trial() {
    // Every trial misses half a per cent, as on a machine that loses CPU time to other guests.
    let mut short = Device::new(hard(400e3));
    let mut search = Search::new(SearchPlan { shortfall_ratio: 0.006, ..plan() }).unwrap();
    while let Step::Measure { load_pps, duration_s } = search.next() {
        let measured = short.measure(load_pps * 0.995, duration_s);
        search.record(
            load_pps,
            duration_s,
            Measured { scheduled: (load_pps * duration_s) as u64, ..measured },
        );
    }
    assert!(short.trials < 60, "{} trials", short.trials);
    for outcome in search.outcomes() {
        assert_eq!(outcome.limit, LimitedBy::Loss);
        assert!((lower(&outcome) / 400e3 - 1.0).abs() < 0.02, "{}", lower(&outcome));
    }
}

#[test]
fn a_loss_that_falls_slowly_is_left_behind_in_growing_steps() {
    // A receiver that a busy machine interrupts: a few packets in a thousand at any load above a quarter of a million.
    let mut device =
        Device::new(|load: f64, _| if load > 250e3 { 0.002 + 0.01 * (load / 430e3 - 0.58) } else { 0.0 });
    let goal = Goal { width_ratio: 0.02, ..Goal::ndr() };
    let outcomes = device.search(SearchPlan { goals: vec![goal], ..SearchPlan::up_to(430e3) });
    assert!((lower(&outcomes[0]) / 250e3 - 1.0).abs() < 0.02, "{}", lower(&outcomes[0]));
    assert!(device.trials < 25, "{} trials", device.trials);
}

#[test]
fn a_noisy_limit_is_still_found_and_the_exceed_ratio_rides_over_it() {
    // One trial in five loses a few packets at any load, as a machine with other work does.
    let (limit, mut random) = (500_000.0, fastrand::Rng::with_seed(7));
    let noisy = move |load: f64, _| {
        let hiccup = if random.f64() < 0.2 { 1e-4 } else { 0.0 };
        let limit = limit * (1.0 + 0.01 * (random.f64() - 0.5));
        (1.0 - limit / load).max(0.0) + hiccup
    };
    let outcomes = Device::new(noisy).search(plan());
    for outcome in &outcomes {
        assert_eq!(outcome.limit, LimitedBy::Loss, "{outcome:?}");
        assert!((lower(outcome) / limit - 1.0).abs() < 0.04, "{} {}", outcome.goal.name, lower(outcome));
    }
}

#[test]
fn a_slow_leak_is_too_much_for_ndr_and_passes_pdr() {
    // One packet in a thousand is lost at every load: no load is free of loss.
    let outcomes = Device::new(|load: f64, _| 0.001 + (1.0 - 400_000.0 / load).max(0.0)).search(plan());
    assert!((lower(&outcomes[0]) / 400_000.0 - 1.0).abs() < 0.02);
    assert_eq!((outcomes[1].limit, &outcomes[1].lower), (LimitedBy::MinLoad, &None));
    assert_eq!(outcomes[1].conditional_throughput_pps, None);
}

#[test]
fn a_leak_that_only_long_trials_show_is_found() {
    // A buffer hides the overload of short trials: a trial of a quarter of a second loses nothing up to twice the rate.
    let leak = |load: f64, duration_s: f64| {
        let limit = if duration_s < 1.0 { 800_000.0 } else { 400_000.0 };
        (1.0 - limit / load).max(0.0)
    };
    for outcome in Device::new(leak).search(plan()) {
        assert!((lower(&outcome) / 400_000.0 - 1.0).abs() < 0.02, "{}", lower(&outcome));
    }
}

#[test]
fn a_device_that_loses_less_at_higher_loads_is_not_credited_with_them() {
    // Loss between 200 and 250 kpps, none from there to 600 kpps: interrupt moderation can look like that.
    let inverted =
        |load: f64, _| if (200e3..250e3).contains(&load) { 0.02 } else { (1.0 - 600e3 / load).max(0.0) };
    let mut search = Search::new(SearchPlan { goals: vec![Goal::ndr()], ..plan() }).unwrap();
    let mut device = Device::new(inverted);
    for load_pps in [230e3, 400e3] {
        for _ in 0..3 {
            let measured = device.measure(load_pps, 1.0);
            search.record(load_pps, 1.0, measured);
        }
    }
    while let Step::Measure { load_pps, duration_s } = search.next() {
        let measured = device.measure(load_pps, duration_s);
        search.record(load_pps, duration_s, measured);
    }
    let outcome = &search.outcomes()[0];
    assert!(lower(outcome) < 200e3 && lower(outcome) > 195e3, "{}", lower(outcome));
    assert!(outcome.upper.as_ref().unwrap().load_pps >= 200e3);
}

#[test]
fn a_generator_that_falls_short_is_the_limit_and_never_the_device_s_loss() {
    for outcome in Device::new(hard(1e9)).behind(300e3).search(plan()) {
        assert!(lower(&outcome) <= 300e3 && lower(&outcome) > 300e3 * 0.98, "{}", lower(&outcome));
        assert_eq!(outcome.upper, None, "no load that was offered lost anything");
        assert_eq!(outcome.limit, LimitedBy::Generator);
    }
    let outcomes = Device::new(hard(200e3)).behind(300e3).search(plan());
    assert!(outcomes.iter().all(|outcome| outcome.limit == LimitedBy::Loss));
}

#[test]
fn a_generator_that_cannot_send_at_all_ends_the_search() {
    let mut device = Device::new(hard(1e9)).behind(10.0);
    let outcomes = device.search(plan());
    assert!(device.trials < 20);
    assert!(outcomes.iter().all(|outcome| outcome.lower.is_none() && outcome.limit == LimitedBy::Generator));
}

#[test]
fn what_passes_at_the_highest_load_is_limited_by_it() {
    for outcome in Device::new(|_, _| 0.0).search(SearchPlan::up_to(5e5)) {
        assert_eq!((lower(&outcome), outcome.limit, outcome.upper), (5e5, LimitedBy::MaxLoad, None));
    }
}

#[test]
fn a_search_that_is_stopped_says_what_it_knows() {
    let mut search = Search::new(plan()).unwrap();
    let Step::Measure { load_pps, duration_s } = search.next() else { panic!("there is work") };
    search.record(load_pps, duration_s, Measured { duration_s, scheduled: 100, sent: 100, lost: 100 });
    assert!(search.outcomes().iter().all(|outcome| outcome.limit == LimitedBy::Unfinished));
}

#[test]
fn a_search_that_cannot_be_is_refused_in_words() {
    let problems = Search::new(SearchPlan { min_pps: 10.0, max_pps: 1.0, ..plan() }).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "goal of any kind: the lowest load must be at least 1 pps, and at most the highest"
    );
    assert!(Search::new(SearchPlan { max_pps: f64::NAN, ..plan() }).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_ends_and_its_bounds_are_in_order_whatever_the_device_does(
        seed in any::<u64>(),
        exceed_ratio in prop::sample::select(vec![0.0, 0.2, 0.5]),
        lossiness in 0.0f64..1.0,
        falls_short in 0.0f64..0.5,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let goals = [Goal::ndr(), Goal::pdr()].map(|goal| Goal { exceed_ratio, ..goal }).to_vec();
        let plan = SearchPlan { goals, ..plan() };
        let mut search = Search::new(plan.clone()).unwrap();
        while let Step::Measure { load_pps, duration_s } = search.next() {
            prop_assert!((plan.min_pps..=plan.max_pps).contains(&load_pps));
            let scheduled = (load_pps * duration_s) as u64;
            let sent = if random.f64() < falls_short { scheduled / 2 } else { scheduled };
            let lost = if random.f64() < lossiness { random.u64(0..=sent) } else { 0 };
            search.record(load_pps, duration_s, Measured { duration_s, scheduled, sent, lost });
        }
        prop_assert!(search.trials() <= plan.most_trials);
        for outcome in search.outcomes() {
            if let (Some(lower), Some(upper)) = (&outcome.lower, &outcome.upper) {
                prop_assert!(lower.load_pps < upper.load_pps);
            }
        }
    }
}
