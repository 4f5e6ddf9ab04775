//! One line per tick in udpreceiver's form, with the kernel's drops added.

use std::io::{self, Write};

use measure::Interval;

/// Writes `  0.105M pps   3.195MiB /  26.804Mb`, then what the receiving socket or ring dropped.
///
/// Packets, MiB and Mb (2^20 bytes, 10^6 bits) of UDP payload per second, over the measured length of the tick, which is not
/// assumed to be 1 s. A receiver's line counts delivered packets, a sender's sent ones.
pub fn write_interval_line(interval: &Interval, out: &mut impl Write) -> io::Result<()> {
    let per_second = |amount: f64| if interval.length_s > 0.0 { amount / interval.length_s } else { 0.0 };
    let packets = interval.delivered.or(interval.sent).unwrap_or(0);
    let mpps = per_second(packets as f64) / 1e6;
    let bytes = per_second(interval.payload_bytes as f64);
    let (mib, megabits) = (bytes / f64::from(1 << 20), bytes * 8.0 / 1e6);
    write!(out, "{mpps:7.3}M pps {mib:7.3}MiB / {megabits:7.3}Mb")?;
    match interval.rx_dropped {
        Some(dropped) => writeln!(out, "  {dropped} dropped"),
        None => writeln!(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(interval: Interval) -> String {
        let mut out = Vec::new();
        write_interval_line(&interval, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn tick(length_s: f64) -> Interval {
        Interval {
            trial: 0,
            end_s: length_s,
            length_s,
            sent: None,
            delivered: Some(104_691),
            payload_bytes: 104_691 * 32,
            rx_dropped: None,
        }
    }

    #[test]
    fn a_receiver_prints_the_line_that_udpreceiver_prints() {
        assert_eq!(line(tick(1.0)), "  0.105M pps   3.195MiB /  26.801Mb\n");
    }

    #[test]
    fn rates_are_over_the_measured_length_of_the_tick() {
        assert_eq!(line(tick(0.5)), "  0.209M pps   6.390MiB /  53.602Mb\n");
        assert_eq!(line(tick(0.0)), "  0.000M pps   0.000MiB /   0.000Mb\n");
    }

    #[test]
    fn the_kernels_drops_are_at_the_end_of_the_line() {
        let dropping = Interval { rx_dropped: Some(1234), ..tick(1.0) };
        assert_eq!(line(dropping), "  0.105M pps   3.195MiB /  26.801Mb  1234 dropped\n");
    }

    #[test]
    fn a_sender_prints_sent_packets() {
        let sender = Interval { sent: Some(104_691), delivered: None, ..tick(1.0) };
        assert_eq!(line(sender), line(tick(1.0)));
    }
}
