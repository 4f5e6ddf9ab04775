//! x
use std::io::*;
use std::process::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let has = |s: &str| a.iter().any(|x| x == s);
    let plan = lab::LabPlan {
        threaded_napi: has("napi"),
        napi_cpus: if has("napi") && !has("free") { vec![1] } else { vec![] },
        tx_checksum: has("csum"),
        gso: has("gso"),
        gro: has("gro"),
        queues: 2,
        ..Default::default()
    };
    let size = a.iter().find_map(|x| x.strip_prefix("size=")).unwrap_or("18").to_owned();
    println!("{:?}", lab::gain_access());
    let l = lab::Lab::create(&plan).unwrap();
    let six = has("6");
    let dst = if six { l.rx().ipv6()[0].to_string() } else { l.rx().ipv4()[0].to_string() };
    let before = sys::procfs::softnet_stat().unwrap();
    let mut r = l
        .rx()
        .run(|| Command::new("/tmp/recvmmsg").args([&dst, "4321", "1", "2.3"]).stderr(Stdio::piped()).spawn())
        .unwrap()
        .unwrap();
    let mut e = r.stderr.take().unwrap();
    let mut b = [0; 6];
    e.read_exact(&mut b).unwrap();
    l.tx()
        .run(|| Command::new("/tmp/sendmmsg").args([&dst, "4321", &size, "2", "0"]).status())
        .unwrap()
        .unwrap();
    r.wait().unwrap();
    let after = sys::procfs::softnet_stat().unwrap();
    for (b, a) in before.iter().zip(after) {
        println!(
            "softnet cpu {} processed {} dropped {} squeeze {}",
            a.cpu,
            a.processed - b.processed,
            a.dropped - b.dropped,
            a.time_squeeze - b.time_squeeze
        );
    }
    for s in [l.tx(), l.rx()] {
        println!(
            "{} {:?}",
            s.interface(),
            s.link().unwrap().stats.named().filter(|x| x.1 != 0).collect::<Vec<_>>()
        );
        println!("   {:?}", s.driver_statistics().unwrap().iter().filter(|x| x.1 != 0).collect::<Vec<_>>());
        println!(
            "   {:?}",
            s.net_counters().unwrap().iter().filter(|x| x.1 != 0 && x.0.contains("Udp")).collect::<Vec<_>>()
        );
    }
}
