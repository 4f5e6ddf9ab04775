use super::*;

fn plan(change: impl FnOnce(&mut Fleet)) -> FleetPlan {
    let mut fleet = Fleet { flow_sets: 40, ..Fleet::default() };
    change(&mut fleet);
    fleet.plan().unwrap()
}

#[test]
fn every_field_is_a_documented_parameter() {
    let Value::Object(fields) = json!(Fleet::default()) else { panic!("a fleet is an object") };
    let mut documented: Vec<_> = FLEET_PARAMETERS.iter().map(|parameter| parameter.name).collect();
    documented.sort_unstable();
    assert_eq!(fields.keys().collect::<Vec<_>>(), documented);
}

#[test]
fn many_small_flows_need_little_more_than_an_even_spread() {
    let plan = plan(|fleet| fleet.flows = 1_000_000);
    let machines = plan.machines.unwrap();
    assert_eq!(plan.machines_if_even, 3);
    assert!((3..=4).contains(&machines), "{machines}");
    assert!(plan.overload_probability <= 0.1, "{}", plan.overload_probability);
}

#[test]
fn few_flows_spread_badly_and_need_more_machines() {
    let needed = |flows| plan(|fleet| (fleet.flows, fleet.flood_pps) = (flows, 1e9)).machines.unwrap();
    let [few, some, many] = [needed(2_000), needed(20_000), needed(400_000)];
    assert!(few > some && some > many, "{few} {some} {many}");
}

#[test]
fn heavy_hitters_need_more_machines_until_one_flow_is_too_much_for_a_core() {
    let with = |flows, ratio| plan(|fleet| (fleet.heavy_flows, fleet.heavy_ratio) = (flows, ratio));
    let none = plan(|_| {}).machines.unwrap();
    assert!(with(50, 0.5).machines.unwrap() > none);
    let hopeless = with(1, 0.5);
    assert_eq!((hopeless.machines, hopeless.bottleneck), (None, Bottleneck::HeavyFlow));
    assert!(hopeless.notes[0].contains("no number of machines"), "{:?}", hopeless.notes);
}

#[test]
fn the_first_bottleneck_is_the_smallest_limit() {
    let of = |change: fn(&mut Fleet)| plan(change).bottleneck;
    assert_eq!(of(|fleet| fleet.queue_pps = 1e6), Bottleneck::Core);
    assert_eq!(of(|fleet| (fleet.link_bps, fleet.queues) = (10_000_000_000, 8)), Bottleneck::Link);
    assert_eq!(of(|fleet| (fleet.pcie_generation, fleet.pcie_lanes) = (1, 4)), Bottleneck::Bus);
    assert_eq!(of(|fleet| fleet.cores = 2), Bottleneck::Core);
}

#[test]
fn more_machines_are_overloaded_less_often() {
    let plan = plan(|fleet| (fleet.flows, fleet.flood_pps) = (20_000, 1e9));
    let probabilities: Vec<f64> = plan.curve.iter().map(|point| point.overload_probability).collect();
    assert_eq!(probabilities[0], 1.0);
    assert!(probabilities.last().unwrap() <= &plan.overload_probability.max(0.05), "{probabilities:?}");
    assert!(plan.worst_machine_ratio > 1.0 && plan.worst_core_ratio > plan.worst_machine_ratio);
}

#[test]
fn a_given_number_of_machines_is_judged() {
    let judged = |machines| plan(|fleet| fleet.machines = Some(machines)).overload_probability;
    assert_eq!((judged(1), judged(30)), (1.0, 0.0));
}

#[test]
fn an_ecmp_table_with_few_buckets_is_uneven_by_itself() {
    let ratio = |buckets| {
        plan(|fleet| {
            fleet.machines = Some(48);
            fleet.ecmp_buckets = buckets;
        })
        .worst_machine_ratio
    };
    // 64 buckets over 48 machines: some get two, some one
    assert!(ratio(Some(64)) > 1.4 && ratio(None) < 1.2);
}

#[test]
fn a_plan_is_the_same_every_time_and_another_seed_differs_little() {
    let with = |seed| plan(|fleet| (fleet.seed, fleet.flood_pps) = (seed, 1e9));
    assert_eq!(with(1), with(1));
    let [a, b] = [with(1).machines.unwrap() as f64, with(2).machines.unwrap() as f64];
    assert!((a / b - 1.0).abs() < 0.25, "{a} {b}");
}

#[test]
fn contradictions_are_refused_together() {
    let refused = Fleet { flows: 0, queues: 0, heavy_flows: 3, ..Fleet::default() }.plan().unwrap_err();
    let text = refused.to_string();
    for name in ["flows:", "queues:", "heavy_flows:"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
}

#[test]
fn a_modelled_queue_s_capacity_is_what_its_core_takes() {
    let mut machine = Config::default();
    machine.set("path", "xdp-drop").unwrap();
    let capacity = queue_capacity_pps(&machine).unwrap();
    assert!((capacity / 10e6 - 1.0).abs() < 0.05, "{capacity}");
}

#[test]
fn a_plan_becomes_a_record() {
    let fleet = Fleet { flow_sets: 10, ..Fleet::default() };
    let start = Start {
        command: "model plan".into(),
        version: "test".into(),
        started_at: String::new(),
        origin: measure::Origin::Model,
        machine: measure::Machine::default(),
        asked: Default::default(),
    };
    let run = fleet.plan().unwrap().run(&fleet, start);
    assert_eq!(run.start.asked["flood_pps"], 300e6);
    assert!(run.end.points[0].values["machines"].as_u64().unwrap() >= 2);
    assert!(run.end.points.len() > 3);
}
