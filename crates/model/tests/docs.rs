//! The code computes the tables of docs/model.md, model-rdr.md and model-parameters.md. `make bless` (LINERATE_BLESS=1) rewrites them.

use std::{env, fs, path::Path};

use measure::PublishedFigure;
use model::{
    BufferPolicy, BusTrace, Calls, Config, CpuFunction, FITTED, FLEET_PARAMETERS, Fleet, Outcome, Parameter,
    RdrPoint, Scenario, Sweep, TRANSMIT_PARAMETERS, Transmit, parameters, rdr_figures, rdr_functions,
    rdr_sensitivity, simulate,
};
use serde_json::Value;

#[test]
fn the_figures_in_the_documentation_are_the_codes() {
    for (page, blocks) in pages() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let written = fs::read_to_string(&path).unwrap();
        let mut expected = written.clone();
        for (name, block) in blocks {
            expected = replace_block(&expected, page, name, &block);
        }
        if env::var_os("LINERATE_BLESS").is_some() {
            fs::write(&path, expected).unwrap();
            continue;
        }
        if let Some(line) = written.lines().zip(expected.lines()).position(|(a, b)| a != b) {
            let (a, b) = (written.lines().nth(line).unwrap(), expected.lines().nth(line).unwrap());
            panic!(
                "docs/{page} line {} is\n  {a}\nand the code says\n  {b}\n`make bless` rewrites it",
                line + 1
            );
        }
        assert_eq!(
            written.len(),
            expected.len(),
            "docs/{page} has other lines than the code: `make bless` rewrites it"
        );
    }
}

fn replace_block(text: &str, page: &str, name: &str, block: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("docs/{page} has no block {name}"));
    let (_, after) =
        rest.split_once(&end).unwrap_or_else(|| panic!("block {name} of docs/{page} has no end"));
    format!("{before}{begin}{block}{end}{after}")
}

type Block = (&'static str, String);

fn pages() -> [(&'static str, Vec<Block>); 3] {
    [
        (
            "model.md",
            vec![
                ("presets", presets()),
                ("experiments", experiments()),
                ("targets", targets()),
                ("plan", plan()),
            ],
        ),
        (
            "model-rdr.md",
            vec![
                ("figures", figures()),
                ("curve", curve()),
                ("trace", trace()),
                ("functions", functions()),
                ("calls", calls()),
                ("fitted", fitted()),
                ("sensitivity", sensitivity()),
            ],
        ),
        (
            "model-parameters.md",
            vec![
                ("parameters", parameter_table(parameters().map(|p| (p, p.value(&Config::default()))))),
                ("transmit-parameters", of_json(TRANSMIT_PARAMETERS, &Transmit::default())),
                ("plan-parameters", of_json(FLEET_PARAMETERS, &Fleet::default())),
            ],
        ),
    ]
}

fn table(head: &str, rows: impl IntoIterator<Item = String>) -> String {
    let columns = head.matches('|').count() - 1;
    let rule = format!("|{}", "---|".repeat(columns));
    [head.to_string(), rule].into_iter().chain(rows).map(|row| row + "\n").collect()
}

/// Three figures that count, and no more digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.4}"),
    }
}

fn figures() -> String {
    let rows = rdr_figures().unwrap().into_iter().map(|figure| {
        format!(
            "| {} | {} | {} | {} | {} | {} | {:+.1} % | {} |",
            figure.paper.figure,
            figure.paper.unit,
            figure.paper.place,
            if figure.is_derived() { "–".into() } else { short(figure.paper.value) },
            if figure.is_derived() { short(figure.paper.value) } else { "–".into() },
            short(figure.model),
            figure.deviation() * 100.0,
            figure.verdict()
        )
    });
    table("| figure | unit | where | published | derived | model | deviation | the model's value |", rows)
}

fn curve() -> String {
    let megabits = |payload, policy, name: &str| {
        let result = RdrPoint { payload, ports: 1, policy }.compute().unwrap();
        format!("{:.0}", result.point.values[name].as_f64().unwrap() / 1e6)
    };
    let rows = [46, 60, 80, 100, 130, 160, 190, 200, 220, 260, 500, 1000, 1500].map(|payload| {
        let [derived, received] = ["derived_received_bps", "received_bps"];
        let of = |policy, name| megabits(payload, policy, name);
        format!(
            "| {payload} | {} | {} | {} | {} | {} |",
            of(BufferPolicy::Realloc, "theory_bps"),
            of(BufferPolicy::Realloc, derived),
            of(BufferPolicy::Realloc, received),
            of(BufferPolicy::Recycle, derived),
            of(BufferPolicy::Recycle, received)
        )
    });
    table(
        "| payload, B | theory = sent, Mb/s | received, derived | received, model | recycling, derived | recycling, model |",
        rows,
    )
}

fn trace() -> String {
    let mut text = String::new();
    for (policy, name) in [(BufferPolicy::Realloc, "reallocating"), (BufferPolicy::Recycle, "recycling")] {
        text += &format!("```text\n{name}, 100 columns of 20 CLK\n");
        let trace = BusTrace::simulate(policy).unwrap();
        for (row, marks) in trace.axis(100, 20.0).iter().enumerate() {
            text += &format!("{:>6} {marks}\n", row * 2000);
        }
        text += "packet buffer, tenths of 48 KB, 100 columns of 400 CLK\n";
        for marks in trace.level_axis(100, 400.0) {
            text += &format!("       {marks}\n");
        }
        text += "```\n";
    }
    text
}

fn functions() -> String {
    let rows = rdr_functions().unwrap().into_iter().map(|share| {
        let per_cent = |ratio: f64| format!("{:.1}", ratio * 100.0);
        let [realloc, recycle] = [share.realloc_ratio, share.recycle_ratio].map(per_cent);
        format!("| {} | {realloc} | {recycle} |", share.function.name())
    });
    table("| function | reallocating, % | recycling, % |", rows)
}

fn calls() -> String {
    let rows = [160, 60, 20].map(|voice_bytes| {
        let calls = Calls { calls: 1, voice_bytes };
        let [realloc, recycle] =
            [BufferPolicy::Realloc, BufferPolicy::Recycle].map(|policy| calls.most_carried(policy).unwrap());
        let hundreds = |calls: u32| (calls + 50) / 100 * 100;
        format!(
            "| {voice_bytes} | {} | {} | {} |",
            hundreds(calls.at_line_rate()),
            hundreds(realloc),
            hundreds(recycle)
        )
    });
    table(
        "| voice in a packet, B | calls that fill the link | reallocating carries | recycling carries |",
        rows,
    )
}

fn fitted() -> String {
    let machine = model::rdr_machine(BufferPolicy::Realloc, 1);
    let rows = FITTED.map(|(name, fixed_by)| {
        let value = parameters().find(|p| p.name == name).unwrap().value(&machine);
        format!("| `{name}` | {value} | {fixed_by} |")
    });
    table("| parameter | value | fixed by |", rows)
}

fn sensitivity() -> String {
    let rows = rdr_sensitivity().unwrap().into_iter().map(|row| {
        let own = if row.default { " (the machine's)" } else { "" };
        format!(
            "| `{}` | {}{own} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
            row.parameter,
            row.value,
            row.smooth_clk,
            row.stumble_gap_clk,
            row.stumble_frames_per_us,
            row.realloc_pps / 1e6,
            row.recycle_pps / 1e6,
            row.less_lost_of_1_mpps * 100.0,
            row.less_lost_at_line_rate * 100.0
        )
    });
    table(
        "| parameter | value | smooth until, CLK | gaps, CLK | stumble, frames/us | received, Mpps | recycling, Mpps | less lost of 1 Mpps, % | less lost at line rate, % |",
        rows,
    )
}

fn presets() -> String {
    table(
        "| preset | what it is |",
        Scenario::presets().map(|(name, about)| format!("| `{name}` | {about} |")),
    )
}

/// The outcome of a preset with settings.
fn outcome(preset: &str, settings: &str) -> Outcome {
    let Scenario::Receive(mut config) = Scenario::preset(preset).unwrap() else {
        panic!("{preset} receives")
    };
    for sweep in settings.split(' ').filter(|text| !text.is_empty()).map(|text| Sweep::parse(text).unwrap()) {
        config.set(&sweep.parameter, &sweep.values.join(",")).unwrap();
    }
    simulate(&config).unwrap()
}

fn experiments() -> String {
    let kilo = |value: f64| format!("{:.0} kpps", value / 1e3);
    let mega = |value: f64| format!("{:.2} Mpps", value / 1e6);
    let mut rows = Vec::new();
    let mut row = |preset: &str, settings: &str, published: &str, model: String| {
        rows.push(format!(
            "| `{preset}` | {} | {published} | {model} |",
            if settings.is_empty() { "–" } else { settings }
        ));
    };
    let delivered = |preset: &str, settings: &str| outcome(preset, settings).delivered_pps();
    row("apu4d4", "", "105 kpps", kilo(delivered("apu4d4", "")));
    row("apu4d4", "rate=160000", "155 to 165 kpps", kilo(delivered("apu4d4", "rate=160000")));
    let interrupts = outcome("apu4d4", "rate=160000").interrupts_per_s();
    row("apu4d4", "rate=160000", "16 k interrupts/s", format!("{:.1} k interrupts/s", interrupts / 1e3));
    let all = "rx-usecs=0 rate=160000";
    row("apu4d4", all, "41 to 57 kpps", kilo(delivered("apu4d4", all)));
    let per_packet = |settings: &str| {
        format!("{:.2} interrupts a packet", outcome("apu4d4", settings).interrupts_per_packet())
    };
    row("apu4d4", all, "'every packet received generates an interrupt'", per_packet(all));
    row("apu4d4", "rate=160000", "0.1 interrupts a packet", per_packet("rate=160000"));
    let softirq = |settings: &str| {
        let cpu = &outcome("apu4d4", settings).cpus[0];
        let softirq = (cpu.irq_ratio + cpu.softirq_ratio) * 100.0;
        format!("{softirq:.1} % softirq, {:.1} % system", cpu.app_ratio * 100.0)
    };
    row("apu4d4", "", "60.4 % softirq, 15.7 % system", softirq(""));
    row("apu4d4", "rate=160000", "68.3 % softirq, 24.6 % system", softirq("rate=160000"));
    let large = "ring=4096 rate=160000";
    row("apu4d4", large, "no change", kilo(delivered("apu4d4", large)));
    let four = "flows=4 threads=2 reuseport=true rate=265000";
    let queues = |settings: &str| {
        let outcome = outcome("apu4d4", settings);
        let each = outcome.queues.iter().map(|queue| format!("{:.0}", queue.delivered_pps / 1e3));
        format!("queues {} kpps", each.collect::<Vec<_>>().join(" and "))
    };
    row("apu4d4", four, "queue 1 idle with the default table", queues(four));
    let spread = format!("{four} table=equal:2");
    row("apu4d4", &spread, "256 to 273 kpps over both queues", queues(&spread));
    let pktgen = |burst, rx_usecs| {
        mega(Transmit { burst, rx_usecs, ..Transmit::default() }.simulate().unwrap().sent_pps)
    };
    row("pktgen", "burst=1", "9.2 Mpps", pktgen(1, 30.0));
    row("pktgen", "burst=2", "13.5 Mpps", pktgen(2, 30.0));
    row("pktgen", "burst=3", "14.5 Mpps", pktgen(3, 30.0));
    row("pktgen", "burst=32", "14.8 Mpps with rx-usecs 30", pktgen(32, 30.0));
    row("pktgen", "burst=32 rx-usecs=100", "–", pktgen(32, 100.0));
    row("pktgen", "burst=32 rx-usecs=0", "–", pktgen(32, 0.0));
    let bypass = outcome("bypass", "");
    let kernel: f64 =
        bypass.queues.iter().filter(|queue| queue.queue != 4).map(|queue| queue.delivered_pps).sum();
    row(
        "bypass",
        "",
        "queue 4: 5.84 to 6.00 Mpps",
        format!("queue 4: {}", mega(bypass.queues[4].delivered_pps)),
    );
    row("bypass", "", "every other flow untouched (500 kpps offered)", kilo(kernel));
    row("modern", "path=xdp-drop", "10 Mpps per CPU", mega(delivered("modern", "path=xdp-drop")));
    row("modern", "threads=0", "1.8 Mpps per CPU", mega(delivered("modern", "threads=0")));
    row("modern", "rate=1000000", "370 kpps, one pinned reader", kilo(delivered("modern", "rate=1000000")));
    row("xdp-drop", "", "24 to 26 Mpps on one core", mega(delivered("xdp-drop", "")));
    row("af-xdp", "", "39.3 Mpps on one core", mega(delivered("af-xdp", "")));
    row("veth", "", "0.298 Mpps to a socket", mega(delivered("veth", "")));
    row("veth", "path=xdp-drop", "0.42 Mpps to XDP", mega(delivered("veth", "path=xdp-drop")));
    table("| preset | settings | published or measured | model |", rows)
}

/// Figures that nothing was fitted to.
fn targets() -> String {
    let row = |id: &str, settings: &str, model: f64| {
        let paper = PublishedFigure::shipped(id);
        let off = (model / paper.value - 1.0) * 100.0;
        format!(
            "| {} | `{settings}` | {} {} | {model:.1} | {off:+.0} % |",
            paper.figure, paper.value, paper.unit
        )
    };
    let mut rows: Vec<String> = [16, 32, 48, 64, 96, 127]
        .map(|queues| {
            let settings = format!("queues={queues}");
            let model = outcome("connectx-6-dx", &settings).delivered_pps() / 1e6;
            row(&format!("connectx-6-dx.{queues}"), &format!("connectx-6-dx {settings}"), model)
        })
        .into();
    let cycles = |settings: &str| 3.3e9 / outcome("ixy", settings).delivered_pps();
    rows.push(row("ixy.batch", "ixy budget=1,32", cycles("budget=1") - cycles("budget=32")));
    let ixy = outcome("ixy", "");
    rows.push(row("ixy.buffers", "ixy", cycles("") * ixy.share(CpuFunction::Allocate)));
    table("| figure | preset | published | model | off by |", rows)
}

fn plan() -> String {
    let row = |what: &str, change: &dyn Fn(&mut Fleet)| {
        let mut fleet = Fleet::default();
        change(&mut fleet);
        let plan = fleet.plan().unwrap();
        let machines = plan.machines.map_or("none helps".to_string(), |machines| machines.to_string());
        let cores = plan.cores.map_or("–".to_string(), |cores| cores.to_string());
        let bottleneck = serde_json::to_value(plan.bottleneck).unwrap();
        format!(
            "| {what} | {} | {machines} | {cores} | {} | {:.3} | {:.2} |",
            plan.machines_if_even,
            bottleneck.as_str().unwrap(),
            plan.overload_probability,
            plan.worst_core_ratio
        )
    };
    let gigapps = |fleet: &mut Fleet| (fleet.flood_pps, fleet.flows) = (1e9, 1_000_000);
    table(
        "| flood | machines if even | machines | cores | first bottleneck | overload probability | busiest core / mean |",
        [
            row("300 Mpps, defaults", &|_| {}),
            row("300 Mpps, only 5000 flows", &|fleet| fleet.flows = 5000),
            row("300 Mpps, half of it in 100 flows", &|fleet| {
                (fleet.heavy_flows, fleet.heavy_ratio) = (100, 0.5)
            }),
            row("300 Mpps, a tenth of it in one flow", &|fleet| {
                (fleet.heavy_flows, fleet.heavy_ratio) = (1, 0.1)
            }),
            row("300 Mpps, 10 GbE machines", &|fleet| fleet.link_bps = 10_000_000_000),
            row("1 Gpps, 1 million flows", &gigapps),
            row("1 Gpps, 1 million flows, the kernel's path (1.8 Mpps a core)", &|fleet| {
                gigapps(fleet);
                fleet.queue_pps = 1.8e6;
            }),
        ],
    )
}

fn parameter_table<'p>(parameters: impl Iterator<Item = (&'p Parameter, Value)>) -> String {
    let rows = parameters.map(|(parameter, default)| {
        let short =
            if parameter.short.is_empty() { String::new() } else { format!(", `{}`", parameter.short) };
        let default = match default {
            Value::String(word) => word,
            other => other.to_string(),
        };
        let Parameter { name, unit, meaning, source, .. } = parameter;
        format!("| `{name}`{short} | {unit} | {default} | {meaning} | {source} |")
    });
    table("| parameter | unit | default | what it is | source |", rows)
}

fn of_json(parameters: &[Parameter], defaults: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(defaults).unwrap();
    parameter_table(parameters.iter().map(|parameter| (parameter, json[parameter.name].clone())))
}
